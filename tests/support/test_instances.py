"""Floors under what the random instances make: properties over them mean something only while they hold."""

from __future__ import annotations

import time
from collections import Counter

import pytest

from gpuplan.models.validation.checks import inconsistencies
from gpuplan.models.verifier.context import Context
from gpuplan.models.verifier.objective import TERMS
from gpuplan.planner.problem_builder import build_problem
from gpuplan.solvers.exact import cpsat
from gpuplan.solvers.interface import Budget
from tests.oracle.reference import ReferenceColumns, reference
from tests.support.oracles.oracle_decode import realized
from tests.support.strategies import instances
from tests.support.strategies.random_targets import judged, nothing_changed

pytestmark = pytest.mark.slow

MAKERS = (instances.everything, instances.everything_mixed, instances.tiny)
FULL_MAKERS = MAKERS[:2]
OF_TIME = ("deadlines", "tariffs")
"""Terms of plans that look ahead; `time_strategies` makes instances for these."""
CHANGES = ("started", "moved", "grown", "shrunk", "stopped", "node added", "node removed")


@pytest.mark.parametrize("make", MAKERS)
def test_instances_are_consistent_and_have_every_feature(make):
    seen = Counter()
    for seed in range(300):
        instance = make(seed)
        assert list(inconsistencies(instance.snapshot)) == [], seed
        seen.update(instance.features)
        most = instance.policy.disruption.max_preemptions
        seen["spared"] += any(job.preemptions >= most for job in instance.snapshot.jobs) if most else 0
    assert all(seen[feature] >= 30 for feature in instances.FEATURES), seen
    assert seen["spared"] >= 10, seen


def test_best_plans_do_everything_that_a_plan_can_do_and_pay_every_price():
    done, paid = Counter(), Counter()
    for number in range(400):
        instance = FULL_MAKERS[number % 2](number)
        snapshot, policy = instance.snapshot, instance.policy
        target = best(snapshot, build_problem(snapshot, policy))
        case = Context(snapshot, policy, target.placements, target.added, target.removed)
        done.update(str(each.change) for each in case.judged_placements)
        done.update({"stopped": len(case.stopped)})
        done.update({"node added": len(target.added), "node removed": len(target.removed)})
        paid.update(judged(snapshot, policy, target).terms.keys())

    assert {change: done[change] for change in CHANGES if done[change] < 5} == {}
    assert {term: paid[term] for term in TERMS if paid[term] < 3 and term not in OF_TIME} == {}


def best(snapshot, problem):
    """The target that the plain model finds best."""
    x = ReferenceColumns(problem)
    hint = x.encode(nothing_changed(snapshot))
    answer = cpsat.solve(reference(problem, x), Budget(time.monotonic() + 60), hint, lambda _: None)
    return realized(snapshot, x, answer.values)
