"""Formulation → PuLP, solved by HiGHS or by the CBC that PuLP brings: lowering, statuses, bound."""

from __future__ import annotations

import warnings
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import pulp

from planner.models.solution import SolveStatus
from planner.solvers.interface import Answer, integer_bound

if TYPE_CHECKING:
    from collections.abc import Iterator

    from planner.models.formulation.rows import Formulation, Ints
    from planner.solvers.interface import Budget, Report

_NODES_PER_TICK: Final = 100

_RELATIVE_ERROR: Final = 1e-9
"""Of an objective or bound that was computed in floating point."""

# PuLP calls a run that hit its time limit "Optimal" in `status`; only `sol_status` tells a proof.
_CBC_STATUS: Final = {
    pulp.LpSolutionOptimal: SolveStatus.OPTIMAL,
    pulp.LpSolutionIntegerFeasible: SolveStatus.FEASIBLE,
    pulp.LpSolutionInfeasible: SolveStatus.INFEASIBLE,
    pulp.LpSolutionNoSolutionFound: SolveStatus.NO_ANSWER,
    pulp.LpSolutionUnbounded: SolveStatus.FAILED,
}


def solve(formulation: Formulation, budget: Budget, hint: Ints, report: Report) -> Answer:
    """Maximize with HiGHS."""
    # Status and bound are read from HiGHS itself: PuLP maps every limit to "Optimal" and drops the bound.
    # Imported here, so that CBC answers where HiGHS is missing.
    from highspy import HighsModelStatus, HighsSolution, cb, kSolutionStatusFeasible  # noqa: PLC0415

    problem, variables = _lower(formulation)
    driver = pulp.HiGHS(**_options(budget))
    driver.createAndConfigureSolver(problem)
    driver.buildSolverModel(problem)
    highs = problem.solverModel
    place = np.array([variable.index for variable in variables], dtype=np.int64)
    start = HighsSolution()
    start.col_value = _scatter(hint, place)
    highs.setSolution(start)
    watch = _Watch(cb.HighsCallbackType, place, report)
    highs.setCallback(watch, None)
    for kind in watch.kinds:
        highs.startCallback(kind)
    driver.callSolver(problem)

    model_status, info = highs.getModelStatus(), highs.getInfo()
    # PuLP minimizes the negated objective.
    bound = (
        integer_bound(-info.mip_dual_bound, relative_error=_RELATIVE_ERROR)
        if np.isfinite(info.mip_dual_bound)
        else None
    )
    has_values = info.primal_solution_status == int(kSolutionStatusFeasible)
    status = {
        HighsModelStatus.kOptimal: SolveStatus.OPTIMAL,
        HighsModelStatus.kModelEmpty: SolveStatus.OPTIMAL,
        HighsModelStatus.kInfeasible: SolveStatus.INFEASIBLE,
        HighsModelStatus.kTimeLimit: SolveStatus.FEASIBLE if has_values else SolveStatus.NO_ANSWER,
        HighsModelStatus.kSolutionLimit: SolveStatus.FEASIBLE if has_values else SolveStatus.NO_ANSWER,
        HighsModelStatus.kInterrupt: SolveStatus.FEASIBLE if has_values else SolveStatus.NO_ANSWER,
    }.get(model_status, SolveStatus.FAILED)
    detail = highs.modelStatusToString(model_status)
    if status not in (SolveStatus.OPTIMAL, SolveStatus.FEASIBLE):
        return Answer(status, bound=bound, detail=detail)
    values = np.rint(np.array(highs.getSolution().col_value)[place]).astype(np.int64)
    return Answer(status, values, bound, detail)


