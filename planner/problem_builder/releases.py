"""Resources of nodes, queues and racks that running jobs release when they end within the horizon."""

from __future__ import annotations

from collections import Counter, defaultdict
from typing import TYPE_CHECKING

from gpuplan.models.cluster import Node, NodeGpus, Rack, rack_of
from gpuplan.models.placement import GpuShare, Replica
from gpuplan.models.problem.problem import ReplicaRelease

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from gpuplan.models.job import Job
    from gpuplan.models.problem.jobs import Incumbent
    from gpuplan.models.snapshot import Snapshot
    from gpuplan.planner.problem_builder.node_groups import NodeGroups
    from gpuplan.planner.problem_builder.resource_vectors import ResourceVectors
    from gpuplan.planner.problem_builder.start_values import StartValues


class Releases:
    """Running jobs that end within the horizon; none with a single slot."""

    def __init__(self, snapshot: Snapshot, timing: StartValues, incumbents: Iterable[Incumbent]) -> None:
        self._cluster = snapshot.cluster
        self._index = {incumbent.job: number for number, incumbent in enumerate(incumbents)}
        running = [job for job in snapshot.jobs if job.running is not None] if timing.ahead else []
        ends = ((timing.until(job), job) for job in running)
        self._ending = sorted(
            ((slot, job) for slot, job in ends if slot < timing.slots.count),
            key=lambda end: (end[0], end[1].name),
        )

    def by_node(self, sites: NodeGroups, shapes: ResourceVectors) -> dict[str, tuple[ReplicaRelease, ...]]:
        """Releases on each node of a problem, by name."""
        found: dict[str, list[ReplicaRelease]] = defaultdict(list)
        for slot, job, replica in self._replicas():
            if replica.node in sites.index:
                node = sites.nodes[sites.index[replica.node]]
                found[node.name].append(self._return(slot, job, replica, node, shapes))
        return {name: tuple(returns) for name, returns in found.items()}

    def by_queue(
        self, resource: str, position: Mapping[str, int]
    ) -> tuple[tuple[int, int, int, int | None], ...]:
        """(slot, queue, amount, incumbent) of one resource with quotas, by slot."""
        given: Counter[tuple[int, int, int]] = Counter()
        for slot, job, replica in self._replicas():
            node = self._cluster.node_by_name.get(replica.node)
            if node is not None and (amount := replica.quota_on(node.gpu_model, resource)):
                given[slot, position[job.queue], self._number(job)] += amount
        return tuple(
            (slot, queue, amount, None if number < 0 else number)
            for (slot, queue, number), amount in sorted(given.items())
        )

    def by_rack(self) -> dict[Rack, tuple[tuple[int, int, int | None], ...]]:
        """(slot, thousandths of watts, incumbent) of each rack, by slot."""
        given: dict[Rack, Counter[tuple[int, int]]] = defaultdict(Counter)
        for slot, job, replica, gpus in self._on_gpus():
            if gpus.watts:
                rack = rack_of(self._cluster.node_by_name[replica.node])
                given[rack][slot, self._number(job)] += replica.quota_milli * gpus.watts
        return {
            rack: tuple(
                (slot, milliwatts, None if number < 0 else number)
                for (slot, number), milliwatts in sorted(of_rack.items())
            )
            for rack, of_rack in given.items()
        }

    def _on_gpus(self) -> Iterable[tuple[int, Job, Replica, NodeGpus]]:
        for slot, job, replica in self._replicas():
            node = self._cluster.node_by_name.get(replica.node)
            if replica.gpus and node is not None and node.gpus is not None:
                yield slot, job, replica, node.gpus

    def _number(self, job: Job) -> int:
        """Index of the job's incumbent, or -1."""
        return self._index.get(job.name, -1)

    def _replicas(self) -> Iterable[tuple[int, Job, Replica]]:
        return (
            (slot, job, replica)
            for slot, job in self._ending
            for replica in (job.running.replicas if job.running else ())
        )

    def _return(
        self, slot: int, job: Job, replica: Replica, node: Node, shapes: ResourceVectors
    ) -> ReplicaRelease:
        # No other job can use an unhealthy GPU.
        sound = [held for held in replica.gpus if node.gpus and node.gpus.by_index[held.index].healthy]
        shares = sorted((held.index, held.milli) for held in sound if isinstance(held, GpuShare))
        slices = [(held.index, held.instance) for held in sound if not isinstance(held, GpuShare)]
        return ReplicaRelease(
            slot=slot,
            gpus=tuple(shares),
            slices=tuple(sorted(slices, key=lambda held: (held[0], held[1].start))),
            amounts=shapes.held(replica, job),
            incumbent=self._index.get(job.name),
        )
