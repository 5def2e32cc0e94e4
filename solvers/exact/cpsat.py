"""OR-Tools CP-SAT: translate a formulation and its hint, map status and bound back."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import numpy as np
from ortools.sat.python import cp_model

from gpuplan.models.plan.solution import SolveStatus
from gpuplan.solvers.interface import SolverAnswer, integer_bound

if TYPE_CHECKING:
    from gpuplan.models.formulation.rows import Formulation, Ints
    from gpuplan.solvers.interface import Budget, Report

_NO_LIMIT: Final = 2**62

_STATUS: Final = {
    cp_model.OPTIMAL: SolveStatus.OPTIMAL,
    cp_model.FEASIBLE: SolveStatus.FEASIBLE,
    cp_model.INFEASIBLE: SolveStatus.INFEASIBLE,
    cp_model.UNKNOWN: SolveStatus.NO_ANSWER,
    cp_model.MODEL_INVALID: SolveStatus.FAILED,
}


def solve(formulation: Formulation, budget: Budget, hint: Ints, report: Report) -> SolverAnswer:
    """Maximize with CP-SAT."""
    model = cp_model.CpModel()
    variables = [model.new_int_var(0, upper, "") for upper in formulation.upper.tolist()]
    for row in formulation.rows:
        expression = cp_model.LinearExpr.weighted_sum(
            [variables[column] for column in row.columns.tolist()], row.coefficients.tolist()
        )
        model.add_linear_constraint(
            expression,
            -_NO_LIMIT if row.lower is None else row.lower,
            _NO_LIMIT if row.upper is None else row.upper,
        )
    for variable, value in zip(variables, hint.tolist(), strict=True):
        model.add_hint(variable, value)
    earning = np.flatnonzero(formulation.objective)
    model.maximize(
        cp_model.LinearExpr.weighted_sum(
            [variables[column] for column in earning.tolist()], formulation.objective[earning].tolist()
        )
    )
    solver = _configured(budget)
    claim = solver.solve(model, _Incumbents(variables, report))
    status = _STATUS.get(claim, SolveStatus.FAILED)
    bound = None
    # Without a solution CP-SAT reports the bound 0, which is not valid.
    if status in (SolveStatus.OPTIMAL, SolveStatus.FEASIBLE):
        bound = integer_bound(solver.best_objective_bound)
    if status not in (SolveStatus.OPTIMAL, SolveStatus.FEASIBLE):
        return SolverAnswer(status, bound=bound, detail=solver.status_name(claim))
    values = np.array([solver.value(variable) for variable in variables], dtype=np.int64)
    return SolverAnswer(status, values, bound, detail=solver.status_name(claim))


class _Incumbents(cp_model.CpSolverSolutionCallback):  # type: ignore[misc]  # untyped
    """Reports each better solution with the bound known at that time."""

    def __init__(self, variables: list[cp_model.IntVar], report: Report) -> None:
        super().__init__()
        self._variables = variables
        self._report = report

    def on_solution_callback(self) -> None:
        values = np.array([self.value(variable) for variable in self._variables], dtype=np.int64)
        bound = integer_bound(self.best_objective_bound)
        self._report(SolverAnswer(SolveStatus.FEASIBLE, values, bound, detail="stopped while searching"))


def _configured(budget: Budget) -> cp_model.CpSolver:
    solver = cp_model.CpSolver()
    parameters = solver.parameters
    parameters.max_time_in_seconds = budget.seconds
    parameters.num_workers = budget.workers
    parameters.random_seed = budget.seed
    parameters.relative_gap_limit = budget.stop_gap
    # One worker with the full linear relaxation proves more than two with the default level.
    parameters.linearization_level = 2
    if budget.ticks is not None:
        parameters.max_deterministic_time = budget.ticks
        # Several workers are deterministic only with interleaved search.
        parameters.interleave_search = budget.workers > 1
    return solver
