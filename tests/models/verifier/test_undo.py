"""What the verifier lets only a rollback do, and what it forbids even that."""

from __future__ import annotations

from datetime import timedelta

import pytest

from gpuplan.models.cluster import Cluster
from gpuplan.models.plan.action_kinds import ActionKind
from gpuplan.models.plan.solution import IdleLayout, Undo
from gpuplan.models.plan.violation import Rule
from gpuplan.models.policy.policy import Disruption, MigPolicy
from gpuplan.models.verifier.verify import verify
from tests.support.builders.build import (
    NOW,
    by_value,
    cluster,
    job,
    layout,
    node,
    placement,
    replica,
    snapshot,
)

HELD = replica("n0", gpus=range(8))


def broken(world, *placed, policy=None, **undo):
    found = verify(world, policy or by_value(), placed, undo=Undo(**undo))
    return {violation.rule for violation in found.violations}


def test_a_job_follows_one_of_higher_priority_only_if_both_are_of_the_plan_that_is_undone():
    world = snapshot(nodes=cluster(1), jobs=[job("high", gpus=8, priority=5, at=[HELD]), job("low", gpus=8)])
    low = placement("low", HELD)

    assert broken(world, low, jobs=frozenset({"high", "low"})) == set()
    assert broken(world, low) == {Rule.PREEMPTION}
    assert broken(world, low, jobs=frozenset({"high"})) == {Rule.PREEMPTION}
    assert broken(world, low, jobs=frozenset({"low"})) == {Rule.PREEMPTION}


def test_a_waiting_job_of_higher_priority_stands_back_only_if_it_is_of_that_plan():
    world = snapshot(nodes=cluster(1), jobs=[job("high", gpus=8, priority=5), job("low", gpus=8)])
    low = placement("low", HELD)

    assert broken(world, low, jobs=frozenset({"high", "low"})) == set()
    assert broken(world, low, jobs=frozenset({"low"})) == {Rule.PRIORITY}


@pytest.mark.parametrize("undone", [True, False])
def test_a_resize_is_taken_back_within_its_dwell(undone):
    grown = job("a", gpus=1, replicas=(1, 2), at=[replica("n0", gpus=[0]), replica("n0", gpus=[1])])
    resized = grown.running.model_copy(update={"resized_at": NOW - timedelta(minutes=1)})
    world = snapshot(nodes=cluster(1), jobs=[grown.model_copy(update={"running": resized})])
    jobs = frozenset({"a"}) if undone else frozenset()

    found = broken(world, placement("a", replica("n0", gpus=[0])), jobs=jobs)

    assert found == (set() if undone else {Rule.EVICTION})


@pytest.mark.parametrize("undone", [True, False])
def test_a_start_is_taken_back_within_the_minimum_runtime(undone):
    world = snapshot(nodes=cluster(1), jobs=[job("a", gpus=8, at=[HELD])])
    rules = by_value(disruption=Disruption(minimum_runtime="2h"))

    found = broken(world, policy=rules, jobs=frozenset({"a"}) if undone else frozenset())

    assert found == (set() if undone else {Rule.EVICTION})


def test_a_job_returns_to_a_node_that_is_opened():
    world = snapshot(nodes=[node("n0", cordoned=True)], jobs=[job("a", gpus=8)])

    assert broken(world, placement("a", HELD)) == {Rule.SELECTION}
    assert broken(world, placement("a", HELD), opened=("n0",)) == set()


@pytest.mark.parametrize("name", ["n0", "n9"])
def test_only_a_cordoned_node_is_opened(name):
    assert broken(snapshot(nodes=cluster(1)), opened=(name,)) == {Rule.POOLS}


def test_a_cluster_that_cannot_uncordon_opens_no_node():
    nodes = (node("n0", cordoned=True),)
    world = snapshot().model_copy(
        update={"cluster": Cluster(nodes=nodes, can=(ActionKind.RELEASE, ActionKind.START))}
    )

    assert broken(world, opened=("n0",)) == {Rule.CAPABILITY}


HALVES = (("3g.40gb", 0), ("3g.40gb", 4))


@pytest.mark.parametrize(
    ("instances", "policy", "expected"),
    [
        ((("7g.80gb", 0),), MigPolicy(), set()),
        ((("7g.80gb", 0),), MigPolicy(repartition=False), {Rule.MIG}),
        ((("3g.40gb", 2),), MigPolicy(), {Rule.MIG}),
    ],
)
def test_a_layout_is_put_back_if_it_is_legal_and_the_policy_lets_it(instances, policy, expected):
    world = snapshot(nodes=[node("n0", mig={0: HALVES})])
    back = IdleLayout("n0", 0, layout(*instances))

    assert broken(world, policy=by_value(mig=policy), layouts=(back,)) == expected


def test_a_layout_that_is_put_back_has_what_is_in_use():
    used = replica("n0", mig=[(0, "3g.40gb", 0)])
    world = snapshot(nodes=[node("n0", mig={0: HALVES})], jobs=[job("a", mig={"3g.40gb": 1}, at=[used])])
    a = placement("a", used)

    assert broken(world, a, layouts=(IdleLayout("n0", 0, layout(("7g.80gb", 0))),)) == {Rule.MIG}
    kept = layout(("3g.40gb", 0), ("2g.20gb", 4))
    assert broken(world, a, layouts=(IdleLayout("n0", 0, kept),)) == set()


def test_a_gpu_without_mig_mode_gets_no_layout_back():
    back = IdleLayout("n0", 0, layout(*HALVES))

    assert broken(snapshot(nodes=cluster(1)), layouts=(back,)) == {Rule.MIG}
