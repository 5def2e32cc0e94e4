"""
Places of jobs that go back, where the cluster chooses the GPUs of a node: free ones in place of those in use.

There an index is only a name for one of several equal GPUs, and others may have it now.
"""

from __future__ import annotations

from collections import defaultdict
from typing import TYPE_CHECKING

from gpuplan.models.placement import GpuShare
from gpuplan.models.units import MILLI
from gpuplan.planner.rollback.reversals import with_places

if TYPE_CHECKING:
    from gpuplan.models.placement import Placement, Replica
    from gpuplan.models.snapshot import Snapshot
    from gpuplan.planner.rollback.reversals import Reversals


def with_free_gpus(wishes: Reversals, live: Snapshot, *, pinned: bool) -> None:
    """
    Exchange whole GPUs in the places of jobs that go back, where a job that stays has them now.

    `pinned` is False if the cluster chooses the GPUs of every node.
    """
    chosen = {
        node.name: node for node in live.cluster.nodes if node.gpus and not (pinned and node.gpus.pinned)
    }
    if not chosen:
        return
    leaving = wishes.jobs.keys() | wishes.started.keys()
    used: dict[str, set[int]] = defaultdict(set)
    fixed: dict[str, set[int]] = defaultdict(set)
    for placed in live.running_placements:
        for replica in placed.replicas:
            indices = {held.index for held in replica.gpus}
            used[replica.node] |= indices
            if placed.job not in leaving:
                fixed[replica.node] |= indices
    for name, reversal in wishes.jobs.items():
        place = reversal.change.places[name]
        for replica in place.replicas if place else ():
            used[replica.node] |= {held.index for held in replica.gpus}
    for name, reversal in wishes.jobs.items():
        if (place := reversal.change.places[name]) is None:
            continue
        replicas = []
        for replica in place.replicas:
            node = chosen.get(replica.node)
            gpus = node.gpus.by_index.values() if node and node.gpus else ()
            free = [
                gpu.index
                for gpu in gpus
                if gpu.healthy and gpu.mig is None and gpu.index not in used[replica.node]
            ]
            replicas.append(_renamed(replica, fixed[replica.node], free) if node else replica)
            used[replica.node] |= {held.index for held in replicas[-1].gpus}
        moved: Placement = place.model_copy(update={"replicas": tuple(replicas)})
        wishes.jobs[name] = with_places(reversal, {name: moved})


def _renamed(replica: Replica, fixed: set[int], free: list[int]) -> Replica:
    """The replica with free GPUs in place of whole ones that others have; as it is if there are too few."""
    taken = [
        held
        for held in replica.gpus
        if isinstance(held, GpuShare) and held.milli == MILLI and held.index in fixed
    ]
    if not taken or len(taken) > len(free):
        return replica
    names = dict(zip((held.index for held in taken), free, strict=False))
    gpus = tuple(
        held.model_copy(update={"index": names.get(held.index, held.index)}) for held in replica.gpus
    )
    return replica.model_copy(update={"gpus": gpus})
