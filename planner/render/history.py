"""The history of periodic runs as a table: what each epoch planned, what it did, and which errors it had."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from gpuplan.planner.formatting import counted
from gpuplan.planner.render.plan.header import gap_words, short
from gpuplan.planner.render.style import Tone
from gpuplan.planner.render.table import Row, table
from gpuplan.planner.service.record import TROUBLE, EpochOutcome

if TYPE_CHECKING:
    from collections.abc import Sequence
    from datetime import date

    from gpuplan.planner.render.style import Style
    from gpuplan.planner.service.record import EpochRecord

_HEAD: Final = ("EPOCH", "BEGAN", "OUTCOME", "PLAN", "DONE", "OBJECTIVE", "GAP")
_NUMBERS: Final = (0, 4, 5, 6)


def history_text(records: Sequence[EpochRecord], style: Style) -> str:
    """One line per epoch, oldest first, with the first line of its error below it."""
    if not records:
        return "No epochs.\n"
    today = records[-1].began_at.date()
    rows = [Row(_HEAD), *(_row(record, today) for record in records)]
    return "\n".join([*table(rows, style, right=_NUMBERS), "", *style.wrap(_sum(records), 0)]) + "\n"


def _row(record: EpochRecord, today: date) -> Row:
    steps = record.done + record.done_before + record.undone
    done = f"{record.done + record.done_before:,}/{steps:,}" if steps else ""
    notes = [record.error.partition("\n")[0]] if record.error else []
    notes += [f"{change.knob}: {change.old} → {change.new}" for change in record.policy_changes]
    if record.policy_error:
        notes.append(f"policy kept: {record.policy_error.partition(chr(10))[0]}")
    if record.skipped_ticks:
        notes.append(f"{counted(record.skipped_ticks, 'tick')} skipped")
    return Row(
        (
            str(record.number),
            f"{record.began_at:%H:%M:%S}"
            if record.began_at.date() == today
            else f"{record.began_at:%m-%d %H:%M:%S}",
            record.outcome.value,
            short(record.plan_id or ""),
            done,
            "" if record.objective is None else f"{record.objective:,}",
            "" if record.objective is None or record.gap is None else gap_words(record.objective, record.gap),
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
    return f"{counted(len(records), 'epoch')}: {', '.join(parts)}. {counted(done, 'step')} carried out."
