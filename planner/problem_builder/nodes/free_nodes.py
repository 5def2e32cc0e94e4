"""Free capacity of each node of a problem while all running jobs stay."""

from __future__ import annotations

from collections import defaultdict
from typing import TYPE_CHECKING, Any

from gpuplan.models.eligibility.free_resources import FreeResources
from gpuplan.models.problem.problem import FreeNode, MigGpu
from gpuplan.planner.analysis.allocations import allocations_of

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from gpuplan.models.cluster import MigInstance, NodeGpus
    from gpuplan.models.problem.problem import ReplicaRelease
    from gpuplan.models.snapshot import Snapshot
    from gpuplan.planner.problem_builder.nodes.node_groups import NodeGroups
    from gpuplan.planner.problem_builder.nodes.resource_vectors import ResourceVectors


def free_nodes(
    snapshot: Snapshot,
    sites: NodeGroups,
    shapes: ResourceVectors,
    *,
    held: Mapping[str, int],
    closing: Mapping[str, int],
    returns: Mapping[str, tuple[ReplicaRelease, ...]],
) -> tuple[FreeNode, ...]:
    """
    The nodes in the order of `sites`.

    By node name: `held` has the thousandths of GPUs in use, `closing` the points of removing the node,
    `returns` the amounts that running jobs release when they end.
    """
    free, slices = allocations_of(snapshot).free, _slices(snapshot)
    found = []
    for index, node in enumerate(sites.nodes):
        name = node.name
        # Nodes that pools may still add are empty.
        left = free.get(name) or FreeResources.of(node)
        amounts = shapes.left(node, left, held.get(name, 0))
        found.append(
            FreeNode(
                name=name,
                gpus=_not_negative(tuple(left.gpu_milli)),
                amounts=_not_negative(amounts),
                overdrawn=_overdrawn(amounts),
                closing_points=closing.get(name),
                releases=returns.get(name, ()),
                opens=sites.opens[sites.group_of[index]],
                **_details(node.gpus, slices.get(name, {})),
            )
        )
    return tuple(found)


def _details(gpus: NodeGpus | None, used: Mapping[int, list[MigInstance]]) -> dict[str, Any]:
    """Per-GPU fields of a node; empty if the node lists no single GPUs."""
    if gpus is None or not gpus.details:
        return {}
    return {
        "mig": tuple(_mig(gpus, used)),
        "unhealthy": tuple(gpu.index for gpu in gpus.details if not gpu.healthy),
        "gpu_groups": _gpu_groups(gpus),
    }


def _not_negative(amounts: tuple[int, ...]) -> tuple[int, ...]:
    return amounts if min(amounts, default=0) >= 0 else tuple(max(0, amount) for amount in amounts)


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
    """MIG instances in use, by node and GPU index."""
    used: dict[str, dict[int, list[MigInstance]]] = defaultdict(lambda: defaultdict(list))
    for placement in snapshot.running_placements:
        for replica in placement.on_mig:
            for held in replica.mig_slices:
                used[replica.node][held.index].append(held.instance)
    return used


def held_milli(snapshot: Snapshot) -> dict[str, int]:
    """Thousandths of GPUs that running jobs hold, by node."""
    held: dict[str, int] = defaultdict(int)
    for placement in snapshot.running_placements:
        for replica in placement.replicas:
            if replica.gpus:
                held[replica.node] += replica.quota_milli
    return held
