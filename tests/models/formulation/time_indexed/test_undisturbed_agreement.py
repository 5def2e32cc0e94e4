"""
Later starts count on nothing that a plan takes from running jobs: rows, verifier and placing agree about it.

Every schedule of small instances in which it would pay to stop a job now for a gang that starts later is
tried. The rule of each of the three is taken away in turn, and each time the disagreement is noticed.
"""

from __future__ import annotations

import dataclasses
import random
import time
from collections import Counter
from functools import cache

import numpy as np
import pytest

from gpuplan.models.formulation import formulate
from gpuplan.models.formulation.columns import Columns
from gpuplan.models.formulation.encode import encode
from gpuplan.models.plan.violation import Rule
from gpuplan.models.policy.policy import BudgetPolicy, SolverName
from gpuplan.models.problem.jobs import ClassRole
from gpuplan.models.problem.problem import Problem
from gpuplan.models.verifier import verify
from gpuplan.planner.epoch import plan_epoch
from gpuplan.planner.problem_builder import build_problem
from gpuplan.solvers.exact import cpsat
from gpuplan.solvers.heuristics import vacate
from gpuplan.solvers.heuristics.future_reservations import reserve_start
from gpuplan.solvers.interface import Budget
from gpuplan.solvers.state.ledger import Ledger
from gpuplan.solvers.targets.to_target import target_of
from tests.support.oracles.exhaustive_schedules import TooLargeError, every_schedule, judged
from tests.support.seeds import EVERY_SEED
from tests.support.strategies.schedule_instances import tempting

pytestmark = pytest.mark.slow

SEEDS = range(120 if EVERY_SEED else 40)


@dataclasses.dataclass(frozen=True)
class Tried:
    """An instance, its rows, and its best schedules with the rule and without."""

    seed: int
    snapshot: object
    policy: object
    columns: object
    formulation: object
    schedules: tuple
    """Targets that break no rule, or only this one."""
    best: int
    best_without: int

    @property
    def binds(self):
        """True if the rule refuses the best schedule of those that keep all other rules."""
        return self.best_without > self.best


@cache
def tried():
    """All instances in which a running job may be stopped, and which have few enough schedules."""
    found = []
    for seed in SEEDS:
        given = tempting(seed)
        problem = build_problem(given.snapshot, given.policy)
        offered = {each.job for each in problem.incumbents if each.stop_points is not None}
        if not offered:
            continue
        try:
            all_targets = tuple(every_schedule(given.snapshot, given.policy, stopping=offered))
        except TooLargeError:
            continue
        about = [(target, judged(given.snapshot, given.policy, target)) for target in all_targets]
        kept = [(target, done.objective) for target, done in about if not done.violations]
        others = [
            (target, done.objective)
            for target, done in about
            if {each.rule for each in done.violations} == {Rule.UNDISTURBED}
        ]
        x = Columns(problem)
        best = max(points for _, points in kept)
        without = max(points for _, points in (*kept, *others))
        schedules = tuple(target for target, _ in kept), tuple(target for target, _ in others)
        found.append(
            Tried(seed, given.snapshot, given.policy, x, formulate(problem, x), schedules, best, without)
        )
    return tuple(found)


def optimum(formulation):
    hint = np.zeros_like(formulation.upper)
    return cpsat.solve(formulation, Budget(time.monotonic() + 20), hint, lambda _: None).bound


def without_rows(formulation):
    rows = tuple(row for row in formulation.rows if not str(row.key[0]).startswith("undisturbed"))
    return dataclasses.replace(formulation, rows=rows)


def test_rows_and_placing_find_the_best_schedule_that_the_verifier_allows():
    seen = Counter()
    for each in tried():
        rules = each.policy.model_copy(
            update={"solvers": (SolverName.MILP,), "budget": BudgetPolicy(time_limit="60s")}
        )
        plan = plan_epoch(each.snapshot, rules, seed=0, created_at=each.snapshot.taken_at)
        bound = optimum(each.formulation)
        assert plan.solution.rejected == (), each.seed
        assert plan.solution.objective <= each.best <= min(bound, plan.solution.bound), each.seed
        seen["all"] += 1
        seen["binds"] += each.binds
        seen["exact"] += bound == each.best
        seen["found"] += plan.solution.objective == each.best
    assert seen["all"] >= len(SEEDS) // 3, seen
    assert seen["binds"] >= len(SEEDS) // 8, seen
    assert seen["exact"] >= seen["all"] * 95 // 100, seen
    assert seen["found"] >= seen["all"] * 95 // 100, seen


def test_every_schedule_that_the_verifier_allows_satisfies_the_rows():
    for each in tried():
        for target in each.schedules[0]:
            assert each.formulation.violated_rows(encode(each.columns, target)) == (), (each.seed, target)


def test_what_only_this_rule_refuses_breaks_only_its_rows():
    refused, noticed = 0, 0
    for each in tried():
        for target in each.schedules[1]:
            broken = each.formulation.violated_rows(encode(each.columns, target))
            assert all(str(row.key[0]).startswith("undisturbed") for row in broken), each.seed
            refused += 1
            noticed += bool(broken)
    assert refused >= 200, refused
    # Rows are sums over the nodes of an area, and the verifier judges each node.
    assert noticed >= refused * 4 // 10, (noticed, refused)


def test_rows_without_the_rule_are_noticed():
    assert any(optimum(without_rows(each.formulation)) > each.best for each in tried() if each.binds)


def test_verifier_without_the_rule_is_noticed(monkeypatch):
    monkeypatch.setitem(verify.RULES, Rule.UNDISTURBED, lambda _: iter(()))

    assert any(
        not judged(each.snapshot, each.policy, target).violations
        and each.formulation.violated_rows(encode(each.columns, target))
        for each in tried()
        for target in each.schedules[1]
    )


def reserved(each, draw):
    """Violations of a plan that stops some running jobs now and reserves later starts of all waiting ones."""
    problem = build_problem(each.snapshot, each.policy)
    ledger = Ledger(problem)
    for index in range(len(problem.incumbents)):
        if draw.random() < 0.7:
            vacate.stop_incumbent(ledger, index)
    for index, job_class in enumerate(problem.classes):
        for slot in range(1, problem.slots) if job_class.role is ClassRole.START else ():
            if ledger.jobs_left(index, now=False):
                reserve_start(ledger, index, 0, slot)
    target = target_of(ledger, each.snapshot.running_placements)
    return len(target.planned), judged(each.snapshot, each.policy, target).violations


def test_what_is_reserved_after_stops_breaks_no_rule():
    planned = 0
    for each in tried():
        count, violations = reserved(each, random.Random(each.seed))
        assert violations == (), each.seed
        planned += count
    assert planned >= (20 if EVERY_SEED else 10), planned


def test_placing_without_the_rule_is_noticed(monkeypatch):
    monkeypatch.setattr(Problem, "may_disturb", False)

    assert any(reserved(each, random.Random(each.seed))[1] for each in tried())
