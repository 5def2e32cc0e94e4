"""The cluster once a target is applied: nodes added and removed, MIG layouts changed."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass
from typing import TYPE_CHECKING

from gpuplan.models.eligibility.free_resources import layout_after
from gpuplan.models.mig import mig_geometry
from gpuplan.planner.analysis.effects import with_layout

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from gpuplan.models.cluster import Cluster, MigInstance, Node
    from gpuplan.models.placement import Placement
    from gpuplan.models.plan.desired_state import DesiredState
    from gpuplan.models.snapshot import Snapshot


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
    used, running = _instances(after), _instances(before)
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


def _instances(placements: Iterable[Placement]) -> dict[str, dict[int, set[MigInstance]]]:
    """MIG instances in use, by node and GPU index."""
    used: dict[str, dict[int, set[MigInstance]]] = defaultdict(lambda: defaultdict(set))
    for placement in placements:
        for replica in placement.on_mig:
            for held in replica.mig_slices:
                used[replica.node][held.index].add(held.instance)
    return used


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
        before, after = snapshot.running_placements, target.placements
        layouts = layout_changes(staying, before=before, after=after)
    if not removed and not target.added and not layouts:
        return cluster
    nodes = {node.name: node for node in staying}
    for change in layouts:
        nodes[change.node] = with_layout(nodes[change.node], change.gpu, change.after)
    return cluster.model_copy(update={"nodes": tuple(nodes[name] for name in sorted(nodes))})
