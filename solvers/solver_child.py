"""
Run an exact solver on a problem: in a child process, or in this process if the problem is small.

Only the child builds the block model, so that it takes no memory or time elsewhere; results come back in
terms of the problem. Claims of a solver are used only as far as they can be checked, and the checks are made
here too.

To start a process takes half a second, to solve a small problem a few milliseconds. So a small problem is
first tried in the planner's own process, by HiGHS alone, within limits of size and work that leave it no time
to hang.
"""

from __future__ import annotations

import logging
import math
import pkgutil
import time
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final

import numpy as np

from gpuplan.models.formulation import formulate
from gpuplan.models.formulation.columns import Columns
from gpuplan.models.formulation.decode import decode
from gpuplan.models.formulation.encode import encode
from gpuplan.models.plan.solution import DesiredState, SolveStatus
from gpuplan.solvers.dual_bound import exact_bound
from gpuplan.solvers.interface import RELAXES_FIRST, SolverAnswer, begins_with_relaxation, validated_answer

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from gpuplan.models.formulation.decode import Aggregate
    from gpuplan.models.formulation.params import FormulationParams
    from gpuplan.models.formulation.rows import Ints
    from gpuplan.models.problem.problem import Problem
    from gpuplan.solvers.interface import Budget, Solver
    from gpuplan.solvers.params.exact import SolverChildParams
    from gpuplan.solvers.shared_model import ModelPart

RELAXATION: Final = "relaxation"
"""The stage before a solver's own."""

RELAXATION_ENTRY: Final = "gpuplan.solvers.exact.milp:relax"

_LOG: Final = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class SolverTask:
    """A problem, and the solver to run on it."""

    problem: Problem
    idle: DesiredState
    """The plan that changes nothing."""
    known: DesiredState
    """The best plan so far."""
    solver: str | None
    """An entry point; None if only a bound is wanted."""
    relax: bool
    """True if the linear relaxation must be solved first, unless the solver does so itself."""
    part: ModelPart | None = None
    """The part of a whole model that the problem is; None if it must have a model of its own."""


@dataclass(frozen=True, slots=True)
class SolverFinding:
    """Claims of a solver that no check contradicts."""

    stage: str
    status: SolveStatus
    final: bool
    """True if this stage reports nothing more."""
    is_vertex: bool = False
    """True if it is the rounded vertex at which the linear relaxation ended."""
    aggregate: Aggregate | None = None
    """With NO_ANSWER a guess that may violate rows."""
    found: int | None = None
    """Points of the aggregate."""
    claimed_bound: int | None = None
    """Upper bound that the solver claims."""
    proven: int | None = None
    """Upper bound that follows from the solver's multipliers, whatever these are."""
    fault: str = ""
    """Why the values of the columns cannot be used; empty if they can, or if there are none."""
    detail: str = ""
    """The solver's own status text."""


def solve_block_model(
    question: SolverTask, budget: Budget, report: Callable[[object], None]
) -> SolverFinding:
    """Build the block model and solve it; report findings on the way."""
    began, params = time.monotonic(), budget.params.exact
    case = _SolverRace(question, budget.params.formulation, report)
    solver = question.solver
    if budget.ticks is None:
        # There must be time to translate the answer into terms of the problem.
        reporting = params.child.share_of_reporting * (time.monotonic() - began)
        budget = replace(budget, deadline=budget.deadline - reporting)
    if question.relax and not (solver and begins_with_relaxation(solver, case.formulation, params.highs)):
        deadline = budget.deadline
        if solver and budget.ticks is None:
            deadline -= (1 - params.child.share_of_relaxation) * budget.seconds
        case.relax(replace(budget, deadline=deadline))
    if solver is None:
        return SolverFinding(RELAXATION, SolveStatus.NO_ANSWER, final=False)
    return case.solve(solver, budget, _hint(case.x, question))


def is_small(problem: Problem, params: SolverChildParams) -> bool:
    """True if the model of a problem can be built and relaxed in a fraction of a second."""
    return starts_to_choose(problem) <= params.few_choices and len(problem.nodes) <= params.few_nodes


def starts_to_choose(problem: Problem) -> int:
    """Possible starts (class, group, slot) plus running jobs that may leave: what the model grows with."""
    starts = sum(len(option.groups) for one in problem.classes for option in one.options)
    return starts * problem.slots + len(problem.incumbents)


def solve_in_process(question: SolverTask, budget: Budget) -> Iterator[SolverFinding]:
    """
    Build the model of a small problem and solve it by HiGHS in this process: relaxed, then in integers.

    A solve that does not end within a fixed amount of work yields nothing, as if it had not been tried.
    """
    params = budget.params.exact.child
    case = _SolverRace(question, budget.params.formulation, lambda _: None)
    columns = len(case.formulation.upper)
    if columns > params.few_columns:
        return
    deadline = budget.deadline
    if budget.ticks is None:
        deadline = min(deadline, time.monotonic() + params.seconds)
    budget = replace(budget, deadline=deadline, workers=1, ticks=params.ticks, iterations=params.iterations)
    try:
        if question.relax:
            finding = case.relax(budget)
            if finding.claimed_bound is None:
                return
            yield finding
        if question.solver == RELAXES_FIRST and columns <= params.very_few_columns:
            finding = case.solve(question.solver, budget, _hint(case.x, question))
            if finding.status is SolveStatus.OPTIMAL:
                yield finding
    except Exception:  # noqa: BLE001 - any library error: the child process tries again and reports it
        _LOG.warning("phase=solve broke=here", exc_info=True)


