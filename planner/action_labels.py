"""Texts for changes: in the audit log, in the progress of an apply, and counted by kind."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Final, assert_never

from gpuplan.models.plan.plan import (
    Cordon,
    Drain,
    Grow,
    Migrate,
    Preempt,
    Release,
    Repartition,
    ScaleDown,
    ScaleUp,
    Shrink,
    Start,
)
from gpuplan.planner.formatting import listed

if TYPE_CHECKING:
    from collections.abc import Iterable

    from gpuplan.models.placement import Placement
    from gpuplan.models.plan.plan import Change

_KINDS: Final = {
    "release": ("release", "releases", "", ""),
    "start": ("start", "starts", "", ""),
    "grow": ("growth", "growths", "", ""),
    "shrink": ("shrink", "shrinks", "", ""),
    "migrate": ("migration", "migrations", "", ""),
    "preempt": ("preemption", "preemptions", "", ""),
    "repartition": ("MIG layout", "MIG layouts", " to change", " changed"),
    "cordon": ("node", "nodes", " to cordon", " cordoned"),
    "drain": ("node", "nodes", " to drain", " drained"),
    "scale_up": ("node", "nodes", " to add", " added"),
    "scale_down": ("node", "nodes", " to remove", " removed"),
}
"""By type of action: singular, plural, and the suffixes before and after the action is done."""


def subject(change: Change) -> str:
    """Object of a change: `job a`, `node n0`, `node n0 gpu 3`."""
    match change:
        case Start() | Preempt() | Release() | Shrink() | Grow() | Migrate():
            return f"job {change.job}"
        case Repartition():
            return f"node {change.node} gpu {change.gpu}"
        case Cordon() | Drain() | ScaleUp() | ScaleDown():
            return f"node {change.node}"
        case _:
            assert_never(change)


def label(change: Change) -> str:
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
        case Cordon():
            return f"cordon {change.node}"
        case Drain():
            return f"drain {change.node}"
        case ScaleUp():
            return f"add {change.node} to pool {change.pool}"
        case ScaleDown():
            return f"remove {change.node} from pool {change.pool}"
        case _:
            assert_never(change)


def counted_kinds(changes: Iterable[Change], *, done: bool) -> str:
    """`3 starts, 1 preemption and 1 node to add`, or `1 node added` if done; `nothing` if there are none."""
    found = Counter[str](change.type for change in changes)
    parts = []
    for type_, (one, several, beforehand, afterwards) in _KINDS.items():
        if number := found[type_]:
            noun = one if number == 1 else several
            parts.append(f"{number:,} {noun}{afterwards if done else beforehand}")
    return listed(parts) if parts else "nothing"


def _where(placement: Placement) -> str:
    nodes = sorted({replica.node for replica in placement.replicas})
    return nodes[0] if len(nodes) == 1 else f"{len(nodes)} nodes from {nodes[0]} to {nodes[-1]}"
