"""What each kind of action leaves behind in the world, in plans that the planner makes."""

from __future__ import annotations

from datetime import timedelta

from gpuplan.models.health.findings import with_exclusions
from gpuplan.models.health.measurement import HealthPolicy, Measurement
from gpuplan.models.plan.actions import Grow, Migrate, Preempt, Release, ScaleUp, Shrink, Start
from gpuplan.models.policy.policy import Disruption, Policy
from gpuplan.planner.epoch import plan_epoch
from gpuplan.planner.simulate.decide import apply_plan_to_world
from gpuplan.planner.simulate.simulated_job import JobEventKind
from gpuplan.planner.simulate.trace import Physics, Trace
from gpuplan.planner.simulate.world import advance_world, initial_world
from tests.support.builders.build import NOW, job, node, pool, replica, snapshot

PHYSICS = Physics(checkpoint_every=600, checkpoint=60, restart=120)
FREE = Disruption(preempt=True, resize=True, migrate=True)


def acted(start, policy=None):
    """World before and after, what happened, and the kinds of what was done."""
    world = initial_world(Trace(start, physics=PHYSICS))
    chosen = policy or Policy(solvers=(), disruption=FREE)
    plan = plan_epoch(world.snapshot(), chosen, seed=0, created_at=world.now)
    after, happened = apply_plan_to_world(world, plan)
    kinds = {type(action) for action in plan.actions}
    return world, after, happened, kinds


def runs(name, *places, left=3600, **about):
    """A job that began an hour ago and goes on for so many seconds."""
    return job(name, at=places, expected_duration=3600 + left, waited=timedelta(hours=1), **about)


def test_a_started_job_runs_from_now():
    _, after, happened, kinds = acted(snapshot(jobs=[job("a", gpus=1, expected_duration=600)]))

    assert Start in kinds
    assert after.tasks["a"].job.running.started_at == NOW
    assert [(each.kind, each.at) for each in happened] == [(JobEventKind.STARTED, NOW)]


def test_a_job_on_a_new_node_runs_once_that_is_up():
    start = snapshot(nodes=(), jobs=[job("a", gpus=8, priority=50)], pools=(pool(provisioning=300),))

    _, after, happened, kinds = acted(start)

    assert ScaleUp in kinds
    (new,) = after.cluster.nodes
    assert new.ready_at == NOW + timedelta(seconds=300)
    assert after.tasks["a"].job.running.started_at == NOW + timedelta(seconds=300)
    assert [(each.kind, each.at) for each in happened] == [
        (JobEventKind.STARTED, NOW + timedelta(seconds=300))
    ]
    assert after.cluster.pools[0].node_added_at == NOW
    passed = advance_world(after, NOW + timedelta(seconds=400))
    assert passed.flow.held == 8000 * 100


def saved(name, *places, seconds, **about):
    """A running job with its last checkpoint so many seconds ago."""
    made = runs(name, *places, **about)
    last = {"last_checkpoint_at": NOW - timedelta(seconds=seconds)}
    return made.model_copy(update={"running": made.running.model_copy(update=last)})


def test_a_job_that_is_moved_goes_on_from_its_last_checkpoint_and_needs_a_while():
    moved = saved("a", replica("n0", gpus=(0,)), gpus=1, left=1800, seconds=500)
    start = snapshot(nodes=[node("n0", drain=True), node("n1")], jobs=[moved])

    before, after, happened, kinds = acted(start)

    assert Migrate in kinds
    task = after.tasks["a"]
    assert task.ends() == before.tasks["a"].ends() + timedelta(seconds=500 + 60 + 120)
    running = task.job.running
    assert (running.started_at, running.resumed_at) == (NOW, NOW + timedelta(seconds=60 + 120))
    assert task.job.last_checkpoint_at == NOW - timedelta(seconds=500)
    assert [each.kind for each in happened] == [JobEventKind.MOVED]
    assert happened[0].held.lost == 500


def test_a_preempted_job_waits_with_what_it_has_saved():
    victim = saved("a", replica("n0", gpus=range(8)), gpus=8, left=1800, seconds=500)

    _, after, happened, kinds = acted(
        snapshot(nodes=[node("n0")], jobs=[victim, job("vip", gpus=8, priority=90)])
    )

    assert Preempt in kinds
    waits = after.tasks["a"]
    assert (waits.job.running, waits.job.preemptions) == (None, 1)
    assert waits.job.expected_duration == 3600 + 1800
    # The next checkpoint would have been ten minutes after the last one.
    assert waits.job.progress.completed_milli == (3600 - 500) * 1000
    assert waits.job.last_checkpoint_at == NOW - timedelta(seconds=500)
    assert next((each.held.lost, each.held.idle) for each in happened if each.job == "a") == (500, 0)
    assert {each.job: each.kind for each in happened} == {
        "a": JobEventKind.PREEMPTED,
        "vip": JobEventKind.STARTED,
    }


