"""Replica diff: which places of a running job a new placement gives up, and which replicas are new."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, TypeAlias

from gpuplan.models.placement import GpuShare

if TYPE_CHECKING:
    from collections.abc import Mapping

    from gpuplan.models.placement import Placement, Replica
    from gpuplan.models.problem.jobs import HeldResources, Incumbent
    from gpuplan.models.problem.problem import Problem

Held: TypeAlias = tuple[int | None, tuple[int, ...], tuple[tuple[int, str, int], ...]]
"""(node, GPU indices, (GPU index, profile, start) of MIG instances); node None: no job may start there."""


def held_indices(problem: Problem, replica: Replica, node_of: Mapping[str, int]) -> Held:
    """Holdings of a replica in indices, without unhealthy GPUs; `node_of` maps node names to indices."""
    node = node_of.get(replica.node)
    if node is None:
        return None, (), ()
    sound = [held for held in replica.gpus if held.index not in problem.nodes[node].unhealthy]
    shares = [held.index for held in sound if isinstance(held, GpuShare)]
    slices = [(held.index, held.profile, held.start) for held in sound if not isinstance(held, GpuShare)]
    return node, tuple(sorted(shares)), tuple(sorted(slices))


def replica_changes(
    problem: Problem, incumbent: Incumbent, after: Placement, node_of: Mapping[str, int]
) -> tuple[list[int], list[Replica]]:
    """Positions of the holds that are given up, and new replicas."""
    held = [held_indices(problem, replica, node_of) for replica in after.replicas]
    there = Counter(held)
    gone = []
    for position, hold in enumerate(incumbent.holds):
        key = _of(hold)
        if there[key]:
            there[key] -= 1
        else:
            gone.append(position)
    come = []
    for replica, key in zip(after.replicas, held, strict=True):
        if there[key] > 0:
            there[key] -= 1
            come.append(replica)
    return gone, come


def _of(hold: HeldResources) -> Held:
    if hold.node is None:
        return None, (), ()
    slices = tuple(sorted((gpu, each.profile, each.start) for gpu, each in hold.slices))
    return hold.node, tuple(sorted(hold.gpus)), slices
