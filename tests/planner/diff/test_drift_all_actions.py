"""Drift of what changes of every kind count on: jobs that run, layouts, nodes, pools."""

from __future__ import annotations

from datetime import timedelta

import pytest

from gpuplan.models.cluster import Overcommit, QosClass
from gpuplan.models.placement import Running
from gpuplan.models.policy.policy import Drift
from gpuplan.planner.apply.live_view import LiveView
from gpuplan.planner.diff.drift import drift
from gpuplan.planner.executors.simulated import SimulatedCluster
from tests.support.builders.build import NOW, job, node, replica
from tests.support.samples.all_actions import (
    CHANGES,
    CLOUD,
    MOVING,
    PLAN,
    WORLD,
    drain,
    free,
    in_pool,
    instance,
    mig_job,
    mig_replica,
    plan_with,
    pool,
    preempt,
    repartition,
    scale_up,
    with_pools,
)


def found(live, *, plan=PLAN, done=(), mode=Drift.STRICT):
    return [str(item) for item in drift(plan, live, done=done, mode=mode)]


def with_jobs(*added, **changed):
    """The world with some jobs changed, gone (None) or new."""
    jobs = [changed.get(job_.name, job_) for job_ in WORLD.jobs]
    return WORLD.model_copy(update={"jobs": (*filter(None, jobs), *added)})


def with_nodes(*changed, gone=()):
    """The world with some nodes changed, new or gone."""
    nodes = {**WORLD.cluster.node_by_name, **{node_.name: node_ for node_ in changed}}
    left = tuple(node_ for name, node_ in nodes.items() if name not in gone)
    return WORLD.model_copy(update={"cluster": WORLD.cluster.model_copy(update={"nodes": left})})


def here(name, **update):
    """A node of the world with fields changed."""
    return WORLD.cluster.node_by_name[name].model_copy(update=update)


def known(name, **update):
    """A job of the world with fields changed."""
    return WORLD.job_by_name[name].model_copy(update=update)


def running(name, *replicas, since=timedelta(hours=1)):
    return known(name, running=Running(started_at=NOW - since, replicas=replicas))


def laid_out(*layout):
    """The node mig0 with a layout of (profile, start) on its GPU."""
    gpus = here("mig0").gpus
    gpu = gpus.details[0].model_copy(update={"mig": tuple(instance(*there) for there in layout)})
    return here("mig0", gpus=gpus.model_copy(update={"details": (gpu,)}))


@pytest.mark.parametrize("mode", list(Drift))
def test_at_no_moment_of_its_own_apply_a_plan_has_drifted(tmp_path, mode):
    done = []
    with SimulatedCluster.create(tmp_path / "c.db", WORLD) as live:
        for change in CHANGES:
            assert found(live.snapshot(), done=done, mode=mode) == []
            live.begin(change, change.id)
            done.append(change.id)
            live.advance(60)
        assert found(live.snapshot(), done=done, mode=mode) == []


def test_what_the_plan_does_not_touch_may_change():
    untouched = with_pools(with_jobs(job("new", gpus=8)), CLOUD, pool("spare"))

    assert found(untouched) == []


def test_a_node_that_came_up_meanwhile_has_not_drifted():
    soon = with_nodes(here("n1", ready_at=NOW + timedelta(minutes=1)))
    plan = plan_with(soon, *CHANGES)

    ready = WORLD.model_copy(update={"taken_at": NOW + timedelta(minutes=1)})
    assert found(ready, plan=plan) == []
    assert found(WORLD, plan=plan) == [
        'node n1 changed in ready_at: expected "2026-11-20T12:01:00Z", found the default'
    ]


