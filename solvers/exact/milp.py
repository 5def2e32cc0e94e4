"""HiGHS: translate a formulation, relax it, search in several steps, map status and bound back."""

from __future__ import annotations

import time
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final

import highspy
import numpy as np

from gpuplan.models.plan.solution import SolveStatus
from gpuplan.solvers.exact.highs_model import csr_arrays, highs_model, row_bounds
from gpuplan.solvers.interface import RELATIVE_ERROR, SolverAnswer, integer_bound

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from gpuplan.models.formulation.rows import Cut, Formulation, Ints
    from gpuplan.solvers.interface import Budget, Report

    Floats = NDArray[np.float64]

_TOLERANCE: Final = 1e-6
"""Tolerance for column values of the linear relaxation."""

_NO_COLUMNS: Final = np.zeros(0, dtype=np.int64)


def solve(formulation: Formulation, budget: Budget, hint: Ints, report: Report) -> SolverAnswer:
    """
    Maximize with HiGHS.

    If there are many columns, the linear relaxation shows which of them matter. The first searches fix the
    other columns at their relaxed values. The last search frees all columns, if the answer is not yet close
    to the bound. The value of the relaxation is a bound on the whole problem.
    """
    run = _Highs(formulation, budget, report)
    params = budget.params.exact.highs
    ahead = len(formulation.later) > params.many_later
    relaxed = run.relax() if ahead or len(formulation.upper) > params.many_columns else None
    if relaxed is None:
        return run.maximize(hint, 1.0)
    known = hint
    if params.near_relaxation:
        look = _dive_and_search if ahead and params.dive else _search_near_relaxation
        known = look(run, formulation, hint, relaxed)
    if run.is_close(known):
        status = SolveStatus.OPTIMAL if formulation.points(known) == run.bound else SolveStatus.FEASIBLE
        return SolverAnswer(status, known, run.bound, detail="close to the bound")
    last = run.maximize(known, 1.0)
    if last.values is not None and _better(formulation, known, last.values) is last.values:
        return last
    return replace(last, status=SolveStatus.FEASIBLE, values=known)


def improve(formulation: Formulation, budget: Budget, hint: Ints, *, enough: int) -> SolverAnswer:
    """
    Search from a known answer for a better one, with presolve and so without a bound.

    The search ends as soon as an answer has `enough` points.
    """
    run = _Highs(formulation, budget, lambda _: None)
    run.stop_at(enough)
    return run.maximize(hint, 1.0, fixed=(_NO_COLUMNS, np.zeros(0)))


def _dive_and_search(run: _Highs, formulation: Formulation, hint: Ints, relaxed: Floats) -> Ints:
    """
    Best answer near the linear relaxation for a problem with many later starts.

    A vertex of the relaxation has few fractional values. The first search also fixes all starts that are
    integral there. This leaves a tiny problem, which is sometimes infeasible. The second search fixes at 0
    only those columns of later starts that the relaxation does not use.
    """
    starts = np.array(formulation.now + formulation.later)
    settled = np.union1d(
        _columns_to_fix(run, relaxed, run.params.shares_of_free_columns[0]),
        starts[_is_integral(relaxed[starts])],
    )
    # Without a hint: the fixed columns may contradict greedy's plan.
    dive = run.maximize(None, run.params.share_of_dive, fixed=(settled, np.rint(relaxed[settled])))
    known = hint if dive.values is None else _better(formulation, dive.values, hint)
    later = np.array(formulation.later)
    return _search_near_relaxation(
        run, formulation, known, relaxed, start=known, unused=later[relaxed[later] < _TOLERANCE]
    )


