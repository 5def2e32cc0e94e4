"""The last plan as the beginning of the next: at rest nothing moves, and of equally good plans it stays."""

from __future__ import annotations

from datetime import datetime, timedelta
from pathlib import Path

import pytest

from gpuplan.models.calendar import Reservation
from gpuplan.models.cluster import Dataset
from gpuplan.models.dependency import FinishedJob
from gpuplan.models.gang import Gang
from gpuplan.models.placement import Running
from gpuplan.models.plan.solution import StopReason
from gpuplan.models.policy.policy import Ageing, Disruption, Policy, Weights
from gpuplan.planner.analysis.target_cluster import cluster_after
from gpuplan.planner.epoch import plan_epoch
from gpuplan.planner.sources.files import load_snapshot
from gpuplan.planner.warm_start import initial_target, is_settled, new_waiting_jobs
from tests.support.builders import build

GREEDY = Policy(solvers=())
EXACT = Policy()
NOW = build.snapshot().taken_at
HOUR = timedelta(hours=1)
SECOND = timedelta(seconds=1)


def planned(snapshot, policy, last=None):
    return plan_epoch(snapshot, policy, seed=0, created_at=snapshot.taken_at, last=last)


def carried_out(plan, *, later=timedelta(0)):
    """The cluster once a plan that starts and stops jobs is done."""
    now = plan.snapshot.taken_at
    there = {placement.job: placement.replicas for placement in plan.target.placements}

    def after(job):
        update = {}
        if job.name in there and job.running is None:
            update = {"running": Running(started_at=now, replicas=there[job.name])}
        elif job.name not in there and job.running is not None:
            update = {"running": None, "preemptions": job.preemptions + 1}
        return job.model_copy(update=update)

    jobs = tuple(map(after, plan.snapshot.jobs))
    return plan.snapshot.model_copy(update={"jobs": jobs, "taken_at": now + later})


def contested():
    """One node of two GPUs: greedy takes the denser small job, and the large one waits."""
    jobs = [build.job("small", gpus=1, priority=2), build.job("large", gpus=2, priority=1)]
    return build.snapshot(nodes=[build.node(gpus=2)], jobs=jobs)


def test_a_cluster_at_rest_stays_at_rest():
    first = planned(contested(), GREEDY)
    live = carried_out(first, later=timedelta(minutes=5))

    again, anew = planned(live, EXACT, first), planned(live, EXACT)

    assert not again.has_changes
    assert again.solution.ended is StopReason.SETTLED
    assert again.solution.bound >= again.solution.objective
    assert "greedy" not in again.solution.phases
    assert "greedy" in anew.solution.phases


def test_that_nothing_better_is_left_is_proven_at_rest_too():
    """Of the quickstart scenario the linear relaxation alone says that 40 points might be left."""
    folder = str(Path(__file__).parents[2] / "scenarios" / "quickstart")
    first = planned(load_snapshot(folder), EXACT)

    again = planned(carried_out(first, later=timedelta(minutes=5)), EXACT, first)

    assert again.solution.ended is StopReason.SETTLED
    assert again.solution.status == "OPTIMAL"
    assert again.solution.gap == 0


@pytest.mark.parametrize(
    "change",
    [
        lambda live: live.model_copy(
            update={"finished": (FinishedJob(name="gone", queue="q", started_at=NOW, ended_at=NOW),)}
        ),
        lambda live: live.model_copy(update={"jobs": (*live.jobs, build.job("more", gpus=1))}),
        lambda live: live.model_copy(update={"jobs": live.jobs[1:]}),
        lambda live: live.model_copy(
            update={"jobs": tuple(job.model_copy(update={"running": None}) for job in live.jobs)}
        ),
        lambda live: live.model_copy(
            update={"cluster": live.cluster.model_copy(update={"nodes": build.cluster(3)})}
        ),
        lambda live: live.model_copy(
            update={"jobs": tuple(job.model_copy(update={"priority": 9}) for job in live.jobs)}
        ),
    ],
    ids=["a job finished", "a job more", "a job less", "a job stopped", "other nodes", "another priority"],
)
def test_whatever_changes_ends_the_rest(change):
    first = planned(contested(), GREEDY)
    live = carried_out(first)

    assert is_settled(live, EXACT, first)
    assert not is_settled(change(live), EXACT, first)