BOTH = [
    (with_jobs(victim=None), "job victim is gone: expected running on n0, found no such job"),
    (
        with_jobs(victim=known("victim", running=None)),
        "job victim does not run any more: expected running on n0, found waiting",
    ),
    (
        with_jobs(victim=running("victim", replica("n9", gpus=range(4)))),
        "job victim runs elsewhere: expected running on n0, found running on n9",
    ),
    (
        with_jobs(mover=running("mover", replica("old", gpus=[6, 7]))),
        "job mover holds something else on old: expected 1 replicas with old gpu 0, old gpu 1, found",
    ),
    (
        with_jobs(thin=running("thin", replica("n1", gpus=[0]), replica("n1", gpus=[1]))),
        "job thin holds something else on n1: expected 3 replicas",
    ),
    (with_nodes(in_pool(CLOUD, "cloud-1")), "node cloud-1 is there already: expected no node of this name"),
]


@pytest.mark.parametrize("mode", list(Drift))
@pytest.mark.parametrize(("live", "expected"), BOTH)
def test_whatever_the_mode_what_is_changed_must_be_as_it_was(live, expected, mode):
    first, *others = found(live, mode=mode)

    assert first.startswith(expected)
    # In the preconditions mode, what was to follow may be missed too.
    assert mode is Drift.PRECONDITIONS or others == []


STRICT = [
    (with_jobs(victim=known("victim", priority=1)), "job victim changed in priority: expected the default"),
    (
        with_jobs(victim=running("victim", replica("n0", gpus=range(4)), since=timedelta(minutes=1))),
        "job victim changed in running",
    ),
    (with_jobs(job("new", at=[replica("old")])), "job new now runs on old"),
    (with_jobs(job("new", at=[replica("leaving")])), "job new now runs on leaving"),
    (with_jobs(serving=None), "job serving no longer runs on mig0"),
    (with_nodes(here("old", cordoned=True)), "node old was cordoned"),
    (with_nodes(here("leaving", drain=False)), "node leaving changed in drain"),
    (with_nodes(here("n1", drain=True)), "node n1 is to be drained: expected nothing to drain it, found"),
    (with_nodes(laid_out(("3g.40gb", 0))), "node mig0 changed in gpus"),
    (with_pools(WORLD, pool("cloud", most=5)), "pool cloud changed in max: expected 2, found 5"),
    (with_pools(WORLD), "pool cloud is gone: expected a pool, found no such pool"),
]


@pytest.mark.parametrize(("live", "expected"), STRICT)
def test_strict_tells_each_change_of_what_the_plan_touches(live, expected):
    (item,) = found(live)

    assert item.startswith(expected)


def test_a_pool_that_was_not_there_is_told():
    plan = plan_with(with_pools(WORLD), *CHANGES)

    assert found(WORLD, plan=plan) == [
        "pool cloud is new: expected no such pool when the plan was made, found a pool"
    ]


PRECONDITIONS = [
    (with_jobs(victim=known("victim", priority=1)), "job victim was changed: expected description"),
    (with_jobs(job("new", at=[replica("old")])), "node old is in use: expected no job running, found new"),
    (with_nodes(gone=["leaving"]), "node leaving is gone: expected a node, found no such node"),
    (
        with_nodes(laid_out(("3g.40gb", 0), ("1g.10gb", 4))),
        "node mig0 gpu 0 has another MIG layout: expected 3g.40gb at 0, 3g.40gb at 4, found 3g.40gb at 0",
    ),
    (
        with_jobs(mig_job("new", g3_40=1, at=[mig_replica("mig0", "3g.40gb", 4)])),
        "node mig0 gpu 0 is in use: expected 3g.40gb at 4 idle, found 3g.40gb at 4 in use",
    ),
    (with_nodes(here("n1", drain=True)), "node n1 is to be drained"),
]


@pytest.mark.parametrize(("live", "expected"), PRECONDITIONS)
def test_preconditions_tell_what_does_not_hold(live, expected):
    assert any(item.startswith(expected) for item in found(live, mode=Drift.PRECONDITIONS))


def test_preconditions_allow_all_else_to_change():
    live = with_jobs(job("new", at=[replica("n1", gpus=[7])]), serving=None)

    assert found(live, mode=Drift.PRECONDITIONS) == []


