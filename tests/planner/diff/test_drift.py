"""Drift: what has changed in the cluster since a plan was made, told thing by thing."""

from __future__ import annotations

from datetime import timedelta

import pytest

from gpuplan.models.cluster import Gpu
from gpuplan.models.placement import Running
from gpuplan.models.policy.policy import Drift
from gpuplan.planner.diff.drift import drift
from tests.support.builders.build import NOW, cluster, job, node, placement, queue, replica, snapshot
from tests.support.builders.plan_builders import plan_of

ON_N0 = placement("a", replica("n0", gpus=[0, 1], cpus=4))
ON_N1 = placement("b", replica("n1", gpus=[0, 1]))
RUNS = job("runs", gpus=2, at=[replica("n0", gpus=[6, 7])])
FAR = job("far", gpus=2, at=[replica("n2", gpus=[6, 7])])
JOBS = (job("a", gpus=2, cpus=4), job("b", gpus=2), RUNS, FAR)


def world(*, nodes=None, jobs=JOBS, **more):
    return snapshot(nodes=cluster(3, rack="r1") if nodes is None else nodes, jobs=jobs, **more)


PLAN = plan_of(world(), ON_N0, ON_N1)


def found(live, *, done=(), mode=Drift.STRICT):
    return [str(item) for item in drift(PLAN, live, done=done, mode=mode)]


def jobs_with(**changed):
    """The jobs, some of them changed or (None) gone."""
    jobs = [changed.get(job_.name, job_) for job_ in JOBS]
    return [job_ for job_ in jobs if job_ is not None]


def nodes_with(changed):
    return [changed if node_.name == changed.name else node_ for node_ in cluster(3, rack="r1")]


def running(name, *replicas):
    waiting = next(job_ for job_ in JOBS if job_.name == name)
    return waiting.model_copy(update={"running": Running(started_at=NOW, replicas=replicas)})


@pytest.mark.parametrize("mode", list(Drift))
def test_an_unchanged_cluster_has_no_drift(mode):
    assert found(world(), mode=mode) == []


def test_time_passing_is_no_drift():
    assert found(world(taken_at=NOW + timedelta(days=1))) == []


def test_what_the_plan_does_not_touch_may_change():
    live = world(
        nodes=nodes_with(node("n2", gpus=4, rack="r1")),
        jobs=[*jobs_with(far=None), job("new", gpus=8)],
        queues=[queue("q", nominal=3)],
    )

    assert found(live) == []


STRICT = [
    (
        world(nodes=nodes_with(node("n0", gpus=1, rack="r1", cpus=96, memory_gib=512))),
        "node n0 lost 7 GPUs: expected 8, found 1",
    ),
    (
        world(nodes=nodes_with(node("n0", gpus=9, rack="r1", cpus=96, memory_gib=512))),
        "node n0 gained 1 GPU:",
    ),
    (
        world(nodes=cluster(3, rack="r1")[1:]),
        "node n0 is gone: expected a node that is ready, found no such node",
    ),
    (
        world(nodes=nodes_with(node("n0", rack="r1", cordoned=True))),
        "node n0 was cordoned: expected not cordoned",
    ),
    (
        world(nodes=nodes_with(node("n0", rack="r1", ready=False))),
        "node n0 is down: expected ready, found not ready",
    ),
    (world(nodes=nodes_with(node("n0", rack="r2"))), 'node n0 changed in rack: expected "r1", found "r2"'),
    (world(jobs=jobs_with(a=None)), "job a is gone: expected a waiting job, found no such job"),
    (
        world(jobs=jobs_with(a=job("a", gpus=2, cpus=4, priority=3))),
        "job a changed in priority: expected the default, found 3",
    ),
    (
        world(jobs=jobs_with(a=job("a", gpus=2, cpus=4, held=True))),
        "job a changed in held: expected the default, found true",
    ),
    (
        world(jobs=jobs_with(a=running("a", replica("n2", gpus=[0, 1], cpus=4)))),
        "job a is already running: expected waiting, found running on n2 since 2026-11-20T12:00:00Z",
    ),
    (
        world(jobs=jobs_with(a=running("a", *ON_N0.replicas))),
        "job a is already running: expected waiting, found running on n0 since 2026-11-20T12:00:00Z",
    ),
    (
        world(jobs=jobs_with(runs=None)),
        "job runs no longer runs on n0: expected running there, found no such job",
    ),
    (
        world(jobs=jobs_with(runs=job("runs", gpus=2))),
        "job runs no longer runs on n0: expected running there, found waiting",
    ),
    (
        world(jobs=jobs_with(runs=running("runs", replica("n2", gpus=[0, 1])))),
        "job runs no longer runs on n0: expected running there, found running elsewhere",
    ),
    (
        world(jobs=jobs_with(runs=running("runs", replica("n0", gpus=[5, 6])))),
        "job runs holds something else on n0: expected [",
    ),
    (
        world(jobs=[*JOBS, job("new", gpus=2, at=[replica("n0", gpus=[4]), replica("n1", gpus=[4])])]),
        "job new now runs on n0, n1: expected not running there, found running there",
    ),
]


