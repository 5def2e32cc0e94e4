"""Plans from merged snapshots are applied to clusters that do not tell what the hosts told."""

from __future__ import annotations

from datetime import timedelta

import pytest

from gpuplan.models.cluster import Gpu, MigInstance
from gpuplan.models.health.measurement import HealthPolicy, Measurement
from gpuplan.models.policy.policy import Drift
from gpuplan.models.queue import FOREIGN_QUEUE, Queue
from gpuplan.planner.apply.plan_view import with_host_facts_of, with_untold
from gpuplan.planner.apply.verdict import verdict_on
from gpuplan.planner.diff.drift import drift
from gpuplan.planner.epoch import plan_epoch
from tests.support.builders.build import (
    NOW,
    by_value,
    cluster,
    job,
    node,
    placement,
    queue,
    replica,
    snapshot,
)
from tests.support.builders.plan_builders import plan_of

JOBS = (job("runs", gpus=2, at=[replica("n0", gpus=[0, 1])]), job("a", gpus=6), job("b", gpus=3))
LIVE = snapshot(nodes=cluster(2, gpu_memory_mib=0), jobs=JOBS)


def told(faulty=(), mig=None, **more):
    """Details as a host tells them."""
    return tuple(
        Gpu(
            index=index,
            uuid=f"GPU-{index}",
            healthy=index not in faulty,
            fault="XID 79" if index in faulty else "",
            mig=(mig or {}).get(index),
            numa=index // 4,
            **more,
        )
        for index in range(8)
    )


def merged(**more):
    """The cluster with facts of host n0, and a process there."""
    foreign = job("n0/pid-7", queue=FOREIGN_QUEUE, gpus=1, at=[replica("n0", gpus=[2])], preemptible=False)
    first = node("n0", details=told(**more), nvlink_island="c.1")
    return snapshot(
        nodes=[first, node("n1", gpu_memory_mib=0)],
        jobs=[*JOBS, foreign],
        queues=[queue(), Queue(name=FOREIGN_QUEUE)],
    )


def test_a_cluster_gets_the_facts_that_it_does_not_tell():
    base = merged(faulty={5})

    assert with_host_facts_of(LIVE, base) == base
    assert with_host_facts_of(base, base) is base
    assert with_host_facts_of(LIVE, LIVE) is LIVE


@pytest.mark.parametrize("mode", list(Drift))
def test_a_plan_from_a_merged_snapshot_is_not_stale_for_a_cluster_that_tells_less(mode):
    base = merged(faulty={5})
    plan = plan_of(base, placement("b", replica("n0", gpus=[3, 4, 6])))

    assert drift(plan, with_untold(LIVE, plan), done=(), mode=mode) == ()
    assert bool(drift(plan, LIVE, done=(), mode=mode)) == (mode is Drift.STRICT)
    assert not verdict_on(plan, LIVE).violations


def test_what_has_changed_is_still_told():
    base = merged(faulty={5})
    plan = plan_of(base, placement("b", replica("n0", gpus=[3, 4, 6])))
    other = job("other", gpus=1, at=[replica("n0", gpus=[3])])
    live = with_untold(snapshot(nodes=cluster(2, gpu_memory_mib=0), jobs=[*JOBS, other]), plan)

    assert "job other now runs" in str(drift(plan, live, done=(), mode=Drift.STRICT)[0])


def test_a_job_on_a_gpu_that_its_host_calls_faulty_is_released_on_a_cluster_that_does_not_know():
    base = merged(faulty={0})
    plan = plan_epoch(base, by_value(solvers=()), seed=0, created_at=NOW)

    assert [each.job for each in plan.findings] == ["runs"]
    assert "release" in {action.type for action in plan.actions}
    for mode in Drift:
        for minutes in (0, 5):  # the job works on
            live = LIVE.model_copy(update={"taken_at": NOW + timedelta(minutes=minutes)})
            assert drift(plan, with_untold(live, plan), done=(), mode=mode) == ()


def test_a_node_with_other_gpus_than_its_host_told_stays_as_it_is():
    live = snapshot(nodes=cluster(2, gpus=4, gpu_memory_mib=0))

    assert with_host_facts_of(live, merged()).cluster == live.cluster


def test_a_closed_node_of_which_the_cluster_understands_no_gpus_gets_them():
    layout = {1: (MigInstance(profile="3g.40gb", start=4),)}
    blind = node("n0", gpus=0, cordoned=True)
    live = snapshot(nodes=[blind, node("n1", gpu_memory_mib=0)], jobs=JOBS[1:])

    (found, _) = with_host_facts_of(live, merged(mig=layout)).cluster.nodes

    assert (found.gpus.by_index[1].mig, found.cordoned) == (layout[1], True)
    assert with_host_facts_of(snapshot(nodes=[node("n0", gpus=0)]), merged()).cluster.nodes[0].gpus is None


EXCLUDING = HealthPolicy.model_validate({"idle": {"action": "exclude"}, "heat": {"action": "exclude"}})


@pytest.mark.parametrize("mode", list(Drift))
@pytest.mark.parametrize("uuids", [True, False])
def test_gpus_that_the_policy_excludes_are_so_for_a_cluster_that_does_not_measure(mode, uuids):
    seen = [
        Measurement(node="n0", index=0, period=3600, idle={0: 3600}),
        Measurement(node="n1", index=4, period=3600, hot={99: 3600}),
    ]
    nodes = [node("n0", details=told()), node("n1")] if uuids else cluster(2)
    live = snapshot(nodes=nodes, jobs=JOBS)
    policy = by_value(solvers=(), health=EXCLUDING)
    plan = plan_epoch(live.model_copy(update={"measured": tuple(seen)}), policy, seed=0, created_at=NOW)

    assert [each.job for each in plan.findings] == ["runs"]
    assert drift(plan, with_untold(live, plan), done=(), mode=mode) == ()
    assert not verdict_on(plan, live).violations
    release = next(each for each in plan.actions if each.type == "release")
    after = live.model_copy(
        update={"jobs": tuple(plan.snapshot.job_by_name[each.name] for each in live.jobs)}
    )
    assert drift(plan, with_untold(after, plan), done=(release.id,), mode=mode) == ()


def test_a_plan_that_uses_a_gpu_that_is_now_excluded_is_stale():
    policy = by_value(solvers=(), health=EXCLUDING)
    plan = plan_epoch(snapshot(nodes=cluster(1), jobs=[job("a", gpus=8)]), policy, seed=0, created_at=NOW)
    seen = [Measurement(node="n0", index=4, period=3600, hot={99: 3600})]
    live = snapshot(nodes=cluster(1), jobs=[job("a", gpus=8)], measured=seen)

    for mode in Drift:
        assert drift(plan, with_untold(live, plan), done=(), mode=mode)
    assert {each.rule for each in verdict_on(plan, live).violations}


def test_a_replaced_gpu_is_not_the_one_that_was_excluded():
    seen = [Measurement(node="n0", index=4, period=3600, hot={99: 3600})]
    measured = snapshot(nodes=[node("n0", details=told())], measured=seen)
    plan = plan_epoch(measured, by_value(solvers=(), health=EXCLUDING), seed=0, created_at=NOW)
    new = [each.model_copy(update={"uuid": "GPU-new"}) if each.index == 4 else each for each in told()]

    assert (
        not with_untold(snapshot(nodes=[node("n0", details=told())]), plan)
        .cluster.nodes[0]
        .gpus.by_index[4]
        .healthy
    )
    assert (
        with_untold(snapshot(nodes=[node("n0", details=new)]), plan).cluster.nodes[0].gpus.by_index[4].healthy
    )