@pytest.mark.parametrize(
    ("names", "fine"), [((), False), (("preempt/victim",), True), (("shrink/thin",), False)]
)
def test_what_an_earlier_action_frees_counts_as_free_once_it_is_done(names, fine):
    view = LiveView.of(WORLD)
    for change in CHANGES:
        if change.id in names:
            view.done(change)
    (start,) = (change for change in CHANGES if change.id == "start/urgent")

    assert all(sight.drift is None for sight in view.check_preconditions(start)) == fine


def test_nodes_are_there_and_gone_as_the_plan_adds_and_removes_them():
    view = LiveView.of(WORLD)
    emptied, added = drain("old"), scale_up(CLOUD, "cloud-1")
    assert str(view.check_preconditions(emptied)[0].drift).startswith(
        "node old is in use: expected no job running"
    )
    assert view.check_preconditions(added)[0].drift is None

    for change in CHANGES:
        view.done(change)

    assert (
        str(view.check_preconditions(emptied)[0].drift)
        == "node old is gone: expected a node, found no such node"
    )
    assert str(view.check_preconditions(added)[0].drift).startswith("node cloud-1 is there already")


@pytest.mark.parametrize("repartitioned", [True, False])
def test_an_instance_is_free_only_once_it_exists(repartitioned):
    view = LiveView.of(WORLD)
    if repartitioned:
        view.done(repartition(WORLD, "mig0", ("3g.40gb", 0), ("2g.20gb", 4)))
    (start,) = (change for change in CHANGES if change.id == "start/infer")

    _, sight = view.check_preconditions(start)
    assert (sight.drift is None) == repartitioned
    assert sight.text == f"node mig0 has free {int(repartitioned)} of MIG 2g.20gb of GPU 0 at 4"


def test_mig_mode_is_switched_on_only_where_no_job_holds_any_of_the_gpu():
    idle, busy = (repartition(WORLD, "n0", ("7g.80gb", 0), gpu=gpu) for gpu in (7, 3))
    view = LiveView.of(WORLD)

    assert view.check_preconditions(idle)[0].drift is None
    assert str(view.check_preconditions(busy)[0].drift).startswith(
        "node n0 gpu 3 is in use: expected the GPU idle"
    )
    view.done(preempt(WORLD, "victim"))
    assert view.check_preconditions(busy)[0].drift is None


def test_cpus_are_free_as_overcommit_counts_them():
    wide = job("wide", cpus=64, qos=QosClass.BURSTABLE, at=[replica("n0", cpus=64)])
    given = WORLD.model_copy(update={"jobs": (wide,)})
    shared = given.cluster.model_copy(update={"overcommit": {QosClass.BURSTABLE: Overcommit(cpus=2)}})
    wanted = free(replica("n0", cpus=64))
    action = preempt(given, "wide").model_copy(update={"preconditions": (wanted,)})

    counted, full = (
        LiveView.of(given.model_copy(update={"cluster": one})) for one in (shared, given.cluster)
    )
    assert counted.check_preconditions(action)[0].text == "node n0 has free 64 CPUs"
    assert counted.check_preconditions(action)[0].drift is None
    assert full.check_preconditions(action)[0].text == "node n0 has free 32 CPUs"
    assert full.check_preconditions(action)[0].drift is not None


def test_a_job_that_needs_nothing_of_what_a_node_lacks_finds_it_free():
    packed = WORLD.model_copy(update={"jobs": (job("wide", cpus=200, at=[replica("n0", cpus=200)]),)})
    action = preempt(packed, "wide").model_copy(update={"preconditions": (free(replica("n0", gpus=[0])),)})

    assert LiveView.of(packed).check_preconditions(action)[0].drift is None


def test_two_steps_on_one_gpu_are_expected_one_after_the_other():
    steps = [
        repartition(WORLD, "mig0", ("3g.40gb", 0), id_="one"),
        repartition(with_nodes(laid_out(("3g.40gb", 0))), "mig0", ("3g.40gb", 0), ("1g.10gb", 4), id_="two"),
    ]
    plan = plan_with(WORLD, *steps, policy=MOVING)

    assert found(WORLD, plan=plan) == []
    assert found(with_nodes(laid_out(("3g.40gb", 0))), plan=plan, done=["one"]) == []
    assert found(with_nodes(node("n9")), plan=plan) == []
