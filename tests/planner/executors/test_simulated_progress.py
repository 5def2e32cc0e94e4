"""A job keeps its progress when it stops, and loses what the plan said on the simulated cluster."""

from __future__ import annotations

import random
from datetime import timedelta

import pytest

from gpuplan.models.placement import Running
from gpuplan.models.plan.actions import Preempt, Start, changes_of
from gpuplan.models.policy.policy import Disruption, Policy
from gpuplan.models.timing.durations import Durations
from gpuplan.models.value.disruption_cost import lost_seconds, recovery_seconds
from gpuplan.planner.apply.promises import carry_over_promises, with_promises_of
from gpuplan.planner.epoch import plan_epoch
from gpuplan.planner.executors.simulated import SimulatedCluster
from tests.support.builders.build import MODEL, NOW, job, node, replica, snapshot
from tests.support.samples.all_actions import begin, grow, migrate, preempt, shrink
from tests.support.seeds import EVERY_SEED

HOUR = 3600
SAVED = {"completed": "9h25m", "last_checkpoint_at": "2026-11-20T11:55:00Z", "served": "76h"}
SEEDS = 1000 if EVERY_SEED else 8


def long_job(*, ran=timedelta(hours=9.5), saved=timedelta(minutes=5), **more):
    """Ten hours of work, most of it done and saved."""
    running = Running(
        started_at=NOW - ran, last_checkpoint_at=NOW - saved, replicas=(replica("n0", gpus=range(8)),)
    )
    found = job("long", gpus=8, waited=ran, expected_duration=10 * HOUR, **more)
    return found.model_copy(update={"running": running})


def planned(world, policy=None):
    chosen = policy or Policy(solvers=())
    return plan_epoch(world, chosen, seed=0, created_at=world.taken_at)


def apply(cluster, plan):
    for change in changes_of(plan.actions):
        cluster.begin(change, key=f"{plan.plan_id} {change.id}")


@pytest.mark.parametrize("rules", [{}, {"checkpoint": 17, "restart": 1000}])
def test_a_job_that_loses_its_place_comes_back_with_what_is_left(rules, tmp_path):
    policy = Policy(solvers=(), disruption=Disruption(**rules))
    urgent = job("urgent", gpus=8, priority=50, expected_duration=HOUR)
    world = snapshot(nodes=[node("n0")], jobs=[long_job(), urgent])
    with SimulatedCluster.create(tmp_path / "c.db", world) as cluster:
        plan = planned(world, policy)
        (stop,) = [action for action in plan.actions if isinstance(action, Preempt)]
        apply(cluster, plan)
        waits = cluster.snapshot().job_by_name["long"]
        cluster.advance(HOUR)
        again = planned(cluster.snapshot(), policy)
        (start,) = [action for action in again.actions if isinstance(action, Start)]
        apply(cluster, again)
        cluster.advance(2 * HOUR)
        ended = dict(cluster.finished())["long"]

    assert waits.progress.document() == SAVED
    left = 35 * 60 + recovery_seconds(policy, waits)
    assert stop.reason.numbers["remaining_seconds"] == start.reason.numbers["remaining_seconds"] == left
    assert next(each.remaining for each in plan.waiting if each.job == "long") == left
    assert ended == NOW + timedelta(seconds=HOUR + left)
    lost = stop.reason.numbers["lost_seconds"] + stop.reason.numbers["recovery_seconds"]
    assert lost == 5 * 60 + recovery_seconds(policy, waits)
    assert 9.5 * HOUR + left == 10 * HOUR + lost


def test_a_promise_and_a_deadline_count_on_what_is_left():
    waits = Durations(snapshot(nodes=[node("n0")], jobs=[long_job()]), Policy()).stopped(long_job())
    due = waits.model_copy(update={"deadline": NOW + timedelta(hours=2)})
    runs = job("r", gpus=8, at=[replica("n0", gpus=range(8))], expected_duration=2 * HOUR)
    behind = job("z", gpus=8, expected_duration=HOUR)
    ahead = Policy(solvers=(), disruption=Disruption(preempt=False), horizon={"slots": 6, "length": "1h"})

    plan = planned(snapshot(nodes=[node("n0")], jobs=[due, runs, behind]), ahead)

    starts = {each.job: each.slot for each in plan.planned}
    assert starts == {"long": 1, "z": 2}
    (outlook,) = plan.deadlines
    assert outlook.projected_finish == NOW + timedelta(seconds=HOUR + 35 * 60 + 360)
    assert outlook.state == "met"


def test_a_plan_knows_the_progress_of_a_cluster_that_cannot_remember_it():
    urgent = job("urgent", gpus=8, priority=50, expected_duration=HOUR)
    world = snapshot(nodes=[node("n0")], jobs=[long_job(), urgent])
    plan = planned(world)
    forgets = [each.model_copy(update={"running": None}) for each in world.jobs if each.name == "long"]

    known = carry_over_promises(snapshot(nodes=[node("n0")], jobs=forgets), plan)

    assert known.job_by_name["long"].progress.document()["completed"] == "9h25m"
    as_it_ran = carry_over_promises(world, plan).job_by_name["long"]
    assert as_it_ran == world.job_by_name["long"]


