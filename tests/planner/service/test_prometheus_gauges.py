"""A cluster in figures, by hand and against the formulas."""

from __future__ import annotations

from datetime import timedelta

import pytest

from gpuplan.models.cluster import Gpu
from gpuplan.planner.epoch import plan_epoch
from gpuplan.planner.service.prometheus import NOT_APPLIED, epoch_gauges
from tests.support.builders.build import job, node, placement, queue, replica, snapshot
from tests.support.builders.solution_builders import drafted
from tests.support.samples.sample_plans import busy_plan
from tests.support.strategies.instances import everything

HOUR = timedelta(hours=1)


def test_gpus_by_state_add_up_to_all_of_them():
    nodes = [
        node("used", gpus=8, details=[Gpu(index=7, healthy=False)]),
        node("down", gpus=4, ready=False),
        node("closed", gpus=2, cordoned=True),
        node("no-cpu", gpus=2, cpus=4),
        node("other", gpus=1, model="T4"),
    ]
    jobs = [
        job("a", gpus=3, at=[replica("used", gpus=range(3))]),
        job("cpu", cpus=4, at=[replica("no-cpu", cpus=4)]),
        job("half", milli=500, at=[replica("other", gpus=[0], milli=500)]),
    ]

    gpus = epoch_gauges(drafted(snapshot(nodes=nodes, jobs=jobs)), applied=True).gpus

    states = {state: gpus[state, "H100-80GB"] for state in ("total", "used", "idle", "stranded", "unhealthy")}
    assert states == {"total": 16, "used": 3, "idle": 4, "stranded": 4, "unhealthy": 5}
    assert (gpus["used", "T4"], gpus["idle", "T4"]) == (0.5, 0.5)


@pytest.mark.parametrize("seed", range(8))
def test_in_every_world_states_add_up_and_every_waiting_job_is_pending_once(seed):
    given_ = everything(seed)
    plan = plan_epoch(
        given_.snapshot,
        given_.policy.model_copy(update={"solvers": ()}),
        seed=0,
        created_at=given_.snapshot.taken_at,
    )
    for applied in (False, True):
        figures = epoch_gauges(plan, applied=applied)
        for model in {model for _, model in figures.gpus}:
            parts = [figures.gpus[state, model] for state in ("used", "idle", "stranded", "unhealthy")]
            assert sum(parts) == pytest.approx(figures.gpus["total", model])
            assert min(parts) >= -1e-9
        jobs = plan.snapshot.jobs
        waiting = plan.metrics.jobs.waiting if applied else sum(job.running is None for job in jobs)
        assert sum(figures.pending.values()) == waiting
        assert figures.running + waiting == len(jobs)
        assert all(share >= 0 for share in figures.dominant_share.values())


def test_a_job_started_by_the_plan_is_pending_until_it_is_applied():
    world = snapshot(jobs=[job("a", gpus=1, waited=HOUR), job("b", gpus=1, held=True, waited=HOUR)])
    plan = drafted(world, placement("a", replica(gpus=[0])))

    before, after = epoch_gauges(plan, applied=False), epoch_gauges(plan, applied=True)

    assert before.pending == {("q", NOT_APPLIED): 1, ("q", "Held"): 1}
    assert after.pending == {("q", "Held"): 1}
    assert (before.running, after.running) == (0, 1)
    assert (before.long_pending, after.long_pending) == ({"q": 1}, {"q": 0})


def test_a_job_stopped_by_the_plan_runs_until_it_is_applied():
    plan = busy_plan()
    running = sum(each.running is not None for each in plan.snapshot.jobs)

    before = epoch_gauges(plan, applied=False)

    assert before.running == running
    assert sum(before.pending.values()) == len(plan.snapshot.jobs) - running


def test_half_an_hour_is_not_long_yet():
    jobs = [
        job("a", gpus=99, waited=timedelta(minutes=30)),
        job("b", gpus=99, waited=timedelta(minutes=30, seconds=1)),
    ]

    assert epoch_gauges(drafted(snapshot(jobs=jobs)), applied=True).long_pending == {"q": 1}


def test_quota_usage_counts_what_is_below():
    queues = [
        queue("all"),
        queue("a", parent="all", nominal=2),
        queue("b", parent="all", nominal=4),
        queue("free"),
    ]
    jobs = [
        job("x", gpus=3, queue="a", at=[replica("n0", gpus=range(3))]),
        job("y", gpus=1, queue="free", at=[replica("n1", gpus=[0])]),
    ]

    usage = epoch_gauges(drafted(snapshot(jobs=jobs, queues=queues)), applied=True).quota_usage

    assert usage == {"all": 0.5, "a": 1.5, "b": 0.0}


def test_the_dominant_share_is_the_largest_of_gpus_cpus_and_memory():
    jobs = [
        job("x", gpus=2, queue="a", at=[replica("n0", gpus=range(2))]),
        job("y", cpus=48, queue="b", at=[replica("n1", cpus=48)]),
        job("z", memory_gib=512, queue="c", at=[replica("n1", memory_gib=512)]),
    ]
    world = snapshot(jobs=jobs, queues=[queue("a"), queue("b"), queue("c")])

    assert epoch_gauges(drafted(world), applied=True).dominant_share == {"a": 0.125, "b": 0.25, "c": 0.5}


def test_fragmentation_is_told_by_size():
    world = snapshot(jobs=[job("x", gpus=5, at=[replica("n0", gpus=range(5))])], nodes=[node("n0")])

    fragmentation = epoch_gauges(drafted(world), applied=True).fragmentation

    assert fragmentation == {1: 0.0, 2: pytest.approx(1 / 3, abs=1e-6), 4: 1.0, 8: 1.0}
