"""Effects of a change on placements and nodes; all of apply uses this one definition."""

from __future__ import annotations

from typing import TYPE_CHECKING, assert_never

from gpuplan.models.plan.plan import (
    Cordon,
    Drain,
    Grow,
    Keep,
    Migrate,
    Preempt,
    Release,
    Repartition,
    ScaleDown,
    ScaleUp,
    Shrink,
    Start,
    Wait,
)

if TYPE_CHECKING:
    from collections.abc import Iterable
    from datetime import datetime

    from gpuplan.models.cluster import MigInstance, Node, NodePool
    from gpuplan.models.placement import Placement
    from gpuplan.models.plan.plan import Action, Change


def changes_of(actions: Iterable[Action]) -> list[Change]:
    """The actions that change the cluster, in their order."""
    return [action for action in actions if not isinstance(action, Keep | Wait)]


def change_jobs(running: dict[str, Placement], change: Change) -> None:
    """Update the placements, by job, with a change that was done."""
    match change:
        case Start() | Shrink() | Grow() | Migrate():
            running[change.job] = change.after
        case Preempt():
            running.pop(change.job, None)
        case Release():
            running.pop(change.job, None)
            if change.after:
                running[change.job] = change.after
        case Repartition() | Cordon() | Drain() | ScaleUp() | ScaleDown():
            pass
        case _:
            assert_never(change)


def change_nodes(nodes: dict[str, Node], change: Change) -> None:
    """Update the nodes, by name, with a change that was done."""
    match change:
        case Repartition():
            if (node := nodes.get(change.node)) is not None:
                nodes[change.node] = with_layout(node, change.gpu, change.after)
        case Cordon():
            if (node := nodes.get(change.node)) is not None:
                nodes[change.node] = node.model_copy(update={"cordoned": True})
        case ScaleUp():
            nodes[change.node] = change.after
        case ScaleDown():
            nodes.pop(change.node, None)
        case Start() | Shrink() | Grow() | Migrate() | Preempt() | Release() | Drain():
            pass
        case _:
            assert_never(change)


def with_layout(node: Node, gpu: int, instances: tuple[MigInstance, ...] | None) -> Node:
    """The node with exactly these MIG instances on one GPU; None means that MIG mode is off."""
    if node.gpus is None or gpu not in node.gpus.by_index:
        return node
    changed = node.gpus.by_index[gpu].model_copy(update={"mig": instances})
    details = (changed, *(other for other in node.gpus.details if other.index != gpu))
    ordered = tuple(sorted(details, key=lambda detail: detail.index))
    return node.model_copy(update={"gpus": node.gpus.model_copy(update={"details": ordered})})


def with_pool_scaled(pool: NodePool, change: ScaleUp | ScaleDown, at: datetime) -> NodePool:
    """The pool with the time at which a node was added or removed."""
    field = "node_added_at" if isinstance(change, ScaleUp) else "node_removed_at"
    return pool.model_copy(update={field: at})


def nodes_touched(change: Change) -> set[str]:
    """Names of the nodes of a change: all nodes of the job before and after, or the node itself."""
    match change:
        case Start() | Preempt() | Release() | Shrink() | Grow() | Migrate():
            placements = (change.before, change.after)
            return {replica.node for placement in placements if placement for replica in placement.replicas}
        case Repartition() | Cordon() | Drain() | ScaleUp() | ScaleDown():
            return {change.node}
        case _:
            assert_never(change)