def test_a_job_that_lost_its_place_keeps_what_its_last_checkpoint_saved(tmp_path):
    found = snapshot(nodes=[node("n0", ready=False), node("n1")], jobs=[long_job()])
    with SimulatedCluster.create(tmp_path / "c.db", found) as cluster:
        plan = planned(found)
        # It still runs there, and so has all of this in its run.
        assert carry_over_promises(found, plan) == with_promises_of(found, plan.snapshot) == found
        apply(cluster, plan)
        goes_on = cluster.snapshot().job_by_name["long"]
        cluster.advance(HOUR)
        ended = dict(cluster.finished())["long"]

    assert goes_on.progress.document() == SAVED
    assert ended == NOW + timedelta(seconds=35 * 60 + recovery_seconds(Policy(), goes_on))


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(SEEDS))
def test_however_often_it_stops_a_job_runs_for_its_work_and_the_losses_that_were_priced(seed, tmp_path):
    """On nodes of one speed, in seconds; every end is foreseen to the second too."""
    draw = random.Random(f"stopped {seed}")
    speed = draw.choice((1, 0.5, 0.333))
    declared = {key: draw.randrange(900) for key in ("checkpoint_duration", "restart_duration")}
    mine = job(
        "a",
        gpus=2,
        replicas=(1, 3),
        expected_duration=draw.randrange(1, 5 * HOUR),
        gpu_models={MODEL: speed, "faster": 1},
        **(declared if draw.random() < 0.5 else {}),
    )
    policy = Policy(disruption=Disruption(checkpoint=draw.randrange(300), restart=draw.randrange(900)))
    world = snapshot(nodes=[node("n0"), node("n1")], jobs=[mine])
    ran = lost = 0
    for number in range(12):
        now = world.taken_at
        with SimulatedCluster.create(tmp_path / f"{number}.db", world) as cluster:
            one = world.job_by_name["a"]
            durations, recovery = Durations(world, policy), recovery_seconds(policy, one)
            places = placed(draw, len(one.running.replicas) if one.running else draw.choice((1, 2, 3)))
            if one.running is None:
                left = durations.seconds(one, MODEL)
                start = begin(world, "a", *places, recovery=recovery if one.progress else 0)
                cluster.begin(start, "start")
            else:
                lost += lost_seconds(policy, one, now)
                left = durations.restart_seconds_now(one, MODEL)
                if number < 10 and draw.random() < 0.5:
                    left = 0
                    cluster.begin(preempt(world, "a"), "stop")
                elif draw.random() < 0.5:
                    cluster.begin(migrate(world, "a", *places, recovery=recovery), "move")
                else:
                    cluster.begin(resized(draw, world, recovery), "resize")
            # At last it is left alone.
            cluster.advance(draw.choice((0, 1, 100, 1000, 5000, 20_000)) if number < 10 else 100 * HOUR)
            world = cluster.snapshot()
            if "a" not in world.job_by_name:
                assert cluster.finished() == (("a", now + timedelta(seconds=left)),)
                ran += left
                break
            if left:
                ran += int((world.taken_at - now).total_seconds())
                world = checkpointed(draw, world)
    work = -(-mine.expected_duration * 1000 // mine.speed_milli(MODEL))
    assert ran == work + lost


def placed(draw, count):
    """Places of some replicas of two GPUs, all on one node."""
    name, gpus = draw.choice(("n0", "n1")), draw.sample(range(8), 2 * count)
    return [replica(name, gpus=gpus[2 * index : 2 * index + 2]) for index in range(count)]


def resized(draw, world, recovery):
    """A change of the size of the running job by one replica."""
    replicas = world.job_by_name["a"].running.replicas
    if len(replicas) == 3 or (len(replicas) == 2 and draw.random() < 0.5):
        return shrink(world, "a", *replicas[1:], interruption=recovery)
    taken = {gpu.index for each in replicas for gpu in each.gpus}
    free = [gpu for gpu in range(8) if gpu not in taken]
    return grow(world, "a", replica(replicas[0].node, gpus=draw.sample(free, 2)), interruption=recovery)


def checkpointed(draw, world):
    """The world, in which the running job may have saved its state at some time."""
    one = world.job_by_name["a"]
    works = one.running.resumed_at or one.running.started_at
    worked = int((world.taken_at - works).total_seconds())
    if worked <= 0 or draw.random() < 0.3:
        return world
    saved_at = works + timedelta(seconds=draw.randrange(worked + 1))
    running = one.running.model_copy(update={"last_checkpoint_at": saved_at})
    return world.model_copy(update={"jobs": (one.model_copy(update={"running": running}),)})
