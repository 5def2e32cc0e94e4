"""The cluster once a target is applied: nodes added and removed, MIG layouts changed."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from gpuplan.models.eligibility.free_resources import layout_after
from gpuplan.models.mig import mig_geometry
from gpuplan.models.placement import mig_instances_in_use

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from gpuplan.models.cluster import Cluster, MigInstance, Node
    from gpuplan.models.placement import Placement
    from gpuplan.models.plan.solution import DesiredState
    from gpuplan.models.snapshot import Snapshot


@dataclass(frozen=True, slots=True)
class Changed:
    """Differences from the present cluster."""

    places: Mapping[str, Placement | None] = field(default_factory=dict)
    """Where jobs run; None: the job waits."""
    added: Mapping[str, Node] = field(default_factory=dict)
    removed: frozenset[str] = frozenset()
    opened: frozenset[str] = frozenset()
    layouts: Mapping[tuple[str, int], tuple[MigInstance, ...]] = field(default_factory=dict)

    def __or__(self, more: Changed) -> Changed:
        return Changed(
            {**self.places, **more.places},
            {**self.added, **more.added},
            self.removed | more.removed,
            self.opened | more.opened,
            {**self.layouts, **more.layouts},
        )


@dataclass(frozen=True, slots=True)
class LayoutChange:
    """The MIG layout of one GPU, before and after."""

    node: str
    gpu: int
    before: tuple[MigInstance, ...] | None
    """None if MIG mode is off."""
    after: tuple[MigInstance, ...]


def layout_changes(
    nodes: Iterable[Node], *, before: Iterable[Placement], after: Iterable[Placement]
) -> tuple[LayoutChange, ...]:
    """
    Find the GPUs that get another MIG layout, by node and GPU index.

    A layout changes only if it gets new instances in use; instances that become idle stay.
    """
    used, running = mig_instances_in_use(after), mig_instances_in_use(before)
    return tuple(
        LayoutChange(node.name, index, gpu.mig, layout)
        for node in sorted((node for node in nodes if node.name in used), key=lambda node: node.name)
        if node.gpus
        for index, instances in sorted(used[node.name].items())
        if not instances <= running[node.name][index]
        and (gpu := node.gpus.by_index.get(index))
        and (layout := layout_after(gpu, mig_geometry(node.gpus.model), instances)) is not None
        and (gpu.mig is None or set(layout) != set(gpu.mig))
    )


def target_layouts(snapshot: Snapshot, target: DesiredState) -> tuple[LayoutChange, ...]:
    """The GPUs that get another MIG layout by a target: what its jobs need, and what a rollback puts back."""
    staying = {
        node.name: node
        for node in (*snapshot.cluster.nodes, *target.added)
        if node.name not in target.removed
    }
    needed = layout_changes(staying.values(), before=snapshot.running_placements, after=target.placements)
    if not target.undo.layouts:
        return needed
    found = {(change.node, change.gpu): change for change in needed}
    for back in target.undo.layouts:
        gpus = staying[back.node].gpus
        present = gpus.by_index[back.gpu].mig if gpus else None
        found.pop((back.node, back.gpu), None)
        if present is None or set(present) != set(back.instances):
            found[back.node, back.gpu] = LayoutChange(back.node, back.gpu, present, back.instances)
    return tuple(found[key] for key in sorted(found))


def cluster_after(
    snapshot: Snapshot, target: DesiredState, layouts: Sequence[LayoutChange] | None = None
) -> Cluster:
    """
    Return the snapshot's cluster once the target is applied; a changed cluster has its nodes sorted by name.

    `layouts` are the changes of MIG layouts, if they are known already.
    """
    cluster, removed = snapshot.cluster, set(target.removed)
    staying = [node for node in (*cluster.nodes, *target.added) if node.name not in removed]
    if layouts is None:
        layouts = target_layouts(snapshot, target)
    opened = target.undo.opened
    if not removed and not target.added and not layouts and not opened:
        return cluster
    nodes = {node.name: node for node in staying}
    for name in opened:
        nodes[name] = nodes[name].model_copy(update={"cordoned": False})
    for change in layouts:
        nodes[change.node] = with_layout(nodes[change.node], change.gpu, change.after)
    return cluster.model_copy(update={"nodes": tuple(nodes[name] for name in sorted(nodes))})


def with_layout(node: Node, gpu: int, instances: tuple[MigInstance, ...] | None) -> Node:
    """The node with these MIG instances on one of its GPUs; None: with MIG mode off."""
    if node.gpus is None or gpu not in node.gpus.by_index:
        return node
    changed = node.gpus.by_index[gpu].model_copy(update={"mig": instances})
    details = (changed, *(other for other in node.gpus.details if other.index != gpu))
    ordered = tuple(sorted(details, key=lambda detail: detail.index))
    return node.model_copy(update={"gpus": node.gpus.model_copy(update={"details": ordered})})
