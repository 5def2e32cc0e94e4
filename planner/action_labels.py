"""Texts for changes: in the audit log, in the progress of an apply, and counted by kind."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

from gpuplan.models.plan.actions import (
    ACTIONS,
    Change,
    Grow,
    Migrate,
    NodeAction,
    Preempt,
    Release,
    Repartition,
    Shrink,
    Start,
    info_of,
)
from gpuplan.planner.text_format import join_with_and

if TYPE_CHECKING:
    from collections.abc import Iterable

    from gpuplan.models.placement import Placement


def action_subject(change: Change) -> str:
    """Object of a change: `job a`, `node n0`, `node n0 gpu 3`."""
    if isinstance(change, Repartition):
        return f"node {change.node} gpu {change.gpu}"
    return f"node {change.node}" if isinstance(change, NodeAction) else f"job {change.job}"


def action_label(change: Change) -> str:
    """Short text of a change."""
    match change:
        case Start():
            return f"start {change.job} on {_where(change.after)}"
        case Preempt():
            return f"preempt {change.job} on {_where(change.before)}"
        case Release():
            if change.after is None:
                return f"release {change.job} from {_where(change.before)}"
            before, after = len(change.before.replicas), len(change.after.replicas)
            return f"release {before - after} of {before} replicas of {change.job}"
        case Shrink() | Grow():
            before, after = len(change.before.replicas), len(change.after.replicas)
            return f"{change.type} {change.job} from {before} to {after} replicas"
        case Migrate():
            return f"migrate {change.job} from {_where(change.before)} to {_where(change.after)}"
        case Repartition():
            layout = ", ".join(f"{instance.profile} at {instance.start}" for instance in change.after)
            return f"repartition gpu {change.gpu} of {change.node} into {layout or 'nothing'}"
        case _:
            fields = {name: getattr(change, name) for name in type(change).model_fields}
            return str(info_of(change).phrase.format_map(fields))


def count_by_kind(changes: Iterable[Change], *, done: bool) -> str:
    """`3 starts, 1 preemption and 1 node to add`, or `1 node added` if done; `nothing` if there are none."""
    found = Counter[str](change.type for change in changes)
    parts = []
    for kind, info in ACTIONS.items():
        if number := found[kind.value]:
            parts.append(f"{number:,} {info.nouns[number != 1]}{info.endings[done]}")
    return join_with_and(parts) if parts else "nothing"


def _where(placement: Placement) -> str:
    nodes = sorted(placement.nodes)
    return nodes[0] if len(nodes) == 1 else f"{len(nodes)} nodes from {nodes[0]} to {nodes[-1]}"
