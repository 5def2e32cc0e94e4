"""What the rules of health find, and what they exclude."""

from __future__ import annotations

from datetime import timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpuplan.models.cluster import Gpu
from gpuplan.models.health.findings import health_findings, with_exclusions
from gpuplan.models.health.measurement import FATAL_XIDS, HealthAction, HealthPolicy, Measurement
from gpuplan.models.placement import Running
from gpuplan.planner.epoch import plan_epoch
from gpuplan.planner.plan_file.plan_file import load_plan, save_plan
from tests.support.builders.build import NOW, by_value, job, layout, node, replica, snapshot
from tests.support.output.golden import figures

WARN, EXCLUDE, IGNORE = HealthAction.WARN, HealthAction.EXCLUDE, HealthAction.IGNORE


def seen(index=0, *, on="n0", period=3600, **more):
    return Measurement(node=on, index=index, period=period, **more)


def rules(**sections):
    return HealthPolicy.model_validate(sections)


def told(*measured, jobs=(), nodes=None, **sections):
    """(GPU, action) of each finding."""
    world = snapshot(nodes=nodes or [node()], jobs=jobs, measured=measured)
    return [(each.index, each.action) for each in health_findings(world, rules(**sections))]


def held_for(minutes, name="a", **more):
    """A job that has held GPU 0 for so many minutes."""
    running = Running(started_at=NOW - timedelta(minutes=minutes), replicas=[replica("n0", gpus=(0,))])
    return job(name, gpus=1, running=running, **more)


@pytest.mark.parametrize(
    ("hot", "found"),
    [({85: 600}, [WARN]), ({85: 599}, []), ({84: 3600, 85: 599}, []), ({85: 900, 97: 60}, [WARN]), ({}, [])],
)
def test_a_gpu_is_hot_at_the_limit_for_the_time(hot, found):
    assert [action for _, action in told(seen(hot=hot))] == found


def test_a_finding_tells_what_was_measured_and_the_fault_tells_the_rule():
    world = snapshot(nodes=[node()], measured=[seen(3, temperature=98, hot={97: 60, 91: 1200, 86: 1800})])
    (found,) = health_findings(world, rules(heat={"celsius": 90, "for": "5m", "action": "exclude"}))

    assert figures(str(found)) == "3 n0 91 20m 98"
    assert figures(found.fault) == "90 5m"


@pytest.mark.parametrize(
    ("idle", "minutes", "found"),
    [
        ({0: 1800}, 60, [WARN]),
        ({0: 1799}, 60, []),
        ({0: 3600}, 29, []),
        ({1: 3600}, 60, []),
        ({0: 3600}, 30, [WARN]),
    ],
)
def test_a_gpu_is_idle_while_a_job_has_held_it_for_the_time(idle, minutes, found):
    assert [action for _, action in told(seen(idle=idle), jobs=[held_for(minutes)])] == found


def test_an_idle_gpu_without_a_job_is_free():
    assert told(seen(idle={0: 36_000})) == []


def test_a_job_that_has_just_come_to_a_shared_gpu_may_still_start_to_work():
    shares = [
        job(name, milli=500, running={"started_at": NOW - timedelta(minutes=age), "replicas": [half]})
        for half in [replica("n0", gpus=(0,), milli=500)]
        for name, age in (("old", 60), ("young", 5))
    ]

    assert told(seen(idle={0: 3600}), jobs=shares[:1]) == [(0, WARN)]
    assert told(seen(idle={0: 3600}), jobs=shares) == []


def test_a_job_that_resumed_has_held_its_gpu_since_then():
    running = {"started_at": NOW - timedelta(hours=5), "replicas": [replica("n0", gpus=(0,))]}
    resumed = job("a", gpus=1, running=running | {"resumed_at": NOW - timedelta(minutes=5)})

    assert told(seen(idle={0: 3600}), jobs=[resumed]) == []
    assert told(seen(idle={0: 3600}), jobs=[job("a", gpus=1, running=running)]) == [(0, WARN)]


def test_mig_instances_tell_no_utilization_of_their_own():
    sliced = job("a", mig={"3g.40gb": 1}, at=[replica("n0", mig=[(0, "3g.40gb", 0)])])
    nodes = [node(details=[Gpu(index=0, mig=layout(("3g.40gb", 0)))])]

    assert told(seen(idle={0: 3600}), jobs=[sliced], nodes=nodes) == []


@pytest.mark.parametrize("code", sorted(FATAL_XIDS))
def test_a_fatal_xid_excludes_its_gpu_however_old_it_is(code):
    assert told(seen(xids={code: 3600})) == [(0, EXCLUDE)]


