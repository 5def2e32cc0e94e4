"""The history of periodic runs as a table: what each epoch planned, what it did, and which errors it had."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from gpuplan.planner.render.plan.header import format_gap, short_id
from gpuplan.planner.render.style import TableRow, Tone, table
from gpuplan.planner.service.history import TROUBLE, EpochOutcome
from gpuplan.planner.text_format import format_count

if TYPE_CHECKING:
    from collections.abc import Sequence
    from datetime import date

    from gpuplan.planner.render.style import Style
    from gpuplan.planner.service.history import EpochRecord

_HEAD: Final = ("EPOCH", "BEGAN", "OUTCOME", "PLAN", "DONE", "OBJECTIVE", "GAP")
_NUMBERS: Final = (0, 4, 5, 6)


def history_text(records: Sequence[EpochRecord], style: Style) -> str:
    """One line per epoch, oldest first, with the first line of its error below it."""
    if not records:
        return "No epochs.\n"
    today = records[-1].began_at.date()
    rows = [TableRow(_HEAD), *(_row(record, today) for record in records)]
    return "\n".join([*table(rows, style, right=_NUMBERS), "", *style.wrap(_sum(records), 0)]) + "\n"


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