def _search_near_relaxation(
    run: _Highs,
    formulation: Formulation,
    hint: Ints,
    relaxed: Floats,
    *,
    start: Ints | None = None,
    unused: Ints = _NO_COLUMNS,
) -> Ints:
    """
    Best answer in which only columns of small reduced cost may differ from the relaxation.

    A column that differs from the relaxation in `start` stays free. Without it, what is fixed may leave no
    answer at all; then the hint is the start. Other columns in `unused` are fixed whatever their reduced
    cost.
    """
    known = hint
    for part in run.params.shares_of_free_columns:
        if part >= 1 and start is not None:
            # The last search frees all columns too, and proves a bound.
            break
        columns = np.union1d(_columns_to_fix(run, relaxed, part), unused)
        near = _search_near(run, columns, relaxed, start)
        if near.values is None and start is None and part < 1:
            start = known = run.within_support(hint)
            near = _search_near(run, columns, relaxed, start)
        if near.values is not None:
            start = near.values
            known = _better(formulation, start, known)
            if run.is_close(known):
                break
    return known


def _search_near(run: _Highs, columns: Ints, relaxed: Floats, start: Ints | None) -> SolverAnswer:
    """Search with these columns fixed at their relaxed values, but for those that differ in `start`."""
    fixed = columns if start is None else columns[start[columns] == np.rint(relaxed[columns])]
    return run.maximize(start, run.params.share_of_core, fixed=(fixed, np.rint(relaxed[fixed])))


def _columns_to_fix(run: _Highs, relaxed: Floats, part: float) -> Ints:
    """Columns to fix: integral in the relaxation, without the fraction `part` of least reduced cost."""
    # A column of large reduced cost costs much to move off its relaxed value, whatever the sign.
    dearest = np.argsort(-np.abs(run.reduced_costs), kind="stable")[: -int(part * len(relaxed))]
    return dearest[_is_integral(relaxed[dearest])]


def _is_integral(values: Floats) -> NDArray[np.bool_]:
    return np.abs(values - np.rint(values)) < _TOLERANCE


def relax(formulation: Formulation, budget: Budget, hint: Ints, report: Report) -> SolverAnswer:  # noqa: ARG001
    """Solve only the linear relaxation: a bound, and a guess."""
    told: list[SolverAnswer] = []

    def tell(answer: SolverAnswer) -> None:
        told.append(answer)
        report(answer)

    _Highs(formulation, budget, tell).relax()
    return told[-1]


def _better(formulation: Formulation, one: Ints, other: Ints) -> Ints:
    """The answer with more points; whatever its points, one that violates no row before one that does."""
    first, second = ((not formulation.missing_rows(each), formulation.points(each)) for each in (one, other))
    return one if first > second else other


