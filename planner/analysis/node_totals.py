"""Amounts of one node that are evaluated over all nodes at once."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Final, NamedTuple

from gpuplan.models.units import MILLI

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable

    from gpuplan.models.cluster import Node
    from gpuplan.models.eligibility.free_resources import FreeResources
    from gpuplan.models.placement import Replica

REFERENCE_GPUS: Final = 8
"""Whole GPUs on one node in the reference request of the fragmentation ratio."""


class NodeTotals(NamedTuple):
    """Free amounts of a node (negative if overcommitted), and the use of its GPUs in thousandths."""

    whole_gpus: int
    largest_share: int
    all_shares: int
    cpu_milli: int
    memory_mib: int
    disk_mib: int
    used: int
    usable: int
    startable: int
    """Free GPU capacity if jobs may start there, else 0."""
    in_blocks: int
    """Part of `startable` that replicas of the reference request could use."""

    @classmethod
    def of(cls, node: Node, free: FreeResources, replicas: Callable[[], Iterable[Replica]]) -> NodeTotals:
        """Compute the amounts of a node with these replicas on it."""
        return cls(
            *(free.whole_gpus, free.largest_share, free.all_shares),
            *(free.cpu_milli, free.memory_mib, free.disk_mib),
            *gpus_used(node, free, replicas),
            *gpus_startable(node, free, REFERENCE_GPUS),
        )


def gpus_used(node: Node, free: FreeResources, replicas: Callable[[], Iterable[Replica]]) -> tuple[int, int]:
    """Return (allocated, usable) thousandths of GPUs; usable are the healthy GPUs of a ready node."""
    gpus = node.gpus
    if gpus is None or not node.ready:
        return 0, 0
    usable = MILLI * gpus.count
    if not gpus.details and not free.mig_used:
        return usable - free.all_shares, usable
    # Only a few GPUs have details; all others are healthy.
    faulty = {gpu.index for gpu in gpus.details if not gpu.healthy and gpu.index < gpus.count}
    return _allocated(replicas(), gpus.count, faulty), usable - MILLI * len(faulty)


def gpus_startable(node: Node, free: FreeResources, gpus: int) -> tuple[int, int]:
    """Return the free GPU capacity if jobs may start there, and its part for replicas of `gpus` GPUs."""
    offer = node.gpus
    if offer is None or not node.schedulable:
        return 0, 0
    kept_out = sum(gpu.index < offer.count and not (gpu.healthy and gpu.mig is None) for gpu in offer.details)
    block = min(gpus, offer.count - kept_out)
    return free.all_shares, free.whole_gpus // block * block * MILLI if block else 0


def _allocated(replicas: Iterable[Replica], count: int, faulty: Collection[int]) -> int:
    """Thousandths that replicas hold of a node's healthy GPUs, at most the whole of each GPU."""
    held = Counter[int]()
    for replica in replicas:
        for index, milli in replica.milli_by_gpu.items():
            held[index] += milli
    return sum(min(MILLI, milli) for index, milli in held.items() if index < count and index not in faulty)
