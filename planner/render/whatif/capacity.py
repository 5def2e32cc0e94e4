"""Which nodes to add so that waiting jobs run, as text."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from gpuplan.planner.render.plan.header import percent
from gpuplan.planner.render.style import Style, Tone
from gpuplan.planner.render.table import TableRow, table
from gpuplan.planner.text_format import format_count, format_money, join_first_names

if TYPE_CHECKING:
    from collections.abc import Iterator

    from gpuplan.planner.whatif.answers.capacity import CapacityPlan, Unplaced

_MOST_REASONS: Final = 10


def capacity_text(capacity: CapacityPlan, *, width: int, colour: bool, ascii_only: bool) -> str:
    """The nodes with their price, the proof of the price, and the jobs that more nodes do not help."""
    style = Style(width=width, colour=colour, ascii_only=ascii_only)
    lines = style.wrap(_answer(capacity), 0)
    lines[0] = style.paint(lines[0], Tone.STRONG)
    if capacity.pools:
        risky = _is_risky(capacity)
        head = TableRow(("POOL", "NODES", "EACH AN HOUR", *(["INTERRUPTIONS"] if risky else []), "TOGETHER"))
        rows = [
            TableRow(
                (
                    each.pool,
                    f"{each.nodes:,}",
                    format_money(each.price_per_hour),
                    *([format_money(each.interruption_cost_per_hour)] if risky else []),
                    format_money(each.nodes * (each.price_per_hour + each.interruption_cost_per_hour)),
                ),
                note=f"{each.beyond:,} beyond its maximum of {each.maximum:,}" if each.beyond else "",
            )
            for each in capacity.pools
        ]
        lines += ["", *table([head, *rows], style, right=(1, 2, 3, 4)), "", *style.wrap(_proof(capacity), 0)]
    if capacity.cannot:
        lines += ["", *_cannot(capacity, style)]
    return "\n".join(lines) + "\n"


def _answer(capacity: CapacityPlan) -> str:
    jobs, runs = len(capacity.jobs), len(capacity.runs)
    told = format_count(jobs, "job") if jobs == runs else f"{runs:,} of {format_count(jobs, 'job')}"
    verb = "runs" if runs == 1 and jobs == 1 else "run"
    if not jobs:
        return "No job waits that is not held."
    if not runs:
        return (
            "No nodes of the pools make any of the jobs run." if jobs > 1 else "No nodes of the pools help."
        )
    if not capacity.pools:
        if runs < jobs:
            return f"{told} {verb} on what is free; no nodes of the pools help the others."
        return f"{told} {verb} on what is free: no nodes are needed."
    count = format_count(sum(each.nodes for each in capacity.pools), "node")
    return (
        f"{told} {verb} with {count} more, for {format_money(capacity.hourly_cost)} an hour, "
        f"disturbing no job."
    )


def _proof(capacity: CapacityPlan) -> str:
    risky = ", what their interruptions are expected to lose included" if _is_risky(capacity) else ""
    if capacity.proven:
        return f"No other nodes are cheaper (proven){risky}."
    if capacity.hourly_cost_at_least >= capacity.hourly_cost_in_all:
        return f"No other nodes are cheaper (proven){risky}, though fewer may do at the same price."
    if not capacity.hourly_cost_at_least:
        return "Whether anything cheaper would do is not proven."
    least = format_money(capacity.hourly_cost_at_least)
    return f"Nothing cheaper than {least} an hour does (proven){risky}: the gap is {percent(capacity.gap)}."


def _is_risky(capacity: CapacityPlan) -> bool:
    return capacity.hourly_interruption_cost > 0


def _cannot(capacity: CapacityPlan, style: Style) -> Iterator[str]:
    count = format_count(len(capacity.cannot), "job")
    sure = "" if capacity.cannot_proven else "; that no more can run is not proven"
    yield from style.wrap(f"{count} cannot run{sure}:", 0)
    by_reason: dict[tuple[str, str], list[Unplaced]] = {}
    for each in capacity.cannot:
        by_reason.setdefault((each.reason.code, each.reason.text), []).append(each)
    for (code, text), jobs in list(by_reason.items())[:_MOST_REASONS]:
        names = join_first_names([each.job for each in jobs])
        yield from style.wrap(f"{names}: {code}, {text}", 2, hanging=2)
    if (left := len(by_reason) - _MOST_REASONS) > 0:
        yield from style.wrap(f"and for {format_count(left, 'more reason')}; --json has all of them", 2)
