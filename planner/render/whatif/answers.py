"""Answers as text: nodes to add, copies of a job that fit, value of more nodes, sweeps, policy reviews."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from gpuplan.models.units import MILLI
from gpuplan.planner.render.plan.header import (
    format_gap,
    format_signed,
    gpu_hours_text,
    percent,
    request_lines,
    short_id,
)
from gpuplan.planner.render.style import Style, Tone
from gpuplan.planner.render.table import Table, TableRow
from gpuplan.planner.text_format import format_count, format_milli, format_money, hostlist, join_jobs
from gpuplan.planner.whatif.measures import IN_POINTS, MEASURES, RATIOS, PlanFigures

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from gpuplan.planner.whatif.capacity import CapacityPlan, Unplaced
    from gpuplan.planner.whatif.fit import Fit
    from gpuplan.planner.whatif.grid import Sweep
    from gpuplan.planner.whatif.policy_review import PolicyReview, ReplicaCountChange
    from gpuplan.planner.whatif.sensitivity import NodeKind, Sensitivity, Step


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
        names = join_jobs([each.job for each in jobs])
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
