"""The CBC that PuLP bundles: translate a formulation, map the status back."""

from __future__ import annotations

import warnings
from contextlib import contextmanager
from typing import TYPE_CHECKING, Final

import numpy as np
import pulp

from gpuplan.models.plan.solution import SolveStatus
from gpuplan.solvers.interface import RELATIVE_ERROR, SolverAnswer, integer_bound

if TYPE_CHECKING:
    from collections.abc import Iterator

    from gpuplan.models.formulation.rows import Formulation, Ints
    from gpuplan.solvers.interface import Budget, Report


# PuLP reports "Optimal" in `status` for a run that hit its time limit; only `sol_status` tells a proof.
_STATUS: Final = {
    pulp.LpSolutionOptimal: SolveStatus.OPTIMAL,
    pulp.LpSolutionIntegerFeasible: SolveStatus.FEASIBLE,
    pulp.LpSolutionInfeasible: SolveStatus.INFEASIBLE,
    pulp.LpSolutionNoSolutionFound: SolveStatus.NO_ANSWER,
    pulp.LpSolutionUnbounded: SolveStatus.FAILED,
}


def solve(formulation: Formulation, budget: Budget, hint: Ints, report: Report) -> SolverAnswer:  # noqa: ARG001
    """Maximize with CBC; it reports no bound but that of an optimum."""
    problem, variables = _lower(formulation)
    with _announcements_ignored():
        cbc = pulp.PULP_CBC_CMD(
            msg=False, timeLimit=budget.seconds, gapRel=budget.stop_gap, threads=budget.workers
        )
    problem.solve(cbc)
    status = _STATUS.get(problem.sol_status, SolveStatus.FAILED)
    detail = pulp.LpSolution[problem.sol_status]
    if status not in (SolveStatus.OPTIMAL, SolveStatus.FEASIBLE):
        return SolverAnswer(status, detail=detail)
    values = np.array([round(variable.value() or 0) for variable in variables], dtype=np.int64)
    proven = status is SolveStatus.OPTIMAL and budget.stop_gap == 0
    bound = integer_bound(pulp.value(problem.objective), relative_error=RELATIVE_ERROR) if proven else None
    return SolverAnswer(status, values, bound, detail=detail)


@contextmanager
def _announcements_ignored() -> Iterator[None]:
    """Ignore the warnings of PuLP 3 about names that PuLP 4 drops."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)
        yield


@_announcements_ignored()
def _lower(formulation: Formulation) -> tuple[pulp.LpProblem, list[pulp.LpVariable]]:
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
