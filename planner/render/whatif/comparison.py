"""A comparison as text: the base in one column, and the differences of each scenario in one more."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from gpuplan.planner.render.plan.header import format_gap, gpu_hours_text, percent, request_lines
from gpuplan.planner.render.style import Style, Tone
from gpuplan.planner.render.table import Table, TableRow
from gpuplan.planner.text_format import format_count, format_duration
from gpuplan.planner.whatif.compare import JobOutcomeChange, JobOutcomeKind

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from gpuplan.models.plan.reason import ReasonCode
    from gpuplan.planner.whatif.compare import Comparison, Trial
    from gpuplan.planner.whatif.measures import PlanFigures


_LONGEST_NAME: Final = 14
"""Length of a scenario name in a column head; the list above the table shows the full name."""

# Spaces between two columns of a table.
_GAP: Final = 2
_SAME: Final = "="
_UNKNOWN: Final = "?"
_NONE: Final = "-"


def comparison_text(comparison: Comparison, style: Style) -> str:
    """Scenarios, their figures beside those of the base, and unmet expectations."""
    lines = request_lines("What if", comparison, style)
    lines += [
        "",
        *Table([TableRow((each.name,), note=each.description) for each in comparison.scenarios]).lines(style),
    ]
    for block in _blocks(comparison, style):
        lines += ["", *block]
    for trial in comparison.scenarios:
        if told := job_outcome_lines(trial, style):
            lines += ["", *told]
    lines += [
        "",
        *_cares(comparison, style),
        *_faults(comparison, style),
        *style.wrap(_summary(comparison), 0),
    ]
    return "\n".join(lines) + "\n"


def _blocks(comparison: Comparison, style: Style) -> Iterator[list[str]]:
    """The table in as many parts as the width requires; each part begins with the base."""
    base = comparison.base.figures
    planned = [trial for trial in comparison.scenarios if trial.figures is not None]
    if base is None:
        return
    rows = comparison_table(base, planned).rows
    names = [style.cut(trial.name, _LONGEST_NAME) for trial in planned]
    columns = zip(("", "", *names), *(row.cells for row in rows), strict=True)
    label, of_base, *widths = (max(map(len, column)) for column in columns)
    for first, last in _parts(widths, style.width - label - of_base - 3 * _GAP):
        part = [TableRow((*row.cells[:2], *row.cells[2 + first : 2 + last])) for row in rows]
        yield Table(part, ("", "BASE", *names[first:last]), right=range(1, 2 + last - first)).lines(style)


def _parts(widths: Sequence[int], room: int) -> Iterator[tuple[int, int]]:
    """Spans of columns that fit side by side, at least one each; one empty span without columns."""
    first = taken = 0
    for index, width in enumerate(widths):
        if index > first and taken + width + _GAP > room:
            yield first, index
            first, taken = index, 0
        taken += width + _GAP
    yield first, len(widths)


def comparison_table(base: PlanFigures, trials: Sequence[Trial]) -> Table:
    """All figures of the base, and the differences of the scenarios from them."""
    heads = ("Figure", "base", *(trial.name for trial in trials))
    return Table(list(_rows(base, trials)), heads, right=range(1, len(heads)))


def _rows(base: PlanFigures, trials: Sequence[Trial]) -> Iterator[TableRow]:
    """
    All rows with information; a row of zeros only is left out.

    Points are compared only if jobs have equal worth in both policies. Otherwise rows on waits and durations
    show the effect of the goal.
    """
    columns = [trial.figures for trial in trials if trial.figures is not None]
    comparable = [trial.same_points for trial in trials if trial.figures is not None]
    reasons = sorted({code for each in (base, *columns) for code in each.waiting})
    models = sorted({use.gpu_model for each in (base, *columns) for use in each.gpu_models})
    terms = sorted({name for each in (base, *columns) for name in each.terms})
    whole = _Differing(base, columns)
    yield from whole.rows("jobs running", lambda each: each.jobs_running, always=True)
    yield from whole.rows("  started", lambda each: each.jobs_started, always=True)
    if not all(comparable):
        yield whole.times("    waited, mean", lambda each: each.started_waited_seconds)
        yield whole.times("    take, mean", lambda each: each.started_left_seconds)
    yield from whole.rows("jobs waiting", lambda each: each.jobs_waiting, always=True)
    if not all(comparable):
        yield whole.times("  waited, mean", lambda each: each.waiting_waited_seconds)
    yield from whole.rows("  preempted", lambda each: each.jobs_preempted)
    for code in reasons:
        yield from whole.rows(f"  {code}", _waiting(code))
    yield from whole.rows("lost GPU-hours", lambda each: each.lost_gpu_hours)
    yield from whole.rows("  by the changes", lambda each: each.lost_by_changes_gpu_hours)
    yield from whole.rows("GPUs usable", lambda each: each.figure("gpus_total"), always=True)
    yield from whole.rows("  held", lambda each: each.figure("gpus_held"), always=True)
    yield from whole.rows("  free", lambda each: each.figure("gpus_free"), always=True)
    yield from whole.ratios("GPUs allocated", lambda each: each.gpu_allocation_ratio)
    for model in models if len(models) > 1 else ():
        yield from whole.ratios(f"  {model}", _use(model))
    yield from whole.ratios("fragmentation", lambda each: each.fragmentation_ratio)
    yield from whole.rows("fairness", lambda each: round(each.jain_index, 2))
    yield from whole.rows("nodes added", lambda each: each.nodes_added)
    yield from whole.rows("nodes removed", lambda each: each.nodes_removed)
    yield from whole.rows("cost an hour", lambda each: round(each.hourly_cost, 2))
    points = [*whole.rows("objective", lambda each: each.objective, always=True)]
    for name in terms if len(terms) > 1 else ():
        points += whole.rows(f"  {name}", _term(name))
    for line in points:
        cells = (cell if same else _NONE for cell, same in zip(line.cells[2:], comparable, strict=True))
        yield TableRow((*line.cells[:2], *cells))
    yield from whole.rows("lost by changes", lambda each: -each.lost_by_changes_points)
    yield TableRow(("gap", *(_gap(each) for each in (base, *columns))))
    yield TableRow(("found in", *(f"{each.seconds:.1f} s" for each in (base, *columns))))


@dataclass(frozen=True, slots=True)
class _Differing:
    """Rows of one figure each: the value of the base, and the differences of the scenarios."""

    base: PlanFigures
    columns: Sequence[PlanFigures]

    def rows(
        self, label: str, value: Callable[[PlanFigures], float | None], *, always: bool = False
    ) -> Iterator[TableRow]:
        """A row of numbers; left out if all are 0, unless `always`."""
        base = value(self.base)
        others = [value(each) for each in self.columns]
        if always or base or any(others):
            yield TableRow((label, _number(base), *(_difference(each, base) for each in others)))

    def times(self, label: str, value: Callable[[PlanFigures], int | None]) -> TableRow:
        """A row of durations."""
        base = value(self.base)
        others = (_time_difference(value(each), base) for each in self.columns)
        return TableRow((label, _NONE if base is None else format_duration(base), *others))

    def ratios(self, label: str, value: Callable[[PlanFigures], float | None]) -> Iterator[TableRow]:
        """A row of percentages, with differences in percentage points."""
        base = value(self.base)
        others = [value(each) for each in self.columns]
        shown = _NONE if base is None else percent(base)
        yield TableRow((label, shown, *(_points(each, base) for each in others)))


def _waiting(code: ReasonCode) -> Callable[[PlanFigures], float]:
    return lambda each: each.waiting.get(code, 0)


def _term(name: str) -> Callable[[PlanFigures], float]:
    return lambda each: each.terms.get(name, 0)


def _use(model: str) -> Callable[[PlanFigures], float | None]:
    """Held part of the usable GPUs of a model; None if there are none."""

    def ratio(figures: PlanFigures) -> float | None:
        uses = (use for use in figures.gpu_models if use.gpu_model == model and use.usable)
        return next((use.ratio for use in uses), None)

    return ratio


def _number(value: float | None) -> str:
    return _UNKNOWN if value is None else f"{value:,.12g}"


def _difference(value: float | None, base: float | None) -> str:
    if value is None or base is None:
        return _number(value)
    change = round(value - base, 6)
    return f"{change:+,.12g}" if change else _SAME


def _time_difference(value: int | None, base: int | None) -> str:
    if value is None:
        return _NONE
    if base is None:
        return format_duration(value)
    change = value - base
    return f"{'+' if change > 0 else '-'}{format_duration(abs(change))}" if change else _SAME


def _points(value: float | None, base: float | None) -> str:
    if value is None:
        return _NONE
    if base is None:
        return percent(value)
    change = round(100 * (value - base), 1)
    return f"{change:+.1f}" if change else _SAME


def _gap(figures: PlanFigures) -> str:
    return _UNKNOWN if figures.gap is None else format_gap(figures.objective, figures.gap)


def _cares(comparison: Comparison, style: Style) -> list[str]:
    """Policies under which points mean something else, and policy settings without effect."""
    told = [
        f"{trial.name}: {care}"
        for trial in (comparison.base, *comparison.scenarios)
        for care in comparison_warnings(trial, comparison.base)
    ]
    lines = [line for text in told for line in style.told(text, Tone.CARE, hanging=2)]
    return [*lines, ""] if lines else []


def comparison_warnings(trial: Trial, base: Trial) -> list[str]:
    """Why the objective of a trial is not compared, if so, and the settings of its policy without effect."""
    if trial.same_points:
        return list(trial.warnings)
    if trial.goal == base.goal:
        why = f"by its policy, though the goal is {base.goal} in both"
    else:
        why = f"with the goal {trial.goal} than with that of the base, {base.goal}"
    return [f"its objective is not compared: jobs are worth something else {why}", *trial.warnings]


def _faults(comparison: Comparison, style: Style) -> list[str]:
    """Failures and unmet expectations."""
    told = [
        f"{trial.name}: {fault}"
        for trial in (comparison.base, *comparison.scenarios)
        for fault in (*((f"failed: {trial.failure}",) if trial.failure else ()), *trial.unmet)
    ]
    lines = [line for text in told for line in style.told(text, Tone.STOP, hanging=2)]
    return [*lines, ""] if lines else []


def _summary(comparison: Comparison) -> str:
    parts = [format_count(len(comparison.scenarios), "scenario"), *verdicts(comparison)]
    return f"{', '.join(parts)}. Figures of scenarios are differences from the base, shares in points."


def verdicts(comparison: Comparison) -> list[str]:
    """`1 failed`, `2 of 5 expectations not met`; if nothing is wrong, whether there were expectations."""
    failed = sum(bool(trial.failure) for trial in comparison.scenarios)
    unmet = sum(len(trial.unmet) for trial in comparison.scenarios)
    expected = format_count(comparison.expected, "expectation")
    bad = {
        "the base failed": comparison.base.failure,
        f"{failed:,} failed": failed,
        f"{unmet:,} of {expected} not met": unmet,
    }
    if comparison.sound:
        return [f"{expected} met" if comparison.expected else "no expectation stated"]
    return [words for words, is_so in bad.items() if is_so]


# The outcomes of jobs in a scenario, in words: stopped, losing work, waiting longer, moved, gaining.


_MOST_LINES: Final = 20
_ONE: Final = {
    JobOutcomeKind.STOPS: "stops",
    JobOutcomeKind.LOSES: "loses",
    JobOutcomeKind.WAITS_LONGER: "waits longer",
    JobOutcomeKind.MOVES: "moves",
    JobOutcomeKind.GAINS: "gains",
}
_MANY: Final = {
    JobOutcomeKind.STOPS: "stop",
    JobOutcomeKind.LOSES: "lose",
    JobOutcomeKind.WAITS_LONGER: "wait longer",
    JobOutcomeKind.MOVES: "move",
    JobOutcomeKind.GAINS: "gain",
}
_TONES: Final = {
    JobOutcomeKind.STOPS: Tone.STOP,
    JobOutcomeKind.LOSES: Tone.STOP,
    JobOutcomeKind.WAITS_LONGER: Tone.CARE,
    JobOutcomeKind.MOVES: Tone.CARE,
    JobOutcomeKind.GAINS: Tone.START,
}


def job_outcome_lines(trial: Trial, style: Style) -> list[str]:
    """The jobs of one scenario with a change against the base; empty if there are none."""
    if not trial.jobs:
        return []
    lines = job_outcome_table(trial.jobs[:_MOST_LINES]).lines(style, heads=False)
    left = len(trial.jobs) - _MOST_LINES
    more = [style.clean(f"  … {format_count(left, 'more job')} (--json has all)")] if left > 0 else []
    return [*style.wrap(f"{trial.name}: {job_outcome_counts(trial.jobs)}", 0), *lines, *more]


def job_outcome_table(jobs: Sequence[JobOutcomeChange]) -> Table:
    """A row per job: its outcome against the base, the difference in GPUs, and lost work."""
    rows = []
    for each in jobs:
        gpus = f"{each.gpus:+,g} GPUs" if each.gpus else ""
        lost = f"loses {gpu_hours_text(each.lost_gpu_hours)}" if each.lost_gpu_hours else ""
        cells = (each.job, each.queue, each.user, _ONE[each.fate], gpus, lost)
        rows.append(TableRow(cells, each.text, _TONES[each.fate]))
    heads = ("Job", "Queue", "User", "Against the base", "GPUs", "Work")
    return Table(rows, heads, note="How", right=(4,))


def job_outcome_counts(jobs: Sequence[JobOutcomeChange]) -> str:
    """`1 job stops, 2 move, 3 gain; 80 GPU-hours of work lost`."""
    count = Counter(each.fate for each in jobs)
    parts = [
        f"{count[fate]:,} {(_ONE if count[fate] == 1 else _MANY)[fate]}"
        for fate in JobOutcomeKind
        if count[fate]
    ]
    number, _, verb = parts[0].partition(" ")
    parts[0] = f"{number} job{'' if number == '1' else 's'} {verb}"
    lost = sum(each.lost_gpu_hours for each in jobs)
    return ", ".join(parts) + (f"; {gpu_hours_text(lost)} of work lost" if lost else "")
