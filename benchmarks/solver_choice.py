"""
`python -m benchmarks.solver_choice [SIZE …]`: one block model, one hint, four solvers; a Markdown table.

The question is which solver to ship and which to try first. Each runs in its own process, with one worker,
from greedy's plan. The progress comes from the solver's own reports, for SCIP from its log. CBC reports no
progress, so it runs once per instant.
"""

from __future__ import annotations

import argparse
import resource
import time
from dataclasses import dataclass, field
from datetime import timedelta
from typing import TYPE_CHECKING, Any, Final, cast

import numpy as np

from benchmarks.sizes import SIZES, made_up
from gpuplan.models.formulation import formulate
from gpuplan.models.formulation.columns import Columns
from gpuplan.models.formulation.encode import encode
from gpuplan.models.plan.solution import SolveStatus
from gpuplan.models.policy.policy import Policy
from gpuplan.planner.problem_builder import build_problem
from gpuplan.solvers.exact import cbc, cpsat, milp
from gpuplan.solvers.heuristics.greedy import greedy
from gpuplan.solvers.interface import Budget, SolverAnswer, integer_bound
from gpuplan.solvers.targets.to_target import target_of
from gpuplan.solvers.worker import run_in_child

if TYPE_CHECKING:
    from collections.abc import Callable

    from gpuplan.models.formulation.rows import Formulation, Ints
    from gpuplan.solvers.interface import Report

INSTANTS: Final = (5, 10, 30)
"""Seconds after which the progress is shown; models with more than 20,000 columns also have 60."""

LARGE: Final = 20_000

WATCHED: Final = "benchmarks.solver_choice:watched"

STARTING: Final = 30
"""Extra seconds for a process to start, to build the model and to end."""


def scip(formulation: Formulation, budget: Budget, hint: Ints, report: Report) -> SolverAnswer:
    """Maximize with the SCIP of OR-Tools, through MathOpt."""
    # Imported here to keep it apart from the HiGHS of another solver: one solver library per process.
    from ortools.math_opt import model_pb2  # noqa: PLC0415
    from ortools.math_opt.python import mathopt  # noqa: PLC0415

    proto = model_pb2.ModelProto()
    rows, count = formulation.rows, len(formulation.upper)
    proto.variables.ids.extend(range(count))
    proto.variables.lower_bounds.extend([0.0] * count)
    proto.variables.upper_bounds.extend(formulation.upper.tolist())
    proto.variables.integers.extend([True] * count)
    proto.objective.maximize = True
    earning = np.flatnonzero(formulation.objective)
    proto.objective.linear_coefficients.ids.extend(earning.tolist())
    proto.objective.linear_coefficients.values.extend(formulation.objective[earning].tolist())
    proto.linear_constraints.ids.extend(range(len(rows)))
    infinite = float("inf")
    proto.linear_constraints.lower_bounds.extend(
        [-infinite if row.lower is None else row.lower for row in rows]
    )
    proto.linear_constraints.upper_bounds.extend(
        [infinite if row.upper is None else row.upper for row in rows]
    )
    for index, row in enumerate(rows):
        order = np.argsort(row.columns)
        proto.linear_constraint_matrix.row_ids.extend([index] * len(order))
        proto.linear_constraint_matrix.column_ids.extend(row.columns[order].tolist())
        proto.linear_constraint_matrix.coefficients.extend(row.coefficients[order].tolist())
    model = mathopt.Model.from_model_proto(proto)
    variables = sorted(model.variables(), key=lambda variable: variable.id)
    start = mathopt.SolutionHint(dict(zip(variables, map(float, hint.tolist()), strict=True)))
    result = mathopt.solve(
        model,
        mathopt.SolverType.GSCIP,
        params=mathopt.SolveParameters(
            time_limit=timedelta(seconds=budget.seconds),
            threads=budget.workers,
            random_seed=budget.seed,
            absolute_gap_tolerance=0.999,
        ),
        model_params=mathopt.ModelSolveParameters(solution_hints=[start]),
        msg_cb=_Table(report),
    )
    reason = result.termination.reason
    bounds = result.termination.objective_bounds
    bound = integer_bound(bounds.dual_bound) if np.isfinite(bounds.dual_bound) else None
    if not result.has_primal_feasible_solution():
        return SolverAnswer(SolveStatus.NO_ANSWER, bound=bound, detail=str(reason))
    found = result.variable_values(variables)
    values = np.rint(np.array(found)).astype(np.int64)
    proven = reason is mathopt.TerminationReason.OPTIMAL
    return SolverAnswer(
        SolveStatus.OPTIMAL if proven else SolveStatus.FEASIBLE, values, bound, detail=str(reason)
    )


