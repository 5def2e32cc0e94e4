"""A policy review as text: changed settings, jobs that gain or lose, and how certain that is."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from gpuplan.models.units import MILLI
from gpuplan.planner.render.plan.header import format_gap, format_signed, gpu_hours_text, short_id
from gpuplan.planner.render.style import Tone
from gpuplan.planner.render.table import Table, TableRow
from gpuplan.planner.text_format import format_count, format_milli

if TYPE_CHECKING:
    from collections.abc import Sequence

    from gpuplan.planner.render.style import Style
    from gpuplan.planner.whatif.policy_review import PolicyReview, ReplicaCountChange

_MOST_LINES: Final = 20


def review_text(review: PolicyReview, style: Style, *, verbose: bool = False) -> str:
    """Sections with a blank line between them."""
    title = (
        f"Policy {short_id(review.old.policy)} → {short_id(review.new.policy)} on snapshot "
        f"{short_id(review.snapshot)}"
    )
    sections = [
        [style.paint(style.clean(title), Tone.STRONG)],
        _knobs(review, style),
        _jobs("Gain", review.gains, Tone.START, style, verbose=verbose),
        _jobs("Lose", review.losses, Tone.STOP, style, verbose=verbose),
        _others(review, style),
        _queues(review, style),
        _plans(review, style),
        style.wrap(_verdict(review), 0),
    ]
    return "\n\n".join("\n".join(section) for section in sections if section) + "\n"


def _knobs(review: PolicyReview, style: Style) -> list[str]:
    if not review.knobs:
        return ["The policies are the same."]
    rows = [TableRow((each.path, f"{_value(each.before)} → {_value(each.after)}")) for each in review.knobs]
    return ["Changed:", *Table(rows).lines(style)]


def _value(value: Any) -> str:
    match value:
        case None:
            return "not set"
        case bool():
            return "on" if value else "off"
        case list():
            return ", ".join(map(_value, value)) or "nothing"
        case _:
            return str(value)


def _jobs(
    title: str, jobs: Sequence[ReplicaCountChange], tone: Tone, style: Style, *, verbose: bool
) -> list[str]:
    if not jobs:
        return []
    gpus = sum(round(each.gpus * MILLI) for each in jobs)
    shown = jobs if verbose else jobs[:_MOST_LINES]
    rows = [
        TableRow((each.job, each.queue, _fate(each), f"{each.gpus:+,g} GPUs"), note=each.reason, tone=tone)
        for each in shown
    ]
    more = [f"  … {len(jobs) - len(shown):,} more (-a shows all)"] if len(shown) < len(jobs) else []
    head = f"{title}: {format_count(len(jobs), 'job')}, {'+' if gpus > 0 else ''}{format_milli(gpus)} GPUs"
    return [head, *Table(rows, right=(3,)).lines(style), *map(style.clean, more)]


def _fate(job: ReplicaCountChange) -> str:
    if job.before != job.after:
        return f"{job.before} → {job.after}"
    return f"{job.replicas_before:,} → {job.replicas_after:,} replicas"


def _others(review: PolicyReview, style: Style) -> list[str]:
    lines = []
    if review.moved:
        lines += style.wrap(f"Moved under one policy only: {', '.join(review.moved)}", 0, hanging=2)
    if review.broken_promises:
        lines += style.wrap(f"Lose their promised start: {', '.join(review.broken_promises)}", 0, hanging=2)
    return lines


def _queues(review: PolicyReview, style: Style) -> list[str]:
    if not review.queues:
        return []
    rows = [
        TableRow(
            (
                each.queue,
                f"{format_milli(each.gpu_milli_before)} → {format_milli(each.gpu_milli_after)}",
                f"{each.running_before:,} → {each.running_after:,}",
            )
        )
        for each in review.queues
    ]
    return Table(rows, ("QUEUE", "GPUS", "JOBS RUNNING")).lines(style)


def _plans(review: PolicyReview, style: Style) -> list[str]:
    """Both plans side by side."""
    old, new = review.old, review.new
    rows = [
        ("jobs started", f"{old.started:,}", f"{new.started:,}"),
        ("preempted", f"{old.preempted:,}", f"{new.preempted:,}"),
        ("waiting", f"{old.waiting:,}", f"{new.waiting:,}"),
        ("GPUs held", f"{old.gpus_held:,.2f}", f"{new.gpus_held:,.2f}"),
        ("work lost", gpu_hours_text(old.lost_gpu_hours), gpu_hours_text(new.lost_gpu_hours)),
        *([("promises", f"{old.promises:,}", f"{new.promises:,}")] if old.promises or new.promises else []),
        ("objective", f"{old.objective:,}", f"{new.objective:,}"),
        *(
            (f"  {name}", format_signed(old.terms.get(name, 0)), format_signed(new.terms.get(name, 0)))
            for name in sorted(old.terms.keys() | new.terms.keys())
        ),
        ("gap", format_gap(old.objective, old.gap), format_gap(new.objective, new.gap)),
    ]
    return Table([*map(TableRow, rows)], ("", "OLD", "NEW"), right=(1, 2)).lines(style)


def _verdict(review: PolicyReview) -> str:
    if review.same:
        return "No change: under both policies the same jobs run, and none is stopped or moved otherwise."
    gain = review.gain_by_new
    if gain is None:
        return "The new policy forbids the old plan. Each objective is by its own policy."
    text = f"By the new policy, the new plan is worth {format_signed(gain)} points more than the old one."
    if review.undecided:
        return (
            f"{text} That is no more than the gap of the search: undecided. Plan with more time, or with "
            "--deterministic, before concluding anything from single jobs."
        )
    return text
