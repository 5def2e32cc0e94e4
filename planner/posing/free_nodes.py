"""What each node of a question has free while every running job stays."""

from __future__ import annotations

from collections import defaultdict
from typing import TYPE_CHECKING

from planner.models.cluster import MigInstance
from planner.models.occupancy import free_capacity
from planner.models.placement import MigSlice
from planner.models.problem_nodes import FreeNode, MigGpu

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from planner.models.cluster import NodeGpus
    from planner.models.problem_nodes import Return
    from planner.models.snapshot import Snapshot
    from planner.posing.shapes import Shapes
    from planner.posing.sites import Sites


def free_nodes(
    snapshot: Snapshot,
    sites: Sites,
    shapes: Shapes,
    *,
    closing: Mapping[str, int],
    returns: Mapping[str, tuple[Return, ...]],
) -> tuple[FreeNode, ...]:
    """
    The nodes in the order of the sites.

    `closing` has what giving back a node brings, `returns` what running jobs give back to it, both by name.
    """
    placements = snapshot.running_placements
    free = free_capacity(sites.nodes, placements, snapshot=snapshot)
    drawn, slices = held_milli(snapshot), _slices(snapshot)
    amounts = {node.name: shapes.left(node, free[node.name], drawn.get(node.name, 0)) for node in sites.nodes}
    return tuple(
        FreeNode(
            name=node.name,
            gpus=tuple(max(0, milli) for milli in free[node.name].gpu_milli),
            amounts=tuple(max(0, amount) for amount in amounts[node.name]),
            overdrawn=_overdrawn(amounts[node.name]),
            mig=tuple(_mig(node.gpus, slices.get(node.name, {}))) if node.gpus else (),
            closing_points=closing.get(node.name),
            unhealthy=tuple(gpu.index for gpu in node.gpus.details if not gpu.healthy) if node.gpus else (),
            gpu_groups=_gpu_groups(node.gpus) if node.gpus else (),
            returns=returns.get(node.name, ()),
            opens=sites.opens[sites.group_of[index]],
        )
        for index, node in enumerate(sites.nodes)
    )


def _overdrawn(amounts: tuple[int, ...]) -> tuple[int, ...]:
    return tuple(max(0, -amount) for amount in amounts) if min(amounts) < 0 else ()


def _mig(gpus: NodeGpus, used: Mapping[int, list[MigInstance]]) -> Iterator[MigGpu]:
    for gpu in sorted(gpus.details, key=lambda gpu: gpu.index):
        if gpu.healthy and gpu.mig is not None:
            in_use = sorted(used.get(gpu.index, ()), key=_position)
            idle = sorted((one for one in gpu.mig if one not in in_use), key=_position)
            yield MigGpu(gpu.index, tuple(idle), tuple(in_use))


def _position(instance: MigInstance) -> tuple[int, str]:
    return instance.start, instance.profile


def _gpu_groups(gpus: NodeGpus) -> tuple[tuple[int, int], ...]:
    if all(gpu.nvlink is None and gpu.numa is None for gpu in gpus.details):
        return ()
    return tuple(
        (-1 if gpu.nvlink is None else gpu.nvlink, -1 if gpu.numa is None else gpu.numa)
        for gpu in gpus.by_index.values()
    )


def _slices(snapshot: Snapshot) -> dict[str, dict[int, list[MigInstance]]]:
    """MIG instances in use by node and GPU index."""
    used: dict[str, dict[int, list[MigInstance]]] = defaultdict(lambda: defaultdict(list))
    for placement in snapshot.running_placements:
        for replica in placement.replicas:
            for held in replica.gpus:
                if isinstance(held, MigSlice):
                    instance = MigInstance(profile=held.profile, start=held.start)
                    used[replica.node][held.index].append(instance)
    return used


def held_milli(snapshot: Snapshot) -> dict[str, int]:
    """Thousandths of GPUs that running jobs hold, by node."""
    held: dict[str, int] = defaultdict(int)
    for placement in snapshot.running_placements:
        for replica in placement.replicas:
            if replica.gpus:
                held[replica.node] += replica.quota_milli
    return held
