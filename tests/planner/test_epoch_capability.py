"""A plan for a cluster that cannot do everything holds only what it can do, and is as good as that allows."""

from __future__ import annotations

import random
import sys
from collections import Counter

import pytest

from gpuplan.models.cluster import Gpu
from gpuplan.models.plan.action_kinds import CHANGING_KINDS, ActionKind
from gpuplan.models.plan.actions import changes_of
from gpuplan.models.policy.policy import BudgetMode, Disruption, MigPolicy, PoolPolicy, Prices, SolverName
from gpuplan.planner.epoch import plan_epoch
from tests.support.builders import build
from tests.support.builders.build import NOW, job, node, replica, snapshot
from tests.support.seeds import EVERY_SEED
from tests.support.strategies import instances

pytestmark = pytest.mark.slow

THREE_PLANS, ONE_PLAN, UNPINNED = (60, 250, 150) if EVERY_SEED else (20, 80, 25)
"""Instances of each test."""

SWITCHED = {
    "preempt": (ActionKind.PREEMPT,),
    "resize": (ActionKind.GROW, ActionKind.SHRINK),
    "migrate": (ActionKind.MIGRATE,),
    "repartition": (ActionKind.REPARTITION,),
    "scale_up": (ActionKind.SCALE_UP,),
    "scale_down": (ActionKind.SCALE_DOWN,),
}


def planned(world, policy, solvers=()):
    budget = policy.budget.model_copy(update={"mode": BudgetMode.DETERMINISTIC, "ticks": 2})
    policy = policy.model_copy(update={"budget": budget, "solvers": solvers})
    return plan_epoch(world, policy, seed=0, created_at=NOW)


def free_hand(policy):
    """The policy with all switches on."""
    disruption = policy.disruption.model_copy(update={"preempt": True, "resize": True, "migrate": True})
    return policy.model_copy(
        update={
            "disruption": disruption,
            "mig": MigPolicy(repartition=True, switch_mode=True),
            "pools": policy.pools.model_copy(update={"scale_up": True, "scale_down": True}),
        }
    )


def switched_off(policy, switches):
    """The policy with some switches off."""
    off = dict.fromkeys(switches, False)
    mig = {"repartition": False, "switch_mode": False} if "repartition" in off else {}
    of = {
        name: {key: off[key] for key in off if key in model.model_fields}
        for name, model in (("disruption", Disruption), ("pools", PoolPolicy))
    }
    update = {name: getattr(policy, name).model_copy(update=each) for name, each in of.items()}
    return policy.model_copy(update=update | {"mig": policy.mig.model_copy(update=mig)})


def with_can(world, missing):
    can = tuple(kind for kind in CHANGING_KINDS if kind not in missing)
    return world.model_copy(update={"cluster": world.cluster.model_copy(update={"can": can})}).canonical()


@pytest.mark.parametrize("solvers", [(), (SolverName.MILP,)], ids=["greedy", "milp"])
def test_what_a_cluster_cannot_do_is_as_if_the_policy_forbade_it(solvers):
    seen = Counter()
    for seed in range(THREE_PLANS):
        draw = random.Random(seed)
        features = tuple(each for each in instances.FEATURES if each != "drain")
        instance = instances.everything(seed, features=features, share=0.4)
        policy = free_hand(instance.policy)
        switches = draw.sample(sorted(SWITCHED), draw.randint(1, len(SWITCHED)))
        missing = {kind for switch in switches for kind in SWITCHED[switch]}

        unable = planned(with_can(instance.snapshot, missing), policy, solvers)
        forbidden = planned(instance.snapshot, switched_off(policy, switches), solvers)

        assert unable.placements == forbidden.placements, seed
        assert unable.solution.objective == forbidden.solution.objective, seed
        assert unable.solution.bound == forbidden.solution.bound, seed
        done = {change.type for change in changes_of(unable.actions)}
        assert not done & missing
        able = planned(instance.snapshot, policy, solvers)
        seen["bound"] += able.placements != unable.placements
        seen.update(done)
    assert min(seen["bound"], seen["start"]) >= THREE_PLANS // 15, seen


