"""Rows about quotas beside victims of preemption, found when an answer breaks them: true of every plan."""

from __future__ import annotations

import time
from collections import Counter
from dataclasses import replace
from functools import cache

import numpy as np
import pytest

from benchmarks.odd_cases import QUEUES, OddCase, odd_snapshot
from gpuplan.models.eligibility.preemption_order import victim_views
from gpuplan.models.formulation import formulate
from gpuplan.models.formulation.columns import Columns
from gpuplan.models.formulation.decode import decode
from gpuplan.models.formulation.encode import encode
from gpuplan.models.formulation.params import FormulationParams
from gpuplan.models.plan.solution import DesiredState
from gpuplan.models.policy.policy import Policy
from gpuplan.models.verifier.verify import verify_target
from gpuplan.planner.problem_builder import build_problem
from gpuplan.solvers.exact import milp
from gpuplan.solvers.heuristics.greedy import greedy
from gpuplan.solvers.interface import Budget
from gpuplan.solvers.rounding.disaggregate import disaggregate
from gpuplan.solvers.targets.to_target import target_of

MISLEADING = (7, 8, 13)
"""Seeds with an optimum of the stated rows that no plan reaches."""


@cache
def case(seed):
    """Snapshot, problem, columns, model: 16 nodes and a tree of 200 queues that keep some of their quota."""
    snapshot = odd_snapshot(OddCase(QUEUES, 16, 60), seed).canonical()
    problem = build_problem(snapshot, Policy())
    x = Columns(problem)
    return snapshot, problem, x, formulate(problem, x)


@cache
def solved(seed, *, covers=True):
    """HiGHS's answer and its points and bound, relative to changing nothing; without these rows if asked."""
    snapshot, _, x, formulation = case(seed)
    if not covers:
        formulation = replace(formulation, quota_covers=())
    idle = encode(x, DesiredState(snapshot.running_placements))
    # With ticks the clock decides nothing.
    answer = milp.solve(formulation, Budget(time.monotonic() + 60, 1, 0, 1, 0.0), idle, lambda _: None)
    nothing = formulation.points(idle)
    return answer, formulation.points(answer.values) - nothing, answer.bound - nothing


def views_of(problem):
    """All sets of victims."""
    victims = (each for each in problem.incumbents if each.stop_points is not None or each.shrinkable)
    return victim_views(victims, FormulationParams().max_claim_unions)


@pytest.mark.slow
@pytest.mark.parametrize("seed", MISLEADING)
def test_answer_that_quotas_beside_victims_rule_out_is_mended(seed):
    """Without these rows the answer is worth more than any plan, and loses jobs when it is placed."""
    snapshot, problem, x, formulation = case(seed)

    loose, wanted, _ = solved(seed, covers=False)
    answer, points, bound = solved(seed)
    placed, missed = disaggregate(problem, decode(x, answer.values))

    assert formulation.missing_rows(loose.values)
    assert not formulation.missing_rows(answer.values)
    assert missed == 0
    assert placed.objective == points == bound < wanted
    assert not verify_target(snapshot, Policy(), target_of(placed, snapshot.running_placements)).violations


@pytest.mark.slow
def test_no_plan_breaks_a_row_that_was_added():
    """The plan of greedy and the placed answer for which rows were added, both of them with victims."""
    tally = Counter()
    for seed in MISLEADING:
        snapshot, problem, x, formulation = case(seed)
        draw = np.random.default_rng(seed)
        guesses = [draw.random(len(x.upper)) ** 4 * formulation.upper for _ in range(3)]
        loose = solved(seed, covers=False)[0].values
        cuts = {cut for guess in (*guesses, loose) for cut in formulation.missing_rows(guess)}
        rows = formulation.strengthened(cuts).rows[len(formulation.rows) :]
        for ledger in (greedy(problem), disaggregate(problem, decode(x, loose))[0]):
            target = target_of(ledger, snapshot.running_placements)
            assert not verify_target(snapshot, Policy(), target).violations
            values = encode(x, target)
            assert all(row.holds(values) for row in rows)
            tally["victims"] += len(decode(x, values).stopped)
            tally["tight"] += sum(row.value(values) == row.upper for row in rows)
        tally["rows"] += len(rows)

    assert tally["rows"] >= 10, tally
    assert tally["victims"] >= 4, tally
    assert tally["tight"] >= 10, tally


@pytest.mark.slow
def test_rows_are_broken_where_usage_up_the_tree_exceeds_a_limit():
    """Usage beside a set of victims is counted again by `QueueBudget.usage_up_the_tree`."""
    _, problem, x, formulation = case(13)
    (cover,), (budget,), counted = formulation.quota_covers, problem.budgets, list(x.counted(""))
    views = views_of(problem)
    draw, found = np.random.default_rng(0), 0
    for _ in range(6):
        values = (draw.random(len(x.upper)) < 0.3).astype(np.int64)
        exceeded = set()
        for view in views:
            own = list(budget.own)
            for each in counted:
                own[each.queue] += each.amount * int(values[each.column]) * each.counts(view)
            usage = budget.usage_up_the_tree(own)
            exceeded |= {
                queue
                for queue, limit in enumerate(budget.limit)
                if limit is not None and usage[queue] > limit
            }
        assert {queue for _, queue, *_ in cover.broken(values)} == exceeded
        found += len(exceeded)

    assert found >= 5


def test_row_is_broken_by_the_values_for_which_it_is_added():
    formulation = case(8)[3]
    draw = np.random.default_rng(0)
    values = draw.random(len(formulation.upper)) * formulation.upper
    cuts = formulation.missing_rows(values)

    rows = formulation.strengthened(cuts).rows[len(formulation.rows) :]

    assert rows
    assert all(row.coefficients @ values[row.columns] > row.upper for row in rows)
    assert formulation.has_cuts(cuts)


def test_what_counts_beside_a_set_of_victims_is_as_for_each_column():
    _, problem, x, formulation = case(8)
    (cover,) = formulation.quota_covers

    views = views_of(problem)
    counted = np.array([[each.counts(view) for view in views] for each in x.counted("")])

    assert (cover.counts[cover.order] == counted).all()
    assert counted.any()
    assert not counted.all()


@pytest.mark.parametrize("chosen", [(), (0,), (10**6, 0), (0, 10**6), (-1, 0), (0, 1, 1), (0, 1, 0)])
def test_names_that_stand_for_no_row_are_not_known(chosen):
    """A set of victims, a queue with a limit, and queues below it with all between them."""
    formulation = case(8)[3]

    assert not formulation.has_cuts([(len(formulation.gang_covers), chosen)])
