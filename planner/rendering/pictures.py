"""What the pictures of a report show: queues against their limits, GPU models, and every node."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from planner.afterwards import cluster_after
from planner.models.occupancy import NodeFree, free_capacity
from planner.models.queue import ALL_MODELS
from planner.models.units import MILLI
from planner.rendering.header import percent
from planner.wording import counted, decimal, in_gpus

if TYPE_CHECKING:
    from planner.models.cluster import Node
    from planner.models.diff import Diff
    from planner.models.plan import Plan


@dataclass(frozen=True, slots=True)
class Bar:
    """Something filled before and after, in percent of the width of the picture."""

    label: str
    detail: str
    depth: int
    before: float
    added: float
    removed: float
    limit: float | None
    words: str
    last: str = ""


@dataclass(frozen=True, slots=True)
class Cell:
    """One node in a strip, filled before and after in percent."""

    title: str
    before: int
    after: int
    kind: str
    """Class of the picture: off, added, removed, or empty."""


def queue_bars(change: Diff) -> list[Bar]:
    """A bar for each queue, all of them on one scale."""
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
            Bar(
                label=queue.queue if queue.gpu_model == ALL_MODELS else "",
                detail=queue.gpu_model,
                depth=depth[queue.queue],
                before=_part(min(queue.used_before_milli, queue.used_after_milli), scale),
                added=_part(max(0, queue.used_after_milli - queue.used_before_milli), scale),
                removed=_part(max(0, queue.used_before_milli - queue.used_after_milli), scale),
                limit=None if queue.limit_milli is None else _part(queue.limit_milli, scale),
                words=f"{_change(queue.used_before_milli, queue.used_after_milli)}, {limit}",
                last=f"{queue.waiting_before:,} → {queue.waiting_after:,}"
                if queue.gpu_model == ALL_MODELS
                else "",
            )
        )
    return bars


def model_bars(change: Diff) -> list[Bar]:
    """A bar for each GPU model, of what is usable of it before or after, whichever is more."""
    bars = []
    for model in change.gpu_models:
        before, after = model.used_before_milli, model.used_after_milli
        usable = max(model.usable_before_milli, model.usable_after_milli)
        if usable:
            bars.append(
                Bar(
                    label=model.gpu_model,
                    detail="",
                    depth=0,
                    before=_part(min(before, after), usable),
                    added=_part(max(0, after - before), usable),
                    removed=_part(max(0, before - after), usable),
                    limit=None,
                    words=f"{_change(before, after)} of "
                    f"{_change(model.usable_before_milli, model.usable_after_milli)}",
                    last=f"{_ratio(before, model.usable_before_milli)} → "
                    f"{_ratio(after, model.usable_after_milli)}",
                )
            )
    return bars


def strips(plan: Plan) -> list[tuple[str, str, list[Cell]]]:
    """A strip of nodes for each GPU model: name, count in words, nodes by name."""
    old = plan.snapshot.cluster.node_by_name
    new = cluster_after(plan.snapshot, plan.target).node_by_name
    before = free_capacity(old.values(), plan.snapshot.running_placements)
    after = free_capacity(new.values(), plan.placements)
    strips: dict[str, list[Cell]] = {}
    for name in sorted(old.keys() | new.keys()):
        node = new.get(name) or old[name]
        if node.gpus:
            cell = _cell(old.get(name), new.get(name), before.get(name), after.get(name))
            strips.setdefault(node.gpus.model, []).append(cell)
    return [(model, counted(len(cells), "node"), cells) for model, cells in sorted(strips.items())]


def _cell(old: Node | None, new: Node | None, before: NodeFree | None, after: NodeFree | None) -> Cell:
    node = new or old
    offered = max((NodeFree.of(one).gpu_milli.count(MILLI) * MILLI for one in (old, new) if one), default=0)
    name = node.name if node else ""
    if node is None or not node.ready or not offered:
        return Cell(f"{name}: {'down' if node and not node.ready else 'no usable GPUs'}", -1, -1, "off")
    used_before, used_after = (
        _used(one, free) if one and free else 0 for one, free in ((old, before), (new, after))
    )
    kind = "added" if old is None else "removed" if new is None else ""
    remark = f"{name} ({kind})" if kind else name
    return Cell(
        f"{remark}: {_change(used_before, used_after)} of {in_gpus(offered)}",
        round(100 * used_before / offered),
        round(100 * used_after / offered),
        kind,
    )


def _used(node: Node, free: NodeFree) -> int:
    """Thousandths of GPUs held, those in MIG mode left out."""
    offered = NodeFree.of(node).gpu_milli.count(MILLI) * MILLI
    return offered - sum(max(0, milli) for milli in free.gpu_milli)


def _ratio(part: int, whole: int) -> str:
    return percent(part / whole) if whole else "none"


def _part(amount: int, whole: int) -> float:
    return round(100 * amount / whole, 2) if whole else 0.0


def _change(before: int, after: int) -> str:
    return decimal(before) if before == after else f"{decimal(before)} → {decimal(after)}"