class _Watch:
    """Reports better solutions and bounds while HiGHS works."""

    def __init__(self, kinds: Any, place: Ints, report: Report) -> None:
        self._solution, self._log = kinds.kCallbackMipImprovingSolution, kinds.kCallbackMipLogging
        self._place = place
        self._report = report
        self._values: Ints | None = None
        self._bound: int | None = None

    @property
    def kinds(self) -> tuple[Any, Any]:
        """What HiGHS is to call for."""
        return self._solution, self._log

    def __call__(self, kind: Any, _message: str, out: Any, *_: Any) -> None:
        """Take what HiGHS has."""
        news = False
        if kind == self._solution:
            self._values = np.rint(np.array(out.mip_solution)[self._place]).astype(np.int64)
            news = True
        if np.isfinite(out.mip_dual_bound):
            bound = integer_bound(-out.mip_dual_bound, relative_error=_RELATIVE_ERROR)
            news |= self._bound is None or bound < self._bound
            self._bound = bound
        if news:
            found = SolveStatus.NO_ANSWER if self._values is None else SolveStatus.FEASIBLE
            self._report(Answer(found, self._values, self._bound, "stopped while searching"))


def _scatter(values: Ints, place: Ints) -> list[float]:
    scattered = np.zeros(len(values))
    scattered[place] = values
    return [float(value) for value in scattered]


def solve_with_cbc(formulation: Formulation, budget: Budget, hint: Ints, report: Report) -> Answer:  # noqa: ARG001
    """Maximize with the CBC that PuLP brings, everywhere; it proves optimality but tells no other bound."""
    problem, variables = _lower(formulation)
    with _announcements_ignored():
        cbc = pulp.PULP_CBC_CMD(
            msg=False, timeLimit=budget.seconds, gapRel=budget.stop_gap, threads=budget.workers
        )
    problem.solve(cbc)
    status = _CBC_STATUS.get(problem.sol_status, SolveStatus.FAILED)
    detail = pulp.LpSolution[problem.sol_status]
    if status not in (SolveStatus.OPTIMAL, SolveStatus.FEASIBLE):
        return Answer(status, detail=detail)
    values = np.array([round(variable.value() or 0) for variable in variables], dtype=np.int64)
    proven = status is SolveStatus.OPTIMAL and budget.stop_gap == 0
    bound = integer_bound(pulp.value(problem.objective), relative_error=_RELATIVE_ERROR) if proven else None
    return Answer(status, values, bound, detail)


@contextmanager
def _announcements_ignored() -> Iterator[None]:
    """PuLP 3 warns of names that PuLP 4 will drop."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)
        yield


def _lower(formulation: Formulation) -> tuple[pulp.LpProblem, list[pulp.LpVariable]]:
    with _announcements_ignored():
        return _lowered(formulation)


def _lowered(formulation: Formulation) -> tuple[pulp.LpProblem, list[pulp.LpVariable]]:
    problem = pulp.LpProblem("epoch", pulp.LpMaximize)
    variables = [
        pulp.LpVariable(f"x{column}", 0, upper, pulp.LpInteger)
        for column, upper in enumerate(formulation.upper.tolist())
    ]
    earning = np.flatnonzero(formulation.objective)
    problem += pulp.LpAffineExpression(
        [(variables[column], int(formulation.objective[column])) for column in earning.tolist()]
    )
    problem.addVariables(variables)
    for row in formulation.rows:
        terms = pulp.LpAffineExpression(
            [
                (variables[column], coefficient)
                for column, coefficient in zip(row.columns.tolist(), row.coefficients.tolist(), strict=True)
            ]
        )
        if row.lower is not None and row.lower == row.upper:
            problem += pulp.LpConstraint(terms, pulp.LpConstraintEQ, rhs=row.lower)
            continue
        if row.upper is not None:
            problem += pulp.LpConstraint(terms, pulp.LpConstraintLE, rhs=row.upper)
        if row.lower is not None:
            problem += pulp.LpConstraint(terms, pulp.LpConstraintGE, rhs=row.lower)
    return problem, variables


def _options(budget: Budget) -> dict[str, Any]:
    options: dict[str, Any] = {
        "msg": False,
        "timeLimit": budget.seconds,
        "gapRel": budget.stop_gap,
        "threads": budget.workers,
        "random_seed": budget.seed,
        # Points are integers: a gap below one point is a proof.
        "mip_abs_gap": 0.999,
    }
    if budget.ticks is not None:
        options["mip_max_nodes"] = budget.ticks * _NODES_PER_TICK
    return options