@pytest.mark.parametrize(("live", "expected"), STRICT)
def test_strict_tells_each_change_of_what_the_plan_touches(live, expected):
    (item,) = found(live)

    assert item.startswith(expected)


def test_strict_tells_unhealthy_gpus():
    eight = node("n0", rack="r1")
    sick = eight.gpus.model_copy(
        update={"details": (Gpu(index=5, healthy=False), Gpu(index=2, healthy=False))}
    )
    live = world(nodes=nodes_with(eight.model_copy(update={"gpus": sick})))

    assert found(live) == ["node n0 has unhealthy GPUs (2, 5): expected all of them healthy, found unhealthy"]


def test_strict_allows_a_job_restarted_in_its_place():
    assert found(world(jobs=jobs_with(runs=running("runs", *RUNS.running.replicas)))) == []


def test_all_changes_are_told_sorted():
    live = world(nodes=cluster(3, rack="r2"), jobs=jobs_with(runs=None, b=None))

    assert [item.split(":")[0] for item in found(live)] == [
        "job b is gone",
        "job runs no longer runs on n0",
        "node n0 changed in rack",
        "node n1 changed in rack",
    ]


def test_done_actions_are_expected_to_have_happened():
    live = world(jobs=jobs_with(a=running("a", *ON_N0.replicas)))

    assert found(live, done={"a1"}) == []
    assert found(live) != []


@pytest.mark.parametrize(
    ("gpus", "cpus", "expected"),
    [([0, 1], 4, []), ([0, 1], 6, []), ([2, 3], 4, ["job a"]), ([0, 1, 2], 4, ["job a"])],
)
def test_what_a_cluster_rounds_up_for_a_job_of_the_plan_is_no_drift(gpus, cpus, expected):
    both = plan_of(world(), ON_N0, placement("b", replica("n0", gpus=[4, 5])))
    live = world(jobs=jobs_with(a=running("a", replica("n0", gpus=gpus, cpus=cpus))))

    assert [item.subject for item in drift(both, live, done={"a1"}, mode=Drift.STRICT)] == expected


def test_what_only_done_actions_touched_may_change():
    assert found(world(nodes=nodes_with(node("n0", gpus=1)), jobs=jobs_with(a=None)), done={"a1"}) == []


PRECONDITIONS = [
    (world(jobs=jobs_with(a=None)), "job a is gone"),
    (world(jobs=jobs_with(a=running("a", replica("n2", gpus=[0, 1], cpus=4)))), "job a is already running"),
    (
        world(jobs=jobs_with(a=job("a", gpus=2, cpus=4, priority=3))),
        "job a was changed: expected description",
    ),
    (world(nodes=cluster(3)[1:]), "node n0 is gone"),
    (world(nodes=nodes_with(node("n0", cordoned=True))), "node n0 was cordoned"),
    (
        world(jobs=[*JOBS, job("new", gpus=1, at=[replica("n0", gpus=[1])])]),
        "node n0 has too little free: expected 1 of GPU 1, found 0 of GPU 1",
    ),
    (
        world(jobs=[*JOBS, job("new", milli=300, at=[replica("n0", gpus=[0], milli=300)])]),
        "node n0 has too little free: expected 1 of GPU 0, found 0.7 of GPU 0",
    ),
    (
        world(nodes=nodes_with(node("n0", cpus=3, rack="r1"))),
        "node n0 has too little free: expected 4 CPUs, found 3 CPUs",
    ),
]


@pytest.mark.parametrize(("live", "expected"), PRECONDITIONS)
def test_preconditions_tell_each_that_does_not_hold(live, expected):
    (item,) = found(live, mode=Drift.PRECONDITIONS)

    assert item.startswith(expected)


def test_preconditions_allow_all_else_to_change():
    live = world(
        nodes=nodes_with(node("n0", rack="r9")),
        jobs=[*jobs_with(runs=None), job("new", gpus=1, at=[replica("n0", gpus=[4])])],
    )

    assert found(live, mode=Drift.PRECONDITIONS) == []


@pytest.mark.parametrize("mode", list(Drift))
def test_actions_that_need_the_same_gpu_are_found_out_before_any_is_done(mode):
    plan = plan_of(world(), ON_N0, placement("b", replica("n0", gpus=[1, 2])))

    (item,) = drift(plan, world(), done=(), mode=mode)

    assert str(item) == "node n0 has too little free: expected 1 of GPU 1, found 0 of GPU 1"