def test_a_cluster_is_at_rest_after_a_preemption_until_the_running_job_was_preempted_more_often():
    low = build.job("low", gpus=2, at=[build.replica(gpus=(0, 1))])
    high = build.job("high", gpus=2, priority=9)
    first = planned(build.snapshot(nodes=[build.node(gpus=2)], jobs=[low, high]), GREEDY)
    live = carried_out(first)
    often = tuple(job.model_copy(update={"preemptions": 5}) for job in live.jobs)

    assert {job.name: (job.running is None, job.preemptions) for job in live.jobs} == {
        "low": (True, 1),
        "high": (False, 0),
    }
    assert new_waiting_jobs(live, first.snapshot) == set()
    again = planned(live, GREEDY, first)
    assert is_settled(live, GREEDY, again)
    assert not is_settled(live.model_copy(update={"jobs": often}), GREEDY, again)


def test_another_policy_ends_the_rest_but_not_another_effort():
    first = planned(contested(), GREEDY)
    live = carried_out(first)
    longer = EXACT.model_copy(update={"budget": EXACT.budget.model_copy(update={"time_limit_ms": 1})})
    other = EXACT.model_copy(update={"weights": Weights(ageing=Ageing(gain=2))})

    assert is_settled(live, longer, first)
    assert not is_settled(live, other, first)


def waiting_for(**what):
    """A job on a node with room for it that waits for something beside room."""
    return build.snapshot(jobs=[build.job("late", gpus=1, **what)])


def with_data(snapshot):
    data = Dataset(name="d", available_at=NOW + HOUR)
    return snapshot.model_copy(
        update={"cluster": snapshot.cluster.model_copy(update={"datasets": (data,)})}
    ).canonical()


@pytest.mark.parametrize(
    "snapshot",
    [waiting_for(not_before=NOW + HOUR), with_data(waiting_for(datasets=("d",)))],
    ids=["a begin time", "data"],
)
def test_a_job_starts_once_its_time_has_come(snapshot):
    first = planned(snapshot, GREEDY)
    early, due, late = (carried_out(first, later=later) for later in (HOUR - SECOND, HOUR, 3 * HOUR))

    assert not first.has_changes
    assert is_settled(early, GREEDY, first)
    assert planned(due, GREEDY, first).metrics.jobs.started == 1
    assert planned(late, GREEDY, first).metrics.jobs.started == 1


def test_a_time_that_came_before_the_last_plan_was_made_changes_nothing():
    jobs = [build.job("large", gpus=9, not_before=NOW - HOUR)]
    first = planned(build.snapshot(jobs=jobs), GREEDY)

    assert is_settled(carried_out(first, later=HOUR), GREEDY, first)


def test_a_job_that_has_run_long_enough_makes_room():
    patient = Policy(solvers=(), disruption=Disruption(minimum_runtime=3600))
    low = build.job("low", gpus=2)
    alone = build.snapshot(nodes=[build.node(gpus=2)], jobs=[low])
    high = build.job("high", gpus=2, priority=9)
    started = carried_out(planned(alone, patient))
    first = planned(started.model_copy(update={"jobs": (high, *started.jobs)}), patient)
    early, due = (carried_out(first, later=later) for later in (HOUR - SECOND, HOUR))

    assert not first.has_changes
    assert is_settled(early, patient, first)
    assert planned(due, patient, first).metrics.jobs.preempted == 1
    # Without waiting jobs there is none to make room for.
    assert is_settled(carried_out(planned(started, patient), later=HOUR), patient, planned(started, patient))


def test_a_job_that_was_stopped_makes_room_for_an_equal_when_its_turn_is_over():
    """It was stopped once, so its turn is one recovery of six minutes."""
    turns = Policy(solvers=(), disruption=Disruption(priority_gap=0))
    long = build.job("long", gpus=2, preemptions=1, expected_duration=360_000)
    alone = build.snapshot(nodes=[build.node(gpus=2)], jobs=[long])
    started = carried_out(planned(alone, turns))
    short = build.job("short", gpus=2, expected_duration=60)
    first = planned(started.model_copy(update={"jobs": (*started.jobs, short)}), turns)
    early, due = (carried_out(first, later=later) for later in (HOUR / 10 - SECOND, HOUR / 10))

    assert not first.has_changes
    assert is_settled(early, turns, first)
    assert planned(due, turns, first).metrics.jobs.preempted == 1