class _Highs:
    """A model that HiGHS gets once and solves in several ways; HiGHS minimizes the negated objective."""

    def __init__(self, formulation: Formulation, budget: Budget, report: Report) -> None:
        self._formulation, self._budget, self._report = formulation, budget, report
        self.params = budget.params.exact.highs
        self.bound: int | None = None
        """Upper bound on the objective; None while unknown."""
        self.reduced_costs: Floats = np.zeros(len(formulation.upper))
        """Reduced cost of each column at the vertex found, with either sign."""
        self._cuts: list[Cut] = []
        """Cuts added to the model."""
        self._vertex: Floats = np.zeros(len(formulation.upper))
        """Column values at the best vertex of the relaxation; 0 while unknown."""
        self._highs = highspy.Highs()
        for name, value in {
            "output_flag": False,
            "mip_rel_gap": budget.stop_gap,
            "threads": budget.workers,
            "random_seed": budget.seed,
            # Points are integers: a gap below one point is a proof.
            "mip_abs_gap": 0.999,
        }.items():
            self._highs.setOptionValue(name, value)
        if budget.iterations is not None:
            self._highs.setOptionValue("simplex_iteration_limit", budget.iterations)
        if self._highs.passModel(highs_model(formulation)) == highspy.HighsStatus.kError:
            raise ValueError("HiGHS does not take the model")
        self._set_integrality(highspy.HighsVarType.kInteger)

    def stop_at(self, points: int) -> None:
        """End every search as soon as it has an answer with so many points."""
        self._highs.setOptionValue("objective_target", float(self._formulation.constant - points))

    def relax(self) -> Floats | None:
        """
        Column values at the best vertex of the linear relaxation; None if it took too long.

        Violated valid inequalities are added, for all later solves too, until there are none or the time is
        up. Large models start with the inequalities that they are likely to violate: this saves rounds there,
        and costs smaller models more than it saves. Presolve is off: it costs more than it saves here, and
        without it a stopped dual simplex holds multipliers of the model itself, which give a bound.
        """
        highs, formulation = self._highs, self._formulation
        self._set_integrality(highspy.HighsVarType.kContinuous)
        highs.setOptionValue("presolve", "off")
        values: Floats | None = None
        enough = time.monotonic() + self.params.share_of_covers * self._budget.seconds
        if self._budget.ticks is not None:
            enough = self._budget.deadline
        if len(formulation.upper) > self.params.many_columns_for_likely_covers:
            self._add(formulation.likely())
        told = False
        while self._run_relaxation():
            values = self._vertex = np.array(highs.getSolution().col_value)
            self.reduced_costs = np.array(highs.getSolution().col_dual)
            if time.monotonic() >= enough or not (cuts := formulation.broken(values)):
                break
            if not told:
                self._report(self._relaxed(None))
                told = True
            self._add(cuts)
        self._set_integrality(highspy.HighsVarType.kInteger)
        self._report(self._relaxed(values))
        return values

    def is_close(self, values: Ints) -> bool:
        """True if the gap of an answer that violates no row to the bound is not worth more time."""
        points = self._formulation.points(values)
        if self.bound is None or self.bound - points > self.params.accepted_gap * abs(points):
            return False
        return not self._formulation.missing_rows(values)

    def _run_relaxation(self) -> bool:
        highs = self._highs
        # HiGHS counts the time of all its runs together.
        highs.setOptionValue("time_limit", highs.getRunTime() + self._budget.seconds)
        highs.run()
        ended = highspy.HighsModelStatus
        solved = highs.getModelStatus() in (ended.kOptimal, ended.kModelEmpty)
        if solved:
            value = -highs.getInfo().objective_function_value
            self.bound = integer_bound(value, relative_error=RELATIVE_ERROR)
        return solved

    def _relaxed(self, values: Floats | None) -> SolverAnswer:
        """State of the relaxation as an answer; HiGHS minimizes, so its multipliers are negated."""
        guess = None if values is None else np.rint(values).astype(np.int64)
        multipliers = -np.array(self._highs.getSolution().row_dual)
        detail = "stopped while searching"
        status, cuts = SolveStatus.NO_ANSWER, tuple(self._cuts)
        return SolverAnswer(status, guess, self.bound, multipliers, cuts, detail, is_vertex=guess is not None)

    def _add(self, cuts: list[Cut]) -> None:
        """Add valid inequalities to the model."""
        if not cuts:
            return
        self._cuts += cuts
        rows = self._formulation.strengthened(cuts).rows[len(self._formulation.rows) :]
        columns, coefficients, starts = csr_arrays(rows)
        lower, upper = row_bounds(rows, highspy.kHighsInf)
        self._highs.addRows(len(rows), lower, upper, len(columns), starts[:-1], columns, coefficients)

    def maximize(
        self, hint: Ints | None, share: float, *, fixed: tuple[Ints, Floats] | None = None
    ) -> SolverAnswer:
        """
        Search for a share of the time left, from a hint if there is one.

        An answer that violates rows which were not stated is none. These are added, and first the columns
        that it, the hint and the relaxation use are searched again, then all. One that violates some is
        returned only if no other is known, and never as the optimum.
        """
        if not self._formulation.quota_covers:
            return self._search(hint, share, fixed=fixed)
        deadline, searches = time.monotonic() + share * self._budget.seconds, self.params.most_mendings
        best: Ints | None = None
        part = share
        while True:
            answer = self._search(hint, (1 - self.params.share_of_mending) * part, fixed=fixed)
            found, searches = self._mended(answer.values, hint, share, deadline, searches)
            if found is not None:
                best = found if best is None else _better(self._formulation, best, found)
            part = self._share_until(deadline, share)
            # It is there, or violates nothing, or there is no time or search left for another one.
            if found is answer.values or part <= 0 or searches <= 0:
                break
            # What was found on the way may contradict columns that are fixed.
            hint = hint if fixed is not None or best is None else best
        values = answer.values if best is None else best
        if values is None or (found is answer.values and values is found):
            return answer
        return replace(answer, status=SolveStatus.FEASIBLE, values=values)

    def within_support(self, hint: Ints) -> Ints:
        """The best answer of the columns that the hint and the relaxation use; the hint if none is better."""
        found = self.maximize(hint, self.params.share_of_core, fixed=self._unused(hint))
        return hint if found.values is None else _better(self._formulation, found.values, hint)

    def _unused(self, *answers: Ints | None) -> tuple[Ints, Floats]:
        """Columns that neither the relaxation uses nor any of some answers, to fix at 0."""
        used = self._vertex > _TOLERANCE
        for answer in answers:
            used |= False if answer is None else answer > 0
        unused = np.flatnonzero(~used)
        return unused, np.zeros(len(unused))

    def _mended(
        self, values: Ints | None, hint: Ints | None, share: float, deadline: float, searches: int
    ) -> tuple[Ints | None, int]:
        """
        The answer itself or one near it that violates no row, and how many searches are left.

        None if there is none, or no time or search left to find one. All rows violated on the way are added.
        """
        found = values
        while found is not None and (missing := self._formulation.missing_rows(found)):
            known = {*self._cuts}
            if not (new := [each for each in missing if each not in known]):
                # HiGHS satisfies a row within its tolerance only: more searches bring nothing else.
                return None, 0
            self._add(new)
            if searches <= 0 or (part := self._share_until(deadline, share)) <= 0:
                return None, searches
            searches -= 1
            found = self._search(hint, part, fixed=self._unused(found, hint)).values
        return found, searches

    def _share_until(self, deadline: float, share: float) -> float:
        """Share of the time left until an instant; where the clock decides nothing, that of each search."""
        if self._budget.ticks is not None:
            return share
        return (deadline - time.monotonic()) / max(1e-9, self._budget.seconds)

    def _search(self, hint: Ints | None, share: float, *, fixed: tuple[Ints, Floats] | None) -> SolverAnswer:
        """
        Search once for a share of the time left.

        With `fixed` columns the bound stays that of the relaxation: a bound on the restricted model does not
        hold for the whole. Without them presolve is off: with presolve HiGHS 1.12 to 1.15 prove false bounds
        on some models (docs/decisions/0010-proofs-without-presolve.md).
        """
        highs = self._highs
        if fixed is not None:
            self._set_bounds(fixed[0], fixed[1], fixed[1])
        # The basis of the last run belongs to other bounds; no answer is to depend on what came before.
        highs.clearSolver()
        highs.setOptionValue("presolve", "choose" if fixed is not None else "off")
        if hint is not None:
            start = highspy.HighsSolution()
            start.col_value = hint.astype(np.float64).tolist()
            highs.setSolution(start)
        watch = _Watch(
            highspy.cb.HighsCallbackType, self._report, self.bound, self._formulation, whole=fixed is None
        )
        highs.setCallback(watch, None)
        for kind in watch.kinds:
            highs.startCallback(kind)
        # With ticks the clock is only a safety stop.
        clock = 1.0 if self._budget.ticks is not None else share
        highs.setOptionValue("time_limit", clock * self._budget.seconds)
        if self._budget.ticks is not None:
            highs.setOptionValue(
                "mip_max_nodes", int(share * self._budget.ticks * self.params.nodes_per_tick)
            )
        highs.run()
        info = highs.getInfo()
        if fixed is None and np.isfinite(info.mip_dual_bound):
            bound = integer_bound(-info.mip_dual_bound, relative_error=RELATIVE_ERROR)
            self.bound = bound if self.bound is None else min(bound, self.bound)
        answer = self._answer(info, whole=fixed is None)
        if fixed is not None:  # HiGHS drops its final status as soon as the model changes
            columns = fixed[0]
            upper = self._formulation.upper[columns].astype(np.float64)
            self._set_bounds(columns, np.zeros(len(columns)), upper)
        return answer

    def _answer(self, info: Any, *, whole: bool) -> SolverAnswer:
        ended, highs = highspy.HighsModelStatus, self._highs
        has_values = info.primal_solution_status == int(highspy.kSolutionStatusFeasible)
        stopped = SolveStatus.FEASIBLE if has_values else SolveStatus.NO_ANSWER
        status = {
            ended.kOptimal: SolveStatus.OPTIMAL if whole else stopped,
            ended.kModelEmpty: SolveStatus.OPTIMAL,
            ended.kInfeasible: SolveStatus.INFEASIBLE if whole else SolveStatus.NO_ANSWER,
            ended.kTimeLimit: stopped,
            ended.kSolutionLimit: stopped,
            ended.kInterrupt: stopped,
            # The time ran out before the search began.
            ended.kNotset: stopped,
        }.get(highs.getModelStatus(), SolveStatus.FAILED)
        detail = highs.modelStatusToString(highs.getModelStatus())
        if status not in (SolveStatus.OPTIMAL, SolveStatus.FEASIBLE):
            return SolverAnswer(status, bound=self.bound, detail=detail)
        values = np.rint(np.array(highs.getSolution().col_value)).astype(np.int64)
        return SolverAnswer(status, values, self.bound, detail=detail)

    def _set_integrality(self, kind: Any) -> None:
        count = len(self._formulation.upper)
        kinds = np.full(count, int(kind), dtype=np.uint8)
        self._highs.changeColsIntegrality(count, np.arange(count, dtype=np.int32), kinds)

    def _set_bounds(self, columns: Ints, lower: Floats, upper: Floats) -> None:
        self._highs.changeColsBounds(len(columns), columns.astype(np.int32), lower, upper)