def relaxed_bound(
    problem: Problem,
    part: ModelPart | None,
    budget: Budget,
    latest: float = math.inf,
    report: Callable[[object], None] = lambda _: None,
) -> int | None:
    """
    Upper bound from the multipliers that the simplex method reaches in this process; None if it has none.

    The model is built in any case. The simplex method ends at the deadline, or if the model came late, after
    as long again, but not after the `latest` instant.
    """
    began = time.monotonic()
    try:
        nothing = DesiredState(())
        question = SolverTask(problem, nothing, nothing, None, relax=True, part=part)
        case = _SolverRace(question, budget.params.formulation, report)
        deadline = min(latest, max(budget.deadline, 2 * time.monotonic() - began))
        return case.relax(replace(budget, deadline=deadline, workers=1)).proven
    except Exception:  # noqa: BLE001 - any library error: the plan does without
        _LOG.warning("phase=bound broke=here", exc_info=True)
        return None


def _hint(x: Columns, question: SolverTask) -> Ints:
    """Column values of the best plan so far, or of no change if a column for it is missing."""
    try:
        return encode(x, question.known)
    except KeyError as error:
        # A legal plan that the problem does not offer: the solver starts from no change instead of failing.
        _LOG.warning("phase=formulate hint=none missing_column=%s", error)
        return encode(x, question.idle)


class _SolverRace:
    """The block model, and checks of what solvers claim about it."""

    def __init__(
        self, question: SolverTask, params: FormulationParams, report: Callable[[object], None]
    ) -> None:
        self._part, self._report = question.part, report
        whole = None if question.part is None else question.part.whole
        if question.part is None or whole is None:
            self._part = None
            self.x = Columns(question.problem, params)
            self.formulation = formulate(question.problem, self.x)
        else:
            self.x, self.formulation = whole.columns, question.part.formulation(whole)

    def relax(self, budget: Budget) -> SolverFinding:
        """Solve the linear relaxation and report its bound and its rounded vertex."""
        relax: Solver = pkgutil.resolve_name(RELAXATION_ENTRY)
        try:
            answer = validated_answer(
                relax(self.formulation, budget, np.zeros_like(self.formulation.upper), self._hear(RELAXATION))
            )
        except ImportError as error:
            answer = SolverAnswer(SolveStatus.FAILED, detail=str(error))
        answer = answer or SolverAnswer(SolveStatus.FAILED, detail="gave no answer")
        finding = self._finding(RELAXATION, answer, final=True)
        self._report(finding)
        # Cuts that tighten the relaxation help every solver.
        if self.formulation.has_cuts(answer.cuts):
            self.formulation = self.formulation.strengthened(answer.cuts)
        return finding

    def solve(self, solver: str, budget: Budget, hint: Ints) -> SolverFinding:
        """Run a solver and check its answer."""
        entry: Solver = pkgutil.resolve_name(solver)
        answer = validated_answer(entry(self.formulation, budget, hint, self._hear(solver)))
        answer = answer or SolverAnswer(SolveStatus.FAILED, detail="gave no answer")
        return self._finding(solver, answer, final=True)

    def _hear(self, stage: str) -> Callable[[SolverAnswer], None]:
        def hear(message: object) -> None:
            if (answer := validated_answer(message)) is not None:
                self._report(self._finding(stage, answer, final=False))

        return hear

    def _finding(self, stage: str, answer: SolverAnswer, *, final: bool) -> SolverFinding:
        guess = answer.status is SolveStatus.NO_ANSWER
        fault = self._fault(answer)
        values = answer.values if not fault else None
        if values is not None and guess:
            values = values.clip(0, self.formulation.upper)
        return SolverFinding(
            stage,
            answer.status,
            final,
            is_vertex=guess and answer.is_vertex and values is not None,
            aggregate=None if values is None or (guess and not answer.is_vertex) else self._decoded(values),
            found=None if values is None or guess else self.formulation.points(values),
            claimed_bound=answer.bound,
            proven=self._proven(answer),
            fault=fault,
            detail=answer.detail,
        )

    def _decoded(self, values: Ints) -> Aggregate:
        aggregate = decode(self.x, values)
        return aggregate if self._part is None else self._part.renumbered(aggregate)

    def _fault(self, answer: SolverAnswer) -> str:
        upper, values = self.formulation.upper, answer.values
        guess = answer.status not in (SolveStatus.OPTIMAL, SolveStatus.FEASIBLE)
        if values is None:
            return "" if guess else "gave no values for its columns"
        if values.shape != upper.shape:
            return "gave no values for its columns"
        if guess:
            return ""
        if (values < 0).any() or (values > upper).any():
            return "gave values outside their bounds"
        if broken := self.formulation.violated_rows(values):
            return f"broke {len(broken)} rows, the first of family {broken[0].family}"
        return ""

    def _proven(self, answer: SolverAnswer) -> int | None:
        """Upper bound that follows from multipliers; None without usable ones."""
        multipliers, cuts = answer.multipliers, answer.cuts
        if multipliers is None or not self.formulation.has_cuts(cuts):
            return None
        formulation = self.formulation.strengthened(cuts)
        if multipliers.shape != (len(formulation.rows),):
            return None
        return exact_bound(formulation, multipliers) + formulation.constant
