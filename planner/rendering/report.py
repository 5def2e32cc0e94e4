"""
The plan as one HTML page for review: no script, no network, light and dark, made to be printed too.

The page shows what `plan_text` shows, and pictures of what changes: queues against their limits, GPU models,
and every node.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from typing import TYPE_CHECKING, Any, Final

import jinja2

from planner.diffing import diff
from planner.models.occupancy import NodeFree, free_capacity
from planner.models.queue import ALL_MODELS
from planner.models.units import MILLI, print_timestamp
from planner.rendering.grouping import sort_actions, start_kinds, wait_kinds
from planner.rendering.header import cares, percent, short
from planner.rendering.hostlist import hostlist
from planner.wording import counted, decimal, in_gpus, placement_size

if TYPE_CHECKING:
    from collections.abc import Iterable

    from planner.models.cluster import Node
    from planner.models.diff import Diff
    from planner.models.plan import Plan

_MOST_LINES: Final = 40
"""Lines of starts before they are gathered into kinds, and then into coarser ones."""
_MOST_REASONS: Final = 8
"""Reasons of one code shown at once."""


def report_html(plan: Plan) -> str:
    """The page; all text in it is escaped."""
    change = diff(plan)
    actions = sort_actions(plan.actions)
    few = len(actions.starts) <= _MOST_LINES
    return _template().render(
        plan=plan,
        summary=_summary(plan),
        cares=cares(plan.solution),
        few_starts=actions.starts if few else (),
        start_kinds=[] if few else start_kinds(actions.starts, plan.snapshot, most=_MOST_LINES),
        queue_of={job.name: job.queue for job in plan.snapshot.jobs},
        wait_kinds=wait_kinds(actions.waits),
        most_lines=_MOST_LINES,
        most_reasons=_MOST_REASONS,
        kept=hostlist(keep.job for keep in actions.keeps),
        counts={"starts": len(actions.starts), "keeps": len(actions.keeps), "waits": len(actions.waits)},
        queues=_queue_bars(change),
        gpu_models=_model_bars(change),
        strips=_strips(plan),
    )


@dataclass(frozen=True, slots=True)
class _Bar:
    """Something filled before and after, in percent of the width of the picture."""

    label: str
    detail: str
    depth: int
    before: float
    added: float
    limit: float | None
    words: str
    last: str = ""


@dataclass(frozen=True, slots=True)
class _Cell:
    """One node in a strip, filled before and after in percent."""

    title: str
    before: int
    after: int


def _summary(plan: Plan) -> list[tuple[str, str, str]]:
    """Name, value and remark of the figures at the top."""
    solution, metrics = plan.solution, plan.metrics
    proof = "nobody proved a bound" if solution.bound is None else f"bound {solution.bound:,}"
    return [
        ("Objective", f"{solution.objective:,}", f"greedy alone {solution.greedy_objective:,}"),
        ("Gap", "unknown" if solution.gap is None else percent(solution.gap), proof),
        ("Solver", solution.solver, f"{solution.status.lower()}, in {solution.seconds:.1f} s"),
        (
            "GPUs allocated",
            percent(metrics.gpu_allocation_ratio),
            f"{percent(metrics.gpu_allocation_ratio_before)} before",
        ),
        (
            "In whole nodes",
            percent(1 - metrics.fragmentation_ratio),
            "of the free GPUs, in blocks of 8 on a node",
        ),
        ("Fairness", f"{metrics.jain_index:.2f}", "Jain's index of the queues' met demand"),
        ("Cost", f"{metrics.hourly_cost:,.0f}", "per hour, all ready nodes"),
    ]


def _queue_bars(change: Diff) -> list[_Bar]:
    scale = max(
        (
            max(queue.used_before_milli, queue.used_after_milli, queue.limit_milli or 0)
            for queue in change.queues
        ),
        default=0,
    )
    depth: dict[str, int] = {}
    bars = []
    for queue in change.queues:
        depth[queue.queue] = 0 if queue.parent is None else depth[queue.parent] + 1
        limit = "no limit" if queue.limit_milli is None else f"limit {decimal(queue.limit_milli)}"
        bars.append(
            _Bar(
                label=queue.queue if queue.gpu_model == ALL_MODELS else "",
                detail=queue.gpu_model,
                depth=depth[queue.queue],
                before=_part(min(queue.used_before_milli, queue.used_after_milli), scale),
                added=_part(max(0, queue.used_after_milli - queue.used_before_milli), scale),
                limit=None if queue.limit_milli is None else _part(queue.limit_milli, scale),
                words=f"{_change(queue.used_before_milli, queue.used_after_milli)}, {limit}",
                last=f"{queue.waiting_before:,} → {queue.waiting_after:,}"
                if queue.gpu_model == ALL_MODELS
                else "",
            )
        )
    return bars


def _model_bars(change: Diff) -> list[_Bar]:
    return [
        _Bar(
            label=model.gpu_model,
            detail="",
            depth=0,
            before=_part(min(before, after), usable),
            added=_part(max(0, after - before), usable),
            limit=None,
            words=f"{_change(before, after)} of {decimal(usable)}",
            last=f"{percent(before / usable)} → {percent(after / usable)}",
        )
        for model in change.gpu_models
        for usable, before, after in [(model.usable_milli, model.used_before_milli, model.used_after_milli)]
        if usable
    ]


def _strips(plan: Plan) -> list[tuple[str, str, list[_Cell]]]:
    """A strip of nodes for each GPU model: name, count in words, nodes by name."""
    nodes = sorted((node for node in plan.snapshot.cluster.nodes if node.gpus), key=lambda node: node.name)
    before = free_capacity(nodes, plan.snapshot.running_placements)
    after = free_capacity(nodes, plan.placements)
    strips: dict[str, list[_Cell]] = {}
    for node in nodes:
        cell = _cell(node, before[node.name], after[node.name])
        strips.setdefault(node.gpu_model or "", []).append(cell)
    return [(model, counted(len(cells), "node"), cells) for model, cells in sorted(strips.items())]


def _cell(node: Node, before: NodeFree, after: NodeFree) -> _Cell:
    offered = NodeFree.of(node).gpu_milli.count(MILLI) * MILLI
    if not node.ready or not offered:
        return _Cell(f"{node.name}: {'down' if not node.ready else 'no usable GPUs'}", -1, -1)
    used_before = offered - sum(max(0, milli) for milli in before.gpu_milli)
    used_after = offered - sum(max(0, milli) for milli in after.gpu_milli)
    return _Cell(
        f"{node.name}: {_change(used_before, used_after)} of {in_gpus(offered)}",
        round(100 * used_before / offered),
        round(100 * used_after / offered),
    )


def _part(amount: int, whole: int) -> float:
    return round(100 * amount / whole, 2) if whole else 0.0


def _change(before: int, after: int) -> str:
    return decimal(before) if before == after else f"{decimal(before)} → {decimal(after)}"


def _nodes(replicas: Iterable[Any]) -> str:
    return hostlist(replica.node for replica in replicas)


@cache
def _template() -> jinja2.Template:
    environment = jinja2.Environment(
        autoescape=True, undefined=jinja2.StrictUndefined, trim_blocks=True, lstrip_blocks=True
    )
    environment.filters.update(
        counted=counted,
        gpus=in_gpus,
        nodes=_nodes,
        number=lambda value: f"{value:,}",
        short=short,
        size=placement_size,
        timestamp=print_timestamp,
    )
    return environment.from_string(
        files("planner.rendering").joinpath("report.html.j2").read_text(encoding="utf-8")
    )