def test_no_plan_has_what_the_cluster_cannot_do_even_off_drained_nodes():
    seen = Counter()
    for seed in range(ONE_PLAN):
        draw = random.Random(seed)
        instance = instances.everything_mixed(seed, share=0.5)
        optional = [kind for kind in CHANGING_KINDS if kind not in ("start", "release")]
        missing = set(draw.sample(optional, draw.randint(1, 4)))

        plan = planned(with_can(instance.snapshot, missing), free_hand(instance.policy))

        done = {change.type for change in changes_of(plan.actions)}
        assert not done & missing, seed
        seen.update(done)
    assert min(seen[kind] for kind in ("start", "preempt", "grow", "repartition", "scale_up")) >= 1, seen


def test_the_verifier_finds_a_plan_that_ignores_what_the_cluster_cannot_do(monkeypatch):
    """Jobs leave a node to be drained whatever the policy says, but not whatever the cluster can do."""
    world = snapshot(
        nodes=[node(drain=True), node("n1")], jobs=[job("a", gpus=1, at=[replica("n0", gpus=[0])])]
    )
    world = with_can(world, {ActionKind.MIGRATE, ActionKind.PREEMPT})
    assert not changes_of(planned(world, build.by_value()).actions)

    everything = with_can(world, ())
    candidates = sys.modules["gpuplan.planner.problem_builder.candidates"]
    real = candidates._runner
    monkeypatch.setattr(candidates, "_runner", lambda _, *more: real(everything, *more))

    plan = planned(world, build.by_value())

    assert [each.split(": ")[:3] for each in plan.solution.rejected] == [["greedy", "capability", "job a"]]
    assert not changes_of(plan.actions)


@pytest.mark.parametrize(("missing", "kind"), [("shrink", "grow"), ("grow", "shrink")])
def test_growing_and_shrinking_are_told_apart(missing, kind):
    """One job could grow; the other would shrink for a job of higher priority."""
    jobs = [
        job("g", gpus=1, replicas=(1, 2), at=[replica("n0", gpus=[0])]),
        job("s", gpus=2, replicas=(1, 2), at=[replica("n1", gpus=[0, 1]), replica("n1", gpus=[2, 3])]),
        job("w", gpus=2, priority=5, node_selector={"pool": "b"}),
    ]
    nodes = [node("n0", gpus=2), node("n1", gpus=4, labels={"pool": "b"})]
    world = with_can(snapshot(nodes=nodes, jobs=jobs), {ActionKind(missing)})

    plan = planned(world, build.by_value(disruption=Disruption(preempt=False), prices=Prices(disruption=1)))

    assert {change.type for change in changes_of(plan.actions)} - {"start"} == {kind}


def test_plans_of_clusters_that_choose_gpus_use_no_node_with_an_unhealthy_one():
    """Some nodes choose, some GPUs are unhealthy; the verifier has a rule of its own for it."""
    seen = Counter()
    for seed in range(UNPINNED):
        draw = random.Random(seed)
        instance = instances.everything(seed, share=0.4)
        nodes = tuple(some_unpinned(draw, each) for each in instance.snapshot.cluster.nodes)
        world = instance.snapshot.model_copy(
            update={"cluster": instance.snapshot.cluster.model_copy(update={"nodes": nodes})}
        )

        plan = planned(world, free_hand(instance.policy), (SolverName.MILP,) if seed % 3 == 0 else ())

        closed = {each.name for each in nodes if each.gpus and each.gpus.may_be_unhealthy}
        before = {each.job: each.nodes for each in plan.snapshot.running_placements}
        for placed in plan.placements:
            if plan.snapshot.job_by_name[placed.job].request.needs_gpu:
                assert not (placed.nodes - before.get(placed.job, set())) & closed, seed
        assert not plan.solution.rejected, seed
        seen["closed"] += bool(closed)
        seen["started"] += any(change.type == "start" for change in changes_of(plan.actions))
    assert seen["closed"] > UNPINNED // 3
    assert seen["started"] > UNPINNED // 5


def some_unpinned(draw, node_):
    if node_.gpus is None or draw.random() < 0.5:
        return node_
    gpus = node_.gpus.model_copy(update={"pinned": False})
    if draw.random() < 0.5:
        sick = draw.randrange(gpus.count)
        known = {gpu.index: gpu for gpu in gpus.details}
        known[sick] = known.get(sick, Gpu(index=sick)).model_copy(update={"healthy": False})
        gpus = gpus.model_copy(update={"details": tuple(known[index] for index in sorted(known))})
    return node_.model_copy(update={"gpus": gpus})
