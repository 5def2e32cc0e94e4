"""Plans that the planner made of small random worlds: applied, they lead where they say, and to rest."""

from __future__ import annotations

import itertools
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gpuplan.models.errors import PlannerError
from gpuplan.models.placement import same_holdings
from gpuplan.models.plan.actions import changes_of
from gpuplan.models.policy.policy import SolverName
from gpuplan.planner.apply.apply import apply_plan
from gpuplan.planner.apply.audit_log import AuditLog
from gpuplan.planner.apply.outcome import ApplyHooks
from gpuplan.planner.epoch import plan_epoch
from gpuplan.planner.executors.simulated import SimulatedCluster
from tests.support.builders.build import NOW
from tests.support.samples.all_actions import WORLD
from tests.support.seeds import examples
from tests.support.strategies.changing_worlds import FREE_HAND, worlds

pytestmark = pytest.mark.slow


def planned(world, *solvers):
    return plan_epoch(world, FREE_HAND.model_copy(update={"solvers": solvers}), seed=0, created_at=NOW)


def after(world, plan, *, cut=None):
    """The cluster of that world once the plan was applied to it, in two parts if it is cut."""
    with (
        TemporaryDirectory() as folder,
        SimulatedCluster.create(Path(folder) / "cluster.db", world) as live,
    ):
        told = {"actor": "ann@login1", "now": lambda: NOW}
        log, done = AuditLog(Path(folder) / "audit.jsonl"), itertools.count()
        if cut is not None:
            with pytest.raises(PlannerError, match="told to stop"):
                apply_plan(plan, live, log, hooks=ApplyHooks(stop=lambda: next(done) >= cut), **told)
        apply_plan(plan, live, log, resume=True, **told)
        return live.snapshot()


def assert_as_planned(live, plan):
    """The cluster runs what the plan placed, on the nodes and in the MIG layouts that it stated."""
    found = {placed.job: placed for placed in live.running_placements}
    assert found.keys() == {placed.job for placed in plan.placements}
    assert all(same_holdings(found[placed.job].replicas, placed.replicas) for placed in plan.placements)
    nodes = {node.name: node.gpus.by_index.values() if node.gpus else () for node in live.cluster.nodes}
    assert {name: tuple(gpu for gpu in gpus if gpu.mig is not None) for name, gpus in nodes.items()} == {
        state.name: state.mig for state in plan.nodes if state.change != "removed"
    }


@settings(max_examples=examples(50))
@given(worlds())
def test_a_greedy_plan_leads_to_the_cluster_it_states(world):
    plan = planned(world)

    assert_as_planned(after(world, plan), plan)


@settings(max_examples=30)
@given(worlds(), st.data())
def test_a_plan_interrupted_anywhere_leads_there_too(world, data):
    plan = planned(world)
    changes = len(changes_of(plan.actions))
    cut = data.draw(st.integers(0, changes - 1)) if changes else None

    assert_as_planned(after(world, plan, cut=cut), plan)


@settings(max_examples=8)
@given(worlds())
def test_an_optimal_plan_leads_to_the_cluster_it_states_and_to_rest(world):
    plan = planned(world, SolverName.MILP)

    live = after(world, plan)

    assert_as_planned(live, plan)
    again = planned(live, SolverName.MILP)
    # What had to leave a drained node is worth as much as its move costs, or less: once stopped it may start.
    # What was moved kept its size: it may grow where there is room. Either may be worth a new node. What a
    # stop freed of a quota is then for any job that waits.
    follows = {"preempt": "start", "migrate": "grow"}
    later = {(follows[action.type], action.job) for action in plan.actions if action.type in follows}
    if any(action.type == "preempt" for action in plan.actions):
        later |= {("start", each.job) for each in plan.waiting}
    changed = [action for action in changes_of(again.actions) if not (later and action.type == "scale_up")]
    found = {(action.type, getattr(action, "job", "")) for action in changed}
    assert plan.solution.status != "OPTIMAL" or found <= later


def test_a_world_with_use_for_changes_of_many_kinds_comes_to_rest_after_one_plan():
    plan = planned(WORLD, SolverName.MILP)
    assert plan.solution.status == "OPTIMAL"
    assert len({action.type for action in plan.actions}) > 6

    live = after(WORLD, plan)

    assert_as_planned(live, plan)
    assert not planned(live, SolverName.MILP).has_changes