def test_an_elastic_job_is_faster_or_slower_by_its_replicas_from_its_last_checkpoint_on():
    places = [replica("n0", gpus=(index,)) for index in range(8)]
    elastic = runs("e", *places, gpus=1, replicas=(2, 8), left=3600, queue="q")
    saved = elastic.running.model_copy(update={"last_checkpoint_at": NOW - timedelta(seconds=500)})
    elastic = elastic.model_copy(update={"running": saved})

    before, shrunk, happened, kinds = acted(
        snapshot(nodes=[node("n0")], jobs=[elastic, job("vip", gpus=4, priority=90)])
    )

    assert Shrink in kinds
    task = shrunk.tasks["e"]
    count = len(task.job.running.replicas)
    assert before.tasks["e"].ends() == NOW + timedelta(seconds=3600)
    # A minute to save its state, two to come back, and what it did since the last checkpoint.
    assert task.ends() == NOW + timedelta(seconds=180 + -(-4100 * 8 // count))
    assert next(each for each in happened if each.kind is JobEventKind.RESIZED).held.lost == 500
    running = task.job.running
    assert (running.resized_at, running.resumed_at) == (NOW, NOW + timedelta(seconds=180))
    assert task.job.progress.completed_milli == (3600 - 500) * 1000
    assert task.job.last_checkpoint_at == NOW - timedelta(seconds=500)
    assert running.started_at == elastic.running.started_at

    _, grown, _, kinds = acted(
        snapshot(nodes=[node("n0")], jobs=[runs("e", *places[:4], gpus=1, replicas=(2, 8))])
    )
    assert Grow in kinds
    assert grown.tasks["e"].begun.rate == 1000


def with_hot_gpu(*nodes, jobs):
    """A world in which a rule of health excludes GPU 0 of n0."""
    hot = Measurement(node="n0", index=0, period=600, hot={90: 600})
    rules = HealthPolicy(heat={"celsius": 80, "for": "1m", "action": "exclude"})
    return with_exclusions(snapshot(nodes=nodes, jobs=jobs, measured=[hot]), rules)


def test_a_job_on_a_gpu_that_a_rule_of_health_excludes_starts_again_elsewhere_from_its_checkpoint():
    hot = saved("a", replica("n0", gpus=(0, 1)), gpus=2, left=1800, seconds=500)
    start = with_hot_gpu(node("n0"), node("n1"), jobs=[hot])

    before, after, happened, kinds = acted(start)

    assert {Release, Start} <= kinds
    task = after.tasks["a"]
    assert task.ends() == before.tasks["a"].ends() + timedelta(seconds=500 + 60 + 120)
    assert task.job.preemptions == 0
    assert [each.kind for each in happened] == [JobEventKind.INTERRUPTED, JobEventKind.STARTED]
    assert happened[0].held.lost == 500


def test_a_job_that_has_no_room_elsewhere_waits_and_holds_nothing():
    hot = saved("a", replica("n0", gpus=range(8)), gpus=8, left=1800, seconds=500)
    start = with_hot_gpu(node("n0"), jobs=[hot])

    _, after, happened, kinds = acted(start)

    assert Release in kinds
    assert Start not in kinds
    assert after.tasks["a"].job.running is None
    assert [each.kind for each in happened] == [JobEventKind.INTERRUPTED]
    assert advance_world(after, NOW + timedelta(seconds=400)).flow.held == 0


def test_a_gang_that_may_be_smaller_goes_on_without_the_excluded_gpu():
    places = [replica("n0", gpus=(0,)), replica("n0", gpus=(1,))]
    hot = saved("a", *places, gpus=1, replicas=(1, 2), left=1800, seconds=500)
    full = job("b", gpus=6, at=[replica("n0", gpus=range(2, 8))], preemptible=False)
    start = with_hot_gpu(node("n0"), jobs=[hot, full])

    _, after, happened, kinds = acted(start)

    assert Release in kinds
    (left,) = after.tasks["a"].job.running.replicas
    assert [each.index for each in left.gpus] == [1]
    assert [each.kind for each in happened] == [JobEventKind.RESIZED]
    assert advance_world(after, NOW + timedelta(seconds=100)).flow.held == 7000 * 100