def test_a_job_grows_once_its_last_resize_is_long_enough_ago():
    elastic = build.job("e", gpus=1, replicas=(1, 4), priority=9, at=[build.replica(gpus=[0])])
    resized = elastic.running.model_copy(update={"resized_at": NOW - HOUR / 2})
    held = elastic.model_copy(update={"running": resized})
    first = planned(build.snapshot(nodes=[build.node(gpus=4)], jobs=[held]), GREEDY)
    early, due = (carried_out(first, later=later) for later in (HOUR / 2 - SECOND, HOUR / 2))

    assert not first.has_changes
    assert is_settled(early, GREEDY, first)
    assert [action.type for action in planned(due, GREEDY, first).actions] == ["grow"]


def test_a_pool_gives_a_node_back_once_it_was_given_one_long_enough_ago():
    template = build.node("cloud", price_per_hour=1.0)
    cloud = build.pool("cloud", template=template).model_copy(update={"node_added_at": NOW - HOUR / 2})
    there = [build.node(), template.model_copy(update={"name": "cloud-1", "pool": "cloud"})]
    first = planned(build.snapshot(nodes=there, pools=(cloud,)), GREEDY)
    early, due = (carried_out(first, later=later) for later in (HOUR / 2 - SECOND, HOUR / 2))

    assert not first.has_changes
    assert is_settled(early, GREEDY, first)
    assert [action.type for action in planned(due, GREEDY, first).actions] == ["scale_down"]


def test_a_pool_that_remembers_when_it_was_scaled_is_at_rest_all_the_same():
    cloud = build.pool("cloud", template=build.node("cloud", price_per_hour=1.0))
    first = planned(build.snapshot(nodes=[], jobs=[build.job(gpus=1, priority=9)], pools=(cloud,)), GREEDY)
    live, cluster = carried_out(first), cluster_after(first.snapshot, first.target)
    pools = tuple(pool.model_copy(update={"node_added_at": NOW}) for pool in cluster.pools)
    live = live.model_copy(update={"cluster": cluster.model_copy(update={"pools": pools})})

    assert first.has_changes
    assert is_settled(live, GREEDY, first)


def test_reservations_leave_nothing_settled():
    window = Reservation(name="m", kind="maintenance", nodes=("n0",), start=NOW + 5 * HOUR, duration="1h")
    cluster = build.snapshot().cluster.model_copy(update={"reservations": (window,)})
    first = planned(build.snapshot().model_copy(update={"cluster": cluster}).canonical(), GREEDY)

    assert not is_settled(carried_out(first), GREEDY, first)


def test_a_job_starts_after_the_one_that_it_waited_for_has_started():
    jobs = [build.job("a", gpus=1), build.job("b", gpus=1, depends_on=({"job": "a", "kind": "started"},))]
    first = planned(build.snapshot(jobs=jobs), GREEDY)

    again = planned(carried_out(first), GREEDY, first)

    assert [placement.job for placement in first.placements] == ["a"]
    assert [placement.job for placement in again.placements] == ["a", "b"]


def test_a_job_starts_after_the_checkpoint_that_it_waited_for():
    jobs = [
        build.job("a", gpus=1, at=[build.replica(gpus=(0,))]),
        build.job("b", gpus=1, depends_on=({"job": "a", "kind": "checkpointed"},)),
    ]
    first = planned(build.snapshot(jobs=jobs), GREEDY)
    live = carried_out(first, later=HOUR)
    saved = live.jobs[0].running.model_copy(update={"last_checkpoint_at": NOW + HOUR})
    live = live.model_copy(
        update={"jobs": (live.jobs[0].model_copy(update={"running": saved}), *live.jobs[1:])}
    )

    assert is_settled(carried_out(first, later=HOUR), GREEDY, first)
    assert [placement.job for placement in planned(live, GREEDY, first).placements] == ["a", "b"]


