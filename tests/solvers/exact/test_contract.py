"""What every exact solver must do, whichever it is."""

from __future__ import annotations

import time
from pathlib import Path

import highspy
import numpy as np
import pytest

from gpuplan.models.formulation.rows import Formulation, row
from gpuplan.models.plan.solution import SolveStatus
from gpuplan.models.policy.policy import SolverName
from gpuplan.solvers import SOLVERS
from gpuplan.solvers.exact import cbc, cpsat, milp
from gpuplan.solvers.interface import Budget, integer_bound


def silent(_answer):
    """Reports are dropped."""


EXACT = pytest.mark.parametrize("solve", [cpsat.solve, milp.solve, cbc.solve], ids=["cpsat", "milp", "cbc"])


def question(*rows, upper=(5, 5), objective=(3, 2)):
    return Formulation(np.array(upper), np.array(objective), tuple(rows))


def budget(seconds=20.0, **more):
    return Budget(deadline=time.monotonic() + seconds, **more)


def nothing(formulation):
    return np.zeros_like(formulation.upper)


@EXACT
def test_optimum_is_found_and_proven(solve):
    formulation = question(row("r", (), [(0, 2), (1, 1)], upper=7))

    answer = solve(formulation, budget(), nothing(formulation), silent)

    assert (answer.status, answer.bound, answer.values.tolist()) == (SolveStatus.OPTIMAL, 13, [1, 5])


@EXACT
def test_equality_and_lower_limits_are_kept(solve):
    equal = row("r", ("equal",), [(0, 1), (1, -2)], lower=0, upper=0)
    at_least = row("r", ("at least",), [(1, -1)], lower=-2)
    formulation = question(equal, at_least)

    answer = solve(formulation, budget(), nothing(formulation), silent)

    assert answer.values.tolist() == [4, 2]
    assert answer.bound == 16


@EXACT
def test_impossible_question_is_infeasible(solve):
    formulation = question(row("r", (), [(0, 1)], lower=6))

    answer = solve(formulation, budget(), nothing(formulation), silent)

    assert answer.status is SolveStatus.INFEASIBLE
    assert answer.values is None


@EXACT
def test_same_column_twice_in_a_row_counts_twice(solve):
    formulation = question(row("r", (), [(0, 1), (0, 1)], upper=4), objective=(1, 1))

    answer = solve(formulation, budget(), nothing(formulation), silent)

    assert answer.values[0] == 2


def knapsack(size):
    """A strongly correlated multi-row knapsack, which no solver closes in a moment."""
    draw = np.random.default_rng(1)
    weights = draw.integers(100, 1000, size=(5, size))
    rows = [
        row("r", (index,), list(enumerate(line.tolist())), upper=int(line.sum() // 3))
        for index, line in enumerate(weights)
    ]
    return question(*rows, upper=[1] * size, objective=(weights.sum(axis=0) // 5 + 50).tolist())


@pytest.mark.slow
@pytest.mark.parametrize("solve", [cpsat.solve, milp.solve], ids=["cpsat", "milp"])
def test_at_the_time_limit_the_hint_is_kept_and_the_bound_is_true(solve):
    formulation = knapsack(200)
    hint = nothing(formulation)
    hint[:60] = 1
    reports = []

    answer = solve(formulation, budget(2.0), hint, reports.append)

    assert answer.status is SolveStatus.FEASIBLE
    assert formulation.violated_rows(answer.values) == ()
    assert formulation.points(hint) <= formulation.points(answer.values) <= answer.bound
    # What it reported on the way can stand in for its answer.
    told = [report for report in reports if report.status is SolveStatus.FEASIBLE]
    assert told
    assert all(formulation.violated_rows(report.values) == () for report in told)
    assert formulation.points(told[-1].values) == formulation.points(answer.values)
    assert all(report.bound is None or report.bound >= answer.bound for report in reports)


@pytest.mark.slow
@pytest.mark.parametrize("solve", [cpsat.solve, milp.solve], ids=["cpsat", "milp"])
def test_deterministic_budget_gives_the_same_answer_twice(solve):
    formulation = knapsack(120)

    first, second = (
        solve(formulation, budget(120.0, ticks=1, seed=3), nothing(formulation), silent) for _ in range(2)
    )

    assert first.status is SolveStatus.FEASIBLE
    assert first.values.tolist() == second.values.tolist()
    assert first.bound == second.bound


@pytest.mark.parametrize("solve", [cpsat.solve, milp.solve], ids=["cpsat", "milp"])
def test_stop_gap_ends_early_with_a_bound_that_says_so(solve):
    formulation = knapsack(120)

    answer = solve(formulation, budget(30.0, stop_gap=0.05), nothing(formulation), silent)

    gap = (answer.bound - formulation.points(answer.values)) / formulation.points(answer.values)
    assert 0 <= gap <= 0.05


def test_every_named_solver_exists():
    assert set(SOLVERS) == set(SolverName)


@pytest.mark.parametrize(
    ("bound", "integer"),
    [
        (10.0, 10),
        (9.9999999, 10),
        (10.4, 10),
        (0.0, 0),
        (1e6, 10**6),
        (8e6, 8 * 10**6),
        (3e9 - 1e-7, 3 * 10**9),
    ],
)
def test_bound_is_rounded_down_but_for_rounding_errors(bound, integer):
    assert integer_bound(bound) == integer
    assert integer_bound(bound, relative_error=1e-12) == integer


@EXACT
def test_large_points_are_proven_to_the_point(solve):
    formulation = question(row("r", (), [(0, 2), (1, 1)], upper=7), objective=(3_000_001, 2_000_000))

    answer = solve(formulation, budget(), nothing(formulation), silent)

    assert (answer.status, answer.bound) == (SolveStatus.OPTIMAL, 13_000_001)


def test_no_answer_comes_without_a_bound():
    formulation = knapsack(3000)

    answer = cpsat.solve(formulation, budget(0.02), nothing(formulation), silent)

    assert answer.status is not SolveStatus.NO_ANSWER or answer.bound is None


@EXACT
@pytest.mark.parametrize(("model", "optimum"), [("highs-1.13", 1600), ("highs-1.14", 232)])
def test_no_false_bound_is_proven(solve, model, optimum):
    """HiGHS with presolve ends these block models as optimal at 800 and at 212 (tests/cases/false_bound)."""
    formulation = written(Path(__file__).parents[2] / "cases" / "false_bound" / f"{model}.mps")

    answer = solve(formulation, budget(), nothing(formulation), silent)

    assert (answer.status, answer.bound) == (SolveStatus.OPTIMAL, optimum)
    assert formulation.violated_rows(answer.values) == ()
    assert formulation.points(answer.values) == optimum


def written(path):
    """A model that was written to a file; what it minimizes is what is lost."""
    highs = highspy.Highs()
    highs.setOptionValue("output_flag", False)
    highs.readModel(str(path))
    lp = highs.getLp()
    rows = []
    for number, (lower, upper) in enumerate(zip(lp.row_lower_, lp.row_upper_, strict=True)):
        _, columns, coefficients = highs.getRowEntries(number)
        terms = zip(columns.tolist(), map(round, coefficients), strict=True)
        rows.append(row("r", (number,), terms, lower=whole(lower), upper=whole(upper)))
    objective, upper = [-round(cost) for cost in lp.col_cost_], [round(limit) for limit in lp.col_upper_]
    return question(*rows, objective=objective, upper=upper)


def whole(limit):
    return round(limit) if abs(limit) < highspy.kHighsInf else None
