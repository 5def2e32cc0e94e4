"""Holdings: what jobs hold on each node and in each queue, counted once and then updated incrementally."""

from __future__ import annotations

from collections import Counter, defaultdict
from functools import cached_property, partial
from typing import TYPE_CHECKING, Final, NamedTuple, TypeAlias

import numpy as np

from gpuplan.models.eligibility.free_resources import FreeResources, charged_cpu_memory
from gpuplan.models.queue import NOT_OF_GPUS
from gpuplan.models.units import MILLI

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Iterator

    from numpy.typing import NDArray

    from gpuplan.models.cluster import Cluster, Node
    from gpuplan.models.job import Job
    from gpuplan.models.placement import Replica
    from gpuplan.models.snapshot import Snapshot

    _Ints: TypeAlias = NDArray[np.int64]

Usage: TypeAlias = "dict[str, Counter[str]]"
"""Thousandths of GPUs by queue and GPU model; also of each of `NOT_OF_GPUS` (`models.queue`)."""


def count_usage(held: Counter[str], replica: Replica, gpu_model: str | None, times: int = 1) -> None:
    """Add to `held`, the usage of one queue, what a replica counts for on a node with GPUs of a model."""
    if gpu_model is not None and replica.gpus:
        held[gpu_model] += replica.quota_milli * times
    for resource, amount in zip(NOT_OF_GPUS, replica.quota[1:], strict=True):
        if amount:
            held[resource] += amount * times


class HeldReplica(NamedTuple):
    """One replica of a job on its node."""

    job: Job
    replica: Replica


def held_replicas(job: Job) -> Iterator[HeldReplica]:
    """Yield the replicas of a running job; none for a waiting job."""
    return (HeldReplica(job, replica) for replica in job.running_replicas)


class Allocations:
    """
    What a set of jobs holds in a cluster; immutable for callers.

    Replicas on nodes that the cluster does not have are kept, but count for nothing.
    """

    def __init__(self, cluster: Cluster, there: dict[str, tuple[HeldReplica, ...]]) -> None:
        self._cluster = cluster
        self.there = there
        """Residents by node name; a missing name means that the node has none."""

    @classmethod
    def of(cls, cluster: Cluster, jobs: Iterable[Job]) -> Allocations:
        """Count the holdings of the running jobs among these."""
        there: dict[str, list[HeldReplica]] = defaultdict(list)
        for job in jobs:
            for resident in held_replicas(job):
                there[resident.replica.node].append(resident)
        return cls(cluster, {name: tuple(found) for name, found in there.items()})

    def with_changes(
        self, cluster: Cluster, gone: Iterable[HeldReplica], come: Iterable[HeldReplica]
    ) -> Allocations:
        """Derive the holdings after some residents leave and others arrive; recounts only changed nodes."""
        lists: dict[str, list[HeldReplica]] = {}
        for resident in gone:
            name = resident.replica.node
            lists.setdefault(name, list(self.there[name])).remove(resident)
        for resident in come:
            name = resident.replica.node
            lists.setdefault(name, list(self.there.get(name, ()))).append(resident)
        changed = {name: tuple(left) for name, left in lists.items()}
        found = Allocations(cluster, self.there | changed)
        names = sorted(lists.keys() | self._other_nodes(cluster))
        if cluster.overcommit == self._cluster.overcommit:
            there = cluster.node_by_name
            kept = {name: free for name, free in self.free.items() if name in there}
            found.free = kept | {name: found._left(name) for name in names if name in there}
            if cluster is self._cluster or list(there) == list(self._cluster.node_by_name):
                found._table = found._table_from(self._table, frozenset(names))
        found.usage = defaultdict(Counter, {queue: held.copy() for queue, held in self.usage.items()})
        self._count(found.usage, names, -1)
        found._count(found.usage, names, 1)
        return found

    @cached_property
    def free(self) -> dict[str, FreeResources]:
        """Free capacity by node name."""
        return {name: self._left(name) for name in self._cluster.node_by_name}

    @cached_property
    def usage(self) -> Usage:
        """Usage of the jobs directly in each queue, by GPU model, and of CPU cores and memory."""
        usage: Usage = defaultdict(Counter)
        self._count(usage, self.there, 1)
        return usage

    def column(self, amount: str) -> _Ints:
        """Return one field of `NodeTotals` for all nodes, in the order of the cluster."""
        column: _Ints = self._table[NodeTotals._fields.index(amount)]
        return column

    def total(self, amount: str) -> int:
        """Return the sum of a column."""
        return int(self.column(amount).sum())

    @cached_property
    def _table(self) -> _Ints:
        """Matrix with one row per amount and one column per node."""
        rows = [self._amounts(name) for name in self._cluster.node_by_name]
        return np.array(rows, np.int64).reshape(-1, len(NodeTotals._fields)).T.copy()

    def _table_from(self, table: _Ints, changed: frozenset[str]) -> _Ints:
        """Copy the table of holdings on the same nodes, with the columns of the changed nodes recomputed."""
        table = table.copy()
        for column, name in enumerate(self._cluster.node_by_name):
            if name in changed:
                table[:, column] = self._amounts(name)
        return table

    def _amounts(self, name: str) -> NodeTotals:
        node, free = self._cluster.node_by_name[name], self.free[name]
        return NodeTotals.of(node, free, partial(self.replicas, name))

    def replicas(self, node: str) -> list[Replica]:
        """Return the replicas on a node."""
        return [replica for _, replica in self.there.get(node, ())]

    def _left(self, name: str) -> FreeResources:
        overcommit, free = self._cluster.overcommit, FreeResources.of(self._cluster.node_by_name[name])
        for job, replica in self.there.get(name, ()):
            free.take(replica, charged_cpu_memory(replica, job.qos, self._cluster) if overcommit else None)
        return free

    def _count(self, usage: Usage, names: Iterable[str], sign: int) -> None:
        nodes = self._cluster.node_by_name
        for name in names:
            if (node := nodes.get(name)) is not None:
                for job, replica in self.there.get(name, ()):
                    count_usage(usage[job.queue], replica, node.gpu_model, sign)

    def _other_nodes(self, cluster: Cluster) -> set[str]:
        """Names of the nodes that differ between the clusters or exist in only one of them."""
        if cluster is self._cluster:
            return set()
        before, after = self._cluster.node_by_name, cluster.node_by_name
        return {name for name in before.keys() | after.keys() if before.get(name) is not after.get(name)}


def allocations_of(snapshot: Snapshot) -> Allocations:
    """Return what the running jobs of a snapshot hold, computed once per snapshot."""
    found = snapshot.derived.get(Allocations)
    if not isinstance(found, Allocations):
        found = snapshot.derived[Allocations] = Allocations.of(snapshot.cluster, snapshot.jobs)
    return found


def update_allocations_from(other: Snapshot, snapshot: Snapshot) -> None:
    """Derive the holdings of a snapshot from those of another one, if the other has them counted."""
    if Allocations in other.derived:
        before, after = other.job_by_name, snapshot.job_by_name
        changed = [job for job in snapshot.jobs if before.get(job.name) is not job]
        names = {job.name for job in changed} | (before.keys() - after.keys())
        gone = (resident for name in names if name in before for resident in held_replicas(before[name]))
        come = (resident for job in changed for resident in held_replicas(job))
        snapshot.derived[Allocations] = allocations_of(other).with_changes(snapshot.cluster, gone, come)


# Amounts of one node that are evaluated over all nodes at once.


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
