"""Plans applied on a cluster that chooses GPUs itself: other indices are neither drift nor in the way."""

from __future__ import annotations

import random
from collections import Counter

import pytest

from gpuplan.models.errors import PlannerError
from gpuplan.models.plan.actions import changes_of
from gpuplan.models.policy.policy import Disruption, Drift
from gpuplan.models.verifier.verify import verify
from gpuplan.planner.apply.audit_log import AuditLog
from gpuplan.planner.apply.plan_view import hold_the_same_but_for_gpu_indices, with_expected_gpus
from gpuplan.planner.apply.verdict import verdict_on
from gpuplan.planner.diff.diff import diff
from gpuplan.planner.executors.simulated import SimulatedCluster
from tests.planner.plan_builder.test_shared_limits import crowded, walk
from tests.support.builders.build import by_value, job, node, placement, replica, snapshot
from tests.support.builders.solution_builders import drafted
from tests.support.doubles.choosy_cluster import ChoosyCluster
from tests.support.samples.apply_world import carry_out, stop_after
from tests.support.seeds import EVERY_SEED

RUNS = 60 if EVERY_SEED else 10


def unpinned(world):
    nodes = tuple(
        each.model_copy(update={"gpus": each.gpus.model_copy(update={"pinned": False})})
        for each in world.cluster.nodes
    )
    return world.model_copy(update={"cluster": world.cluster.model_copy(update={"nodes": nodes})}).canonical()


def assert_as_planned(live, plan):
    """Every job runs on the planned nodes with as many GPUs, and no GPU is held twice."""
    found = {placed.job: placed for placed in live.running_placements}
    assert found.keys() == {placed.job for placed in plan.placements}
    assert all(hold_the_same_but_for_gpu_indices(found[each.job], each) for each in plan.placements)
    held = Counter(
        (one.node, part.index) for each in found.values() for one in each.replicas for part in one.gpus
    )
    assert not held or max(held.values()) == 1


@pytest.mark.slow
@pytest.mark.parametrize("drift_mode", Drift)
@pytest.mark.parametrize("said_by", ["snapshot", "executor"])
def test_a_plan_leads_to_the_nodes_it_states_whatever_gpus_the_cluster_takes(tmp_path, said_by, drift_mode):
    seen = Counter()
    policy = by_value(disruption=Disruption(migrate=True, priority_gap=0, minimum_runtime=0))
    for seed in range(RUNS):
        draw = random.Random(seed)
        world = crowded(draw)
        world = unpinned(world) if said_by == "snapshot" else world
        goal = walk(draw, world)
        stopped = {each.job for each in world.running_placements} - goal.keys()
        plan = drafted(world, *goal.values(), stopped=stopped, policy=policy)
        changes = len(changes_of(plan.actions))
        # The walk may stop jobs that the rules about plans protect; such a plan says nothing here.
        if not changes or verify(world, policy, plan.placements).violations:
            continue
        with SimulatedCluster.create(tmp_path / f"{seed}.db", world) as inner:
            cluster, log = ChoosyCluster(inner, draw), AuditLog(tmp_path / f"{seed}.jsonl")
            told = {"plan": plan, "drift_mode": drift_mode}
            cut = draw.randrange(changes)
            with pytest.raises(PlannerError, match="told to stop"):
                carry_out(cluster, log, stop=stop_after(cut), **told)
            seen["cut"] += 1
            carry_out(cluster, log, resume=True, **told)
            live = inner.snapshot()

        assert_as_planned(live, plan)
        expected = {placed.job: placed for placed in plan.placements}
        seen["elsewhere"] += any(each != expected[each.job] for each in live.running_placements)
    assert seen["cut"] > RUNS // 4
    assert seen["elsewhere"] > RUNS // 5


WORLD = unpinned(
    snapshot(
        nodes=[node("n0", gpus=4), node("n1", gpus=4)],
        jobs=[job("r", gpus=2, at=[replica("n0", gpus=[0, 1])]), job("a", gpus=2), job("b", gpus=4)],
    )
)
PLAN = drafted(
    WORLD, placement("a", replica("n0", gpus=[2, 3])), placement("b", replica("n1", gpus=range(4)))
)


def seen_with(*placed):
    """The world in which these jobs run, whatever started them."""
    there = {each.job: each for each in placed}
    jobs = tuple(
        job(each.name, gpus=each.request.gpus, at=there[each.name].replicas) if each.name in there else each
        for each in WORLD.jobs
    )
    return WORLD.model_copy(update={"jobs": jobs}).canonical()


def test_a_landed_start_with_other_gpus_counts_as_done_for_diff_and_verify():
    """r was restarted on other GPUs than in the plan's snapshot, and a took those."""
    live = seen_with(placement("r", replica("n0", gpus=[2, 3])), placement("a", replica("n0", gpus=[0, 1])))

    verdict = verdict_on(PLAN, live)

    assert verdict.violations == ()
    assert verdict.actions_done == ("start/a",)
    assert diff(PLAN, live).stale == ()


def test_other_gpus_are_drift_where_they_are_pinned():
    nodes = tuple(
        each.model_copy(update={"gpus": each.gpus.model_copy(update={"pinned": True})})
        for each in WORLD.cluster.nodes
    )
    live = seen_with(placement("r", replica("n0", gpus=[2, 3])))
    live = live.model_copy(update={"cluster": live.cluster.model_copy(update={"nodes": nodes})})
    pinned = WORLD.model_copy(update={"cluster": live.cluster})
    plan = drafted(pinned, placement("a", replica("n0", gpus=[2, 3])))

    assert diff(plan, live).stale
    assert with_expected_gpus(live, plan) is live
