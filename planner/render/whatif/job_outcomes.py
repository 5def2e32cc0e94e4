"""The outcomes of jobs in a scenario, in words: stopped, losing work, waiting longer, moved, gaining."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Final

from gpuplan.models.units import MILLI
from gpuplan.planner.render.style import Tone
from gpuplan.planner.render.table import TableRow, table
from gpuplan.planner.text_format import format_count, format_gpu_hours
from gpuplan.planner.whatif.answers.comparison import JobOutcomeKind

if TYPE_CHECKING:
    from collections.abc import Sequence

    from gpuplan.planner.render.style import Style
    from gpuplan.planner.whatif.answers.comparison import JobOutcomeChange, Trial

_MOST_LINES: Final = 20
_MILLI_SECONDS_PER_HOUR: Final = MILLI * 3600
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
    shown = trial.jobs[:_MOST_LINES]
    rows = [TableRow(job_outcome_cells(each), note=each.text, tone=_TONES[each.fate]) for each in shown]
    left = len(trial.jobs) - len(shown)
    more = [style.clean(f"  … {format_count(left, 'more job')} (--json has all)")] if left else []
    head = style.wrap(f"{trial.name}: {job_outcome_counts(trial.jobs)}", 0)
    return [*head, *table(rows, style, right=(4,)), *more]


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
    return ", ".join(parts) + (f"; {_hours(lost)} of work lost" if lost else "")


def job_outcome_cells(each: JobOutcomeChange) -> tuple[str, ...]:
    """Job, queue, user, outcome, difference in GPUs, and lost work."""
    gpus = f"{each.gpus:+,g} GPUs" if each.gpus else ""
    lost = f"loses {_hours(each.lost_gpu_hours)}" if each.lost_gpu_hours else ""
    return each.job, each.queue, each.user, _ONE[each.fate], gpus, lost


def _hours(gpu_hours: float) -> str:
    return format_gpu_hours(round(gpu_hours * _MILLI_SECONDS_PER_HOUR))
