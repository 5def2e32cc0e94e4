"""
The net under changes of the code's shape: plans of 200 random instances and of all scenarios are the same.

Solvers stop by work done. A plan's id is a hash of what it says, and does not depend on the machine.
`make golden` records the plans anew; a change that is meant to change none must not need that.
"""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from gpuplan.models.policy.policy import BudgetMode
from gpuplan.planner.epoch import plan_epoch
from gpuplan.planner.sources.files import default_policy_path, load_policy, load_snapshot
from tests.support.builders import build
from tests.support.output.golden import REWRITE
from tests.support.strategies import instances, time_strategies

pytestmark = pytest.mark.slow

ROOT = Path(__file__).parents[2]
RECORD = ROOT / "tests" / "cases" / "net" / "plans.json"
SCENARIOS = sorted(path.parent.name for path in ROOT.glob("scenarios/*/expected.txt"))
GROUPS = {
    "divisible": lambda seed: plain(instances.divisible(seed)),
    "mixed": lambda seed: plain(instances.mixed(seed)),
    "everything": instances.everything,
    "everything-mixed": instances.everything_mixed,
    "timed": time_strategies.instance,
}
EACH, PART = 40, 10
PARTS = [(group, first) for group in GROUPS for first in range(0, EACH, PART)]


def plain(snapshot):
    return instances.Instance(snapshot, instances.POLICY, frozenset())


def planned(snapshot, policy):
    """What a plan says, in short."""
    budget = policy.budget.model_copy(update={"mode": BudgetMode.DETERMINISTIC, "ticks": 2})
    policy = policy.model_copy(update={"budget": budget})
    plan = plan_epoch(snapshot, policy, seed=0, created_at=build.NOW)
    found = plan.solution
    return [plan.plan_id, str(found.status), found.objective, found.bound]


def compared(found):
    """Records the plans, or compares them with those recorded."""
    recorded = json.loads(RECORD.read_text(encoding="utf-8")) if RECORD.exists() else {}
    if REWRITE:
        plans = sorted((recorded | found).items())
        lines = (f"{json.dumps(name)}: {json.dumps(plan)}" for name, plan in plans)
        RECORD.write_text("{\n" + ",\n".join(lines) + "\n}\n", encoding="utf-8")
        return
    assert found == {name: recorded.get(name) for name in found}


@pytest.mark.parametrize(("group", "first"), PARTS)
def test_plans_of_random_instances_are_the_same(group, first):
    made = ((seed, GROUPS[group](seed)) for seed in range(first, first + PART))

    compared({f"{group} {seed}": planned(each.snapshot, each.policy) for seed, each in made})


@pytest.mark.parametrize("folder", SCENARIOS)
def test_plans_of_scenarios_are_the_same(folder):
    source = str(ROOT / "scenarios" / folder)

    compared({folder: planned(load_snapshot(source), load_policy(default_policy_path(source)))})


def test_greedy_is_the_same_on_a_cluster_of_real_size():
    source = str(ROOT / "scenarios" / "production")
    policy = load_policy(default_policy_path(source)).model_copy(update={"solvers": ()})
    # The safety stop must not end the relaxation on a busy machine.
    patient = policy.budget.model_copy(update={"time_limit_ms": 20 * policy.budget.time_limit_ms})
    policy = policy.model_copy(update={"budget": patient})

    compared({"production, greedy": planned(load_snapshot(source), policy)})
