"""Answers as text: nodes to add, copies of a job that fit, the value of more nodes, and sweeps."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from gpuplan.planner.render.plan.header import format_gap, percent, request_lines
from gpuplan.planner.render.style import Tone
from gpuplan.planner.render.table import Table, TableRow
from gpuplan.planner.text_format import format_count, format_money, hostlist, join_first_names
from gpuplan.planner.whatif.measures import IN_POINTS, MEASURES, RATIOS

if TYPE_CHECKING:
    from collections.abc import Iterator

    from gpuplan.planner.render.style import Style
    from gpuplan.planner.whatif.capacity import CapacityPlan, Unplaced
    from gpuplan.planner.whatif.fit import Fit
    from gpuplan.planner.whatif.measures import PlanFigures
    from gpuplan.planner.whatif.sensitivity import NodeKind, Sensitivity, Step
    from gpuplan.planner.whatif.sweep import Sweep

_MOST_REASONS: Final = 10


def capacity_text(capacity: CapacityPlan, style: Style) -> str:
    """The nodes with their price, the proof of the price, and the jobs that more nodes do not help."""
    lines = style.wrap(_answer(capacity), 0)
    lines[0] = style.paint(lines[0], Tone.STRONG)
    if capacity.pools:
        risky = _is_risky(capacity)
        heads = ("POOL", "NODES", "EACH AN HOUR", *(["INTERRUPTIONS"] if risky else []), "TOGETHER")
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
        table = Table(rows, heads, right=(1, 2, 3, 4))
        lines += ["", *table.lines(style), "", *style.wrap(_proof(capacity), 0)]
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


# How many more copies of a job fit, as text.


_MOST_ROWS: Final = 10


def fit_text(fit: Fit, style: Style) -> str:
    """The number with its proof, the nodes of the copies, and why one more would wait."""
    asks = f"Job {fit.job}  {fit.asks_for}  queue {fit.queue}"
    lines = [style.paint(style.clean(asks), Tone.STRONG), *style.wrap(_fit_answer(fit), 0)]
    if fit.nodes:
        lines += ["", *Table(list(_nodes(fit)), right=(0,)).lines(style)]
    if fit.limit is not None:
        lines += ["", *style.wrap(f"One more would wait: {fit.limit.code}, {fit.limit.text}.", 0, hanging=2)]
    return "\n".join(lines) + "\n"


def _fit_answer(fit: Fit) -> str:
    beside = "beside what runs, disturbing no job"
    if fit.at_most is None:
        return f"At least {fit.fits:,} more fit {beside}; no more were counted."
    if fit.exact and not fit.fits:
        return f"None fits {beside} (proven by {fit.proof})."
    if fit.exact:
        fits, do_not = ("fits", "do not") if fit.fits == 1 else ("fit", "do not")
        return f"{fit.fits:,} more {fits} {beside}; {fit.fits + 1:,} {do_not} (proven by {fit.proof})."
    return (
        f"Between {fit.fits:,} and {fit.at_most:,} more fit {beside}: {fit.fits:,} were placed, "
        f"{fit.at_most + 1:,} do not fit (proven by {fit.proof})."
    )


def _nodes(fit: Fit) -> Iterator[TableRow]:
    """Nodes grouped by the number of replicas, most first."""
    by_count: dict[int, list[str]] = {}
    for node, count in fit.nodes.items():
        by_count.setdefault(count, []).append(node)
    for count in sorted(by_count, reverse=True)[:_MOST_ROWS]:
        nodes = by_count[count]
        each = "" if len(nodes) == 1 else f"on each of {format_count(len(nodes), 'node')}: "
        yield TableRow((f"{count:,}",), note=f"{each}{hostlist(nodes)}")
    if (left := len(by_count) - _MOST_ROWS) > 0:
        yield TableRow(("",), note=f"and fewer on others ({left:,} more lines)")


# The value of more nodes, as text: marginal values beside values found by planning again.


_UNKNOWN = "?"


def sensitivity_text(found: Sensitivity, style: Style) -> str:
    """One line per kind of node, and notes that explain the columns."""
    lines = [*request_lines("Value of more nodes", found, style), ""]
    lines += [*_table(found, style), ""] if found.kinds else []
    for failure in found.failures:
        lines += style.told(failure, Tone.STOP, hanging=2)
    for note in _notes(found):
        lines += style.wrap(note, 0, hanging=2)
    return "\n".join(lines) + "\n"


def _table(found: Sensitivity, style: Style) -> list[str]:
    counts = [step.nodes for step in found.kinds[0].steps]
    rows = [
        TableRow(("", "", "MARGINAL", *("PLANNED" if index == 0 else "" for index, _ in enumerate(counts)))),
        TableRow(("NODE", "NOW", "+1", *(f"+{count:,}" for count in counts))),
        *(TableRow(_cells(kind)) for kind in found.kinds),
    ]
    return Table(rows, right=range(1, 3 + len(counts))).lines(style)


def _cells(kind: NodeKind) -> tuple[str, ...]:
    marginal = _UNKNOWN if kind.marginal is None else f"{kind.marginal:+,}"
    return kind.name, f"{kind.nodes:,}", marginal, *map(_gain, kind.steps)


def _gain(step: Step) -> str:
    return _UNKNOWN if step.gain is None else f"{step.gain:+,}"


def _notes(found: Sensitivity) -> list[str]:
    if not found.kinds:
        return ["There are neither nodes nor pools that there could be more of."]
    notes = [
        "Marginal: points that the linear relaxation gains with one node more; it may place parts of jobs."
    ]
    steps = [step for kind in found.kinds for step in kind.steps]
    if steps:
        planned = "Planned: points that the plan gains, made anew with so many nodes more"
        doubts = [step.doubt for step in steps]
        if any(doubt is None for doubt in doubts):
            notes.append(f"{planned}; how close these are to the best is not known.")
        elif doubt := max(doubt for doubt in doubts if doubt is not None):
            notes.append(f"{planned}; true to within {doubt:,} points, the largest gap of a plan.")
        else:
            notes.append(f"{planned} (proven best).")
    return notes


# A sweep: one line per combination, with a mark on those on the Pareto front.


_ALWAYS: Final = ("jobs_running", "jobs_waiting", "gpu_allocation_ratio", "objective", "gap")
FRONT_MARK: Final = "*"


def sweep_text(sweep: Sweep, style: Style) -> str:
    """All combinations, and notes on the mark."""
    shown = [*dict.fromkeys((*_ALWAYS[:3], *sweep.weighed, *_ALWAYS[3:]))]
    heads = (*_names(sweep), *(MEASURES[name].head for name in shown), "")
    rows = []
    for point in sweep.points:
        found = point.figures
        cells = ["failed" if found is None else format_figure(found, name) for name in shown]
        rows.append(TableRow((*point.values, *cells, FRONT_MARK if point.on_front else "")))
    lines = request_lines(f"Sweep of {' and '.join(knob.name for knob in sweep.knobs)}", sweep, style)
    lines += ["", *Table(rows, heads, right=range(len(heads) - 1)).lines(style), ""]
    for point in sweep.points:
        if point.failure:
            failed = f"{', '.join(point.values)}: failed: {point.failure}"
            lines += style.told(failed, Tone.STOP, hanging=2)
    return "\n".join([*lines, *(line for note in _sweep_notes(sweep) for line in style.wrap(note, 0))]) + "\n"


def _sweep_notes(sweep: Sweep) -> Iterator[str]:
    """What the mark means, and what must not be compared."""
    one, other = sweep.weighed
    if not sweep.same_points:
        yield "Objectives are not compared: jobs are worth something else from line to line."
        if not IN_POINTS.isdisjoint(sweep.weighed):
            yield "So there is no Pareto front of them; --pareto names other figures."
            return
    yield (
        f"{FRONT_MARK} on the Pareto front of {one} and {other}: no other line is better in one of them "
        "and as good in the other."
    )


def _names(sweep: Sweep) -> list[str]:
    """Knobs by the last part of their paths, if these parts differ."""
    names = [knob.name for knob in sweep.knobs]
    ends = [name.rpartition(".")[2] for name in names]
    return ends if len(set(ends)) == len(ends) else names


def format_figure(figures: PlanFigures, name: str) -> str:
    """One figure as printed."""
    value = figures.figure(name)
    if name == "gap" and value is not None:
        return format_gap(figures.objective, value)
    if value is None:
        return "?"
    return percent(value) if name in RATIOS else f"{value:,.12g}"
