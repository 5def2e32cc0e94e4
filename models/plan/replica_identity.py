"""Replicas have no names: two of them are the same if they hold the same."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, TypeAlias

from gpuplan.models.placement import GpuShare

if TYPE_CHECKING:
    from gpuplan.models.placement import Replica

Holding: TypeAlias = tuple[object, ...]
"""All that a replica holds, as a value that compares and hashes."""


def unmatched(some: tuple[Replica, ...], others: tuple[Replica, ...]) -> list[int]:
    """Numbers of the replicas that match none of the others; each of the others matches at most once."""
    unused = Counter(map(holding, others))
    found = []
    for number, replica in enumerate(some):
        if unused[holding(replica)]:
            unused[holding(replica)] -= 1
        else:
            found.append(number)
    return found


def same_holdings(one: tuple[Replica, ...], other: tuple[Replica, ...]) -> bool:
    """True if two sets of replicas hold the same, regardless of the order of replicas and GPUs."""
    return one == other or Counter(map(holding, one)) == Counter(map(holding, other))


def holding(replica: Replica) -> Holding:
    """The canonical value of what a replica holds."""
    return (
        replica.node,
        tuple(
            sorted(
                (held.index, held.milli, "", 0)
                if isinstance(held, GpuShare)
                else (held.index, 0, held.profile, held.start)
                for held in replica.gpus
            )
        ),
        replica.cpu_milli,
        replica.memory_mib,
        replica.disk_mib,
        tuple(sorted((name, amount) for name, amount in replica.resources.items() if amount)),
    )
