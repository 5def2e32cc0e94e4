"""Logs as text: the course of a search, and the epochs of periodic runs."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from gpuplan.models.plan.solution import DRAFT_STAGE, Milestone, StopReason
from gpuplan.models.units import print_timestamp
from gpuplan.planner.render.plan.header import format_gap, gap_or_unknown, percent, short_id
from gpuplan.planner.render.style import Style, Tone
from gpuplan.planner.render.table import Table, TableRow
from gpuplan.planner.service.history import TROUBLE, EpochOutcome, EpochRecord
from gpuplan.planner.text_format import format_count

if TYPE_CHECKING:
    from collections.abc import Sequence
    from datetime import date

    from gpuplan.planner.io.search_log import SearchFinished, SearchRecord, SearchStarted

_DOING: Final = {"place": "placing", "repack": "repacking", DRAFT_STAGE: "writing the plan"}
"""Stages shown by their activity; the others are shown by their names."""

_MOST_ROWS: Final = 20

_WHY: Final = {
    "proven": "nothing better exists",
    "gap": "the gap is as small as asked for",
    "time": "the time was up",
    "ticks": "the deterministic work was done",
    "exhausted": "nothing was left to try",
    "interrupted": "interrupted",
    "settled": "nothing has changed since the last plan",
}


def progress_lines(now: Milestone, *, seconds: float, limit: float, style: Style) -> list[str]:
    """What is known `seconds` after the search began, in two lines if the width allows it."""
    stage = _DOING.get(now.stage, now.stage)
    known = [stage]
    if now.objective is None:
        known.append("no plan yet")
    else:
        known.append(f"objective {now.objective:,}")
    if now.found is not None and (now.objective is None or now.found > now.objective):
        known.append(f"found {now.found:,}")
    known.append(f"bound {now.bound:,}")
    if now.objective is not None:
        known.append(gap_or_unknown(now.objective, now.gap))
    clock = [f"{seconds:.0f} s used"]
    if now.stage != DRAFT_STAGE:
        clock.append(f"{max(0.0, limit - seconds):.0f} s left")
        if now.objective is not None:
            clock.append("Ctrl-C keeps this plan")
    return [*style.flow(known, indent=0), *style.flow(clock, indent=0)]


def search_text(search: SearchRecord, style: Style) -> str:
    """A logged search: the question, the milestones, and how it ended."""
    lines = [*_asked(search.began, style), "", *_milestones(search.milestones, style)]
    lines += ["", *style.wrap(_end(search), 0)]
    return "\n".join(lines) + "\n"


def _asked(began: SearchStarted, style: Style) -> list[str]:
    solvers = [f"{name} ({version})" if version else name for name, version in began.solvers.items()]
    parts = [
        f"Search at {print_timestamp(began.at)}",
        f"{format_count(began.waiting, 'waiting job')} on {format_count(began.nodes, 'node')}",
        f"solvers {', '.join(solvers) or 'none'}",
        f"limit {began.limit_seconds:g} s" if began.ticks is None else f"limit {began.ticks:,} ticks",
        f"stop gap {percent(began.stop_gap)}",
        f"seed {began.seed}",
    ]
    return style.flow(parts)


def _milestones(milestones: Sequence[Milestone], style: Style) -> list[str]:
    shown = _thinned(milestones)
    rows = [
        TableRow(
            (
                f"{each.seconds:.2f}",
                each.stage,
                "-" if each.objective is None else f"{each.objective:,}",
                "" if each.found is None else f"{each.found:,}",
                f"{each.bound:,}",
                "-" if each.objective is None else format_gap(each.objective, each.gap),
            )
        )
        for each in shown
    ]
    heads = ("SECONDS", "STAGE", "OBJECTIVE", "FOUND", "BOUND", "GAP")
    lines = Table(rows, heads, right=(0, 2, 3, 4, 5)).lines(style, uncut=True)
    if len(shown) < len(milestones):
        lines += style.wrap(f"… {len(shown)} of {len(milestones):,} milestones", 2)
    return lines


def _thinned(milestones: Sequence[Milestone]) -> Sequence[Milestone]:
    """Evenly spaced milestones that fit a screen; always with the first and the last."""
    if len(milestones) <= _MOST_ROWS:
        return milestones
    last = len(milestones) - 1
    return [milestones[index * last // (_MOST_ROWS - 1)] for index in range(_MOST_ROWS)]


def _end(search: SearchRecord) -> str:
    if search.finished is not None:
        return _finished(search.finished, deterministic=search.began.ticks is not None)
    if search.failure is not None:
        return f"No plan: {search.failure}"
    return "The log ends here: planning was killed, or still goes on."


def _finished(end: SearchFinished, *, deterministic: bool) -> str:
    gap = gap_or_unknown(end.objective, end.gap)
    fallback = "" if end.fallback is None else f" Fell back: {end.fallback}."
    plan = f"Plan {end.plan[:8]} is {end.solver}'s, objective {end.objective:,}, {gap}."
    why = _WHY.get(end.how, end.how)
    if deterministic and end.how == StopReason.TIME:
        why = f"{why} before the deterministic work was done"
    return f"Ended after {end.seconds:.1f} s: {why}. {plan}{fallback}"


# The history of periodic runs: what each epoch planned, what it did, and which errors it had.


_HEAD: Final = ("EPOCH", "BEGAN", "OUTCOME", "PLAN", "DONE", "OBJECTIVE", "GAP")
_NUMBERS: Final = (0, 4, 5, 6)


def history_text(records: Sequence[EpochRecord], style: Style) -> str:
    """One line per epoch, oldest first, with the first line of its error below it."""
    if not records:
        return "No epochs.\n"
    today = records[-1].began_at.date()
    table = Table([_row(record, today) for record in records], _HEAD, right=_NUMBERS)
    return "\n".join([*table.lines(style), "", *style.wrap(_sum(records), 0)]) + "\n"


def _row(record: EpochRecord, today: date) -> TableRow:
    steps = record.done + record.done_before + record.undone
    done = f"{record.done + record.done_before:,}/{steps:,}" if steps else ""
    notes = [record.error.partition("\n")[0]] if record.error else []
    notes += [f"{change.knob}: {change.old} → {change.new}" for change in record.policy_changes]
    if record.policy_error:
        notes.append(f"policy kept: {record.policy_error.partition(chr(10))[0]}")
    if record.skipped_ticks:
        notes.append(f"{format_count(record.skipped_ticks, 'tick')} skipped")
    return TableRow(
        (
            str(record.number),
            f"{record.began_at:%H:%M:%S}"
            if record.began_at.date() == today
            else f"{record.began_at:%m-%d %H:%M:%S}",
            record.outcome.value,
            short_id(record.plan_id or ""),
            done,
            "" if record.objective is None else f"{record.objective:,}",
            ""
            if record.objective is None or record.gap is None
            else format_gap(record.objective, record.gap),
        ),
        note="; ".join(notes),
        tone=Tone.STOP if record.outcome in TROUBLE else None,
    )


def _sum(records: Sequence[EpochRecord]) -> str:
    parts = [
        f"{count:,} {outcome.value}"
        for outcome in EpochOutcome
        if (count := sum(record.outcome is outcome for record in records))
    ]
    done = sum(record.done for record in records)
    return (
        f"{format_count(len(records), 'epoch')}: {', '.join(parts)}. {format_count(done, 'step')} "
        f"carried out."
    )