class _Watch:
    """Reports better solutions and bounds while HiGHS runs."""

    def __init__(
        self, kinds: Any, report: Report, bound: int | None, formulation: Formulation, *, whole: bool
    ) -> None:
        """`bound` is the bound so far; a bound from HiGHS counts only if it solves the `whole` model."""
        self._whole = whole
        self._solution, self._log = kinds.kCallbackMipImprovingSolution, kinds.kCallbackMipLogging
        self._report, self._formulation = report, formulation
        self._values: Ints | None = None
        self._bound = bound

    @property
    def kinds(self) -> tuple[Any, Any]:
        """Kinds of callbacks that HiGHS must call."""
        return self._solution, self._log

    def __call__(self, kind: Any, _message: str, out: Any, *_: Any) -> None:
        """Take over a solution or bound from HiGHS, and report it if it is better."""
        news = False
        if kind == self._solution:
            values = np.rint(np.array(out.mip_solution)).astype(np.int64)
            if news := not self._formulation.missing_rows(values):
                self._values = values
        if self._whole and np.isfinite(out.mip_dual_bound):
            bound = integer_bound(-out.mip_dual_bound, relative_error=RELATIVE_ERROR)
            news |= self._bound is None or bound < self._bound
            self._bound = bound if self._bound is None else min(bound, self._bound)
        if news:
            found = SolveStatus.NO_ANSWER if self._values is None else SolveStatus.FEASIBLE
            self._report(SolverAnswer(found, self._values, self._bound, detail="stopped while searching"))