class _Table:
    """Reads the bounds from the table in SCIP's log: "… | dual bound | primal bound | gap | completed"."""

    def __init__(self, report: Report) -> None:
        self._report = report

    def __call__(self, lines: Any) -> None:
        for line in lines:
            cells = [cell.strip() for cell in line.split("|")]
            try:
                dual, primal = float(cells[-4]), float(cells[-3])
            except (IndexError, ValueError):
                continue
            self._report(_Told(SolveStatus.FEASIBLE, None, integer_bound(dual), points=round(primal)))


@dataclass(frozen=True, slots=True)
class _Told(SolverAnswer):
    """A line of a log: points without values."""

    points: int = 0


SOLVERS: Final = {"HiGHS": milp.solve, "SCIP": scip, "CP-SAT": cpsat.solve, "CBC": cbc.solve}
TELLS_NOTHING: Final = frozenset({"CBC"})


@dataclass
class Course:
    """Progress of a solver over time."""

    points: list[tuple[float, int]] = field(default_factory=list)
    """(seconds, points) of each better answer."""
    bounds: list[tuple[float, int]] = field(default_factory=list)
    peak_mib: float = 0.0
    """Peak of the process, including Python and the model; for CBC, the peak of its own process."""
    ended: str = ""

    def had(self, seconds: float, hint: int) -> tuple[int, int | None]:
        """Most points and least bound known after `seconds`."""
        points = [value for at, value in self.points if at <= seconds]
        bounds = [value for at, value in self.bounds if at <= seconds]
        return max([hint, *points]), min(bounds, default=None)


def watched(
    solver: str, formulation: Formulation, hint: Ints, seconds: float, report: Callable[[object], None]
) -> Course:
    """Run a solver in this process and report its progress, in case the process is killed."""
    course = Course()
    began = time.monotonic()

    def note(answer: SolverAnswer) -> None:
        at = time.monotonic() - began
        if isinstance(answer, _Told):
            course.points.append((at, answer.points))
        elif answer.values is not None and not formulation.violated_rows(answer.values):
            course.points.append((at, formulation.points(answer.values)))
        if answer.bound is not None:
            course.bounds.append((at, answer.bound + formulation.constant))
        both = (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)
        course.peak_mib = max(resource.getrusage(usage).ru_maxrss for usage in both) / 1024
        report(course)

    answer = SOLVERS[solver](formulation, Budget(began + seconds), hint, note)
    course.ended = f"{answer.status.value.lower()}, {time.monotonic() - began:.1f} s"
    note(answer)
    return course


def apart(solver: str, formulation: Formulation, hint: Ints, seconds: float) -> Course:
    """Run a solver in a new process, which is killed if it does not end soon after its time limit."""
    outcome = run_in_child(WATCHED, (solver, formulation, hint, seconds), seconds + STARTING, lambda _: None)
    course = cast("Course", outcome.last or Course())
    course.ended = course.ended or outcome.failure or f"killed {STARTING} s late"
    return course


def question_of(name: str) -> tuple[Formulation, Ints]:
    """The block model of a synthetic cluster, with greedy's plan as the hint."""
    snapshot = made_up(SIZES[name], seed=1).canonical()
    problem = build_problem(snapshot, Policy())
    x = Columns(problem)
    return formulate(problem, x), encode(x, target_of(greedy(problem), snapshot.running_placements))


def lines(name: str) -> None:
    formulation, hint = question_of(name)
    instants = (*INSTANTS, 60) if len(formulation.upper) > LARGE else INSTANTS
    start = formulation.points(hint)
    for solver in SOLVERS:
        if solver in TELLS_NOTHING:
            runs = {seconds: apart(solver, formulation, hint, seconds) for seconds in instants}
            course = runs[instants[-1]]
            had = [runs[seconds].had(seconds + STARTING, start) for seconds in instants]
        else:
            course = apart(solver, formulation, hint, instants[-1])
            had = [course.had(seconds, start) for seconds in instants]
        better = [at for at, points in course.points if points > start]
        first = f"{better[0]:.1f} s" if better else "–"
        cells = [f"{points:,} / {'–' if bound is None else f'{bound:,}'}" for points, bound in had]
        cells += ["–"] * (len(INSTANTS) + 1 - len(cells))
        row = (f"{name} ({start:,})", solver, first, *cells, f"{course.peak_mib:.0f} MiB", course.ended)
        print("| " + " | ".join(row) + " |", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("sizes", nargs="*", default=["S", "M", "L", "L5"], help=", ".join(SIZES))
    chosen = parser.parse_args()
    instants = [f"at {seconds} s" for seconds in (*INSTANTS, 60)]
    head = ("case (hint)", "solver", "first improvement", *instants, "peak memory", "ended")
    print("| " + " | ".join(head) + " |\n" + "|" + "---|" * len(head))
    for name in chosen.sizes:
        lines(name)


if __name__ == "__main__":
    main()