def test_another_xid_is_told_while_it_is_new():
    assert told(seen(0, xids={13: 60}), seen(1, xids={31: 3600}), seen(2, period=0, xids={43: 0})) == [
        (0, WARN),
        (2, WARN),
    ]


def test_the_policy_says_what_follows_from_an_xid():
    both = (seen(0, xids={13: 3600}), seen(1, xids={79: 60}), seen(2, xids={79: 3600}))

    assert told(*both, xids={13: "exclude", 79: "warn"}) == [(0, EXCLUDE), (1, WARN)]
    assert told(*both, xids={79: "ignore"}) == []


def test_errors_of_the_memory_exclude_unless_the_policy_says_otherwise():
    faulty = (seen(0, uncorrectable=2), seen(1, row_remap="pending"), seen(2, row_remap="failed"))

    assert told(*faulty) == [(0, EXCLUDE), (1, EXCLUDE), (2, EXCLUDE)]
    assert told(*faulty, uncorrectable="ignore", row_remap="warn") == [(1, WARN), (2, WARN)]


def test_what_is_measured_of_no_gpu_finds_nothing():
    assert told(seen(8, uncorrectable=1), seen(0, on="gone", uncorrectable=1)) == []


def test_excluded_gpus_are_unhealthy_once():
    smoke = Gpu(index=2, healthy=False, fault="smoke")
    world = snapshot(
        nodes=[node(details=[smoke]), node("n1")],
        measured=[seen(1, uncorrectable=1, xids={79: 5}), seen(2, uncorrectable=1), seen(3, hot={99: 900})],
    )
    found = with_exclusions(world, rules())

    gpus = found.cluster.node_by_name["n0"].gpus.by_index
    assert [index for index, gpu in gpus.items() if not gpu.healthy] == [1, 2]
    assert gpus[2] == smoke
    assert figures(gpus[1].fault) == "79"
    assert found.cluster.node_by_name["n1"] is world.cluster.node_by_name["n1"]
    assert with_exclusions(found, rules()) is found
    assert with_exclusions(world, rules(uncorrectable="warn", xids={79: "warn"})) is world


MEASURED = st.builds(
    seen,
    st.integers(0, 3),
    on=st.sampled_from(["n0", "n1"]),
    hot=st.sampled_from([{}, {90: 1200}, {86: 60}]),
    idle=st.sampled_from([{}, {0: 3600}]),
    xids=st.sampled_from([{}, {13: 10}, {79: 3600}]),
    uncorrectable=st.integers(0, 1),
)


@pytest.mark.slow
@given(
    st.lists(MEASURED, max_size=6, unique_by=lambda each: (each.node, each.index)),
    st.sampled_from(list(HealthAction)),
    st.sampled_from(list(HealthAction)),
    st.booleans(),
)
def test_no_plan_gives_a_job_a_gpu_that_the_policy_excludes(measured, heat, idle, movable):
    jobs = [
        job("runs", gpus=2, at=[replica("n0", gpus=(0, 1))], preemptible=movable),
        *(job(f"w{number}", gpus=1 + number % 2) for number in range(6)),
    ]
    world = snapshot(nodes=[node("n0", gpus=4), node("n1", gpus=4)], jobs=jobs, measured=measured)
    policy = by_value(solvers=(), health=rules(heat={"action": heat}, idle={"action": idle}))

    plan = plan_epoch(world, policy, seed=0, created_at=NOW)

    out = {(e.node, e.index) for e in health_findings(world, policy.health) if e.action is EXCLUDE}
    held = {
        (each.node, part.index): placed.job
        for placed in plan.placements
        for each in placed.replicas
        for part in each.gpus
    }
    assert {job_ for place, job_ in held.items() if place in out} <= (set() if movable else {"runs"})
    there = {(n.name, g.index) for n in plan.snapshot.cluster.nodes for g in n.gpus.details if not g.healthy}
    assert there == out


def test_a_plan_file_keeps_measurements_and_rules(tmp_path):
    world = snapshot(nodes=[node()], jobs=[job("a", gpus=1)], measured=[seen(0, hot={91: 900})])
    policy = by_value(solvers=(), health=rules(heat={"action": "exclude", "for": "15m"}))
    plan = plan_epoch(world, policy, seed=0, created_at=NOW)
    save_plan(plan, tmp_path / "p.json")

    again = load_plan(tmp_path / "p.json")

    assert again.policy.health == policy.health
    assert health_findings(again.snapshot, again.policy.health) == health_findings(world, policy.health)