def test_what_is_left_of_the_room_that_a_plan_made_is_taken_next():
    """Where a job was stopped only higher priorities follow, until the plan is carried out."""
    held = [build.replica(gpus=(0, 1))]
    jobs = [
        build.job("victim", gpus=2, at=held, held=True),
        build.job("high", gpus=1, priority=9),
        build.job("low", gpus=1),
    ]
    first = planned(build.snapshot(nodes=[build.node(gpus=2)], jobs=jobs), GREEDY)

    again = planned(carried_out(first), GREEDY, first)

    assert [placement.job for placement in first.placements] == ["high"]
    assert [placement.job for placement in again.placements] == ["high", "low"]


def test_a_borrower_by_the_last_plan_may_be_reclaimed_from_now_on():
    queues = [
        build.queue("root"),
        build.queue("owner", parent="root", nominal=1),
        build.queue("guest", parent="root", nominal=1),
    ]
    jobs = [
        build.job("first", gpus=1, queue="guest", at=[build.replica(gpus=(0,))]),
        build.job("second", gpus=1, queue="guest", priority=9),
        build.job("third", gpus=1, queue="owner"),
    ]
    snapshot = build.snapshot(nodes=[build.node(gpus=2)], queues=queues, jobs=jobs)
    first = planned(snapshot, GREEDY)

    assert [placement.job for placement in first.placements] == ["first", "second"]
    assert not is_settled(carried_out(first), GREEDY, first)


def test_a_plan_not_carried_out_is_begun_with_and_kept_among_equals():
    """Either of two equal nodes will do; whichever was planned stays planned."""
    jobs = [build.job("a", gpus=1), build.job("b", gpus=2)]
    snapshot = build.snapshot(nodes=build.cluster(2, gpus=2), jobs=jobs)
    first = planned(snapshot, GREEDY)

    again = planned(snapshot, EXACT, first)

    assert initial_target(first.snapshot, EXACT, first) == first.target
    assert again.target == first.target
    assert again.solution.solver == "last plan"


def test_a_better_plan_takes_the_place_of_the_last_one():
    snapshot = contested()
    quick, exact = (each.model_copy(update={"priority": build.BY_WEIGHT}) for each in (GREEDY, EXACT))
    first = planned(snapshot, quick)

    again = planned(snapshot, exact, first)

    assert [placement.job for placement in first.target.placements] == ["small"]
    assert [placement.job for placement in again.target.placements] == ["large"]


def test_where_equals_take_turns_by_what_they_had_time_alone_calls_for_a_plan():
    for goal, rests in (("completion", True), ("critical-path", False), ("fairness", False)):
        policy = Policy(solvers=(), objective={"goal": goal}, disruption={"priority_gap": 0})
        first = planned(contested(), policy)

        assert is_settled(carried_out(first, later=HOUR), policy, first) == rests
        alone = policy.model_copy(update={"disruption": Disruption()})
        first = planned(contested(), alone)
        assert is_settled(carried_out(first, later=HOUR), alone, first)


def test_at_rest_until_a_job_has_waited_long_enough_for_a_better_model():
    gang = Gang(min=1, max=4, scaling={1: 1, 4: 3.6})
    waits = build.job("a", gpus=1, expected_duration=3600).model_copy(
        update={"gang": gang, "gpu_models": {"H100-80GB": 6000, "T4": 1000}}
    )
    nodes = [build.node("fast", gpus=4), build.node("slow", gpus=4, model="T4")]
    jobs = [waits, build.job("there", gpus=4, at=[build.replica("fast", gpus=range(4))], preemptible=False)]
    first = planned(build.snapshot(nodes=nodes, jobs=jobs), GREEDY)
    assert not first.has_changes
    (numbers,) = (action.reason.numbers for action in first.actions if action.job == "a")
    until = datetime.fromisoformat(str(numbers["until"]))

    assert is_settled(carried_out(first, later=(until - NOW) / 2), GREEDY, first)
    assert not is_settled(carried_out(first, later=until - NOW), GREEDY, first)
    # "there" runs longer than expected, so that before the end of its patience the job waits no more.
    for hours in range(13):
        live = carried_out(first, later=hours * HOUR)
        assert is_settled(live, GREEDY, first) is not planned(live, GREEDY).has_changes
