"""
Nodes of a problem while all running jobs stay: free capacity, power caps of racks, nodes that pools may
change, and what running jobs release when they end.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from dataclasses import dataclass
from itertools import count as numbers
from itertools import islice
from typing import TYPE_CHECKING, Any

from gpuplan.models.cluster import MigInstance, Node, NodeGpus, NodePool, Rack, rack_of
from gpuplan.models.eligibility.free_resources import FreeResources
from gpuplan.models.eligibility.node_eligibility import ineligibility
from gpuplan.models.placement import GpuShare, Replica, mig_instances_in_use
from gpuplan.models.problem.problem import FreeNode, MigGpu, PoolOption, PowerCap, ReplicaRelease
from gpuplan.models.units import MILLI
from gpuplan.models.value.disruption_cost import node_points
from gpuplan.planner.analysis.allocations import allocations_of

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Iterator, Mapping

    from gpuplan.models.job import Job
    from gpuplan.models.policy.policy import Policy
    from gpuplan.models.problem.jobs import Incumbent
    from gpuplan.models.snapshot import Snapshot
    from gpuplan.planner.problem_builder.candidates import Filters, JobCandidate
    from gpuplan.planner.problem_builder.node_groups import NodeGroups
    from gpuplan.planner.problem_builder.resource_vectors import ResourceVectors
    from gpuplan.planner.problem_builder.start_values import StartValues


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
    free, slices = allocations_of(snapshot).free, mig_instances_in_use(snapshot.running_placements)
    found = []
    for index, node in enumerate(sites.nodes):
        name = node.name
        empty = FreeResources.of(node)
        # Nodes that pools may still add are empty.
        left = free.get(name) or empty
        amounts = shapes.left(node, left, held.get(name, 0))
        found.append(
            FreeNode(
                name=name,
                gpus=_not_negative(tuple(left.gpu_milli)),
                amounts=_not_negative(amounts),
                capacity=_not_negative(shapes.left(node, empty, 0)),
                overdrawn=_overdrawn(amounts),
                closing_points=closing.get(name),
                releases=returns.get(name, ()),
                opens=sites.opens[sites.group_of[index]],
                **_details(node.gpus, slices.get(name, {})),
            )
        )
    return tuple(found)


def _details(gpus: NodeGpus | None, used: Mapping[int, Collection[MigInstance]]) -> dict[str, Any]:
    """Per-GPU fields of a node; empty if the node lists no single GPUs."""
    if gpus is None or not gpus.details:
        return {}
    return {
        "mig": tuple(mig_gpus(gpus, used)),
        "unhealthy": tuple(gpu.index for gpu in gpus.details if not gpu.healthy),
        "gpu_groups": _gpu_groups(gpus),
    }


def _not_negative(amounts: tuple[int, ...]) -> tuple[int, ...]:
    return amounts if min(amounts, default=0) >= 0 else tuple(max(0, amount) for amount in amounts)


def _overdrawn(amounts: tuple[int, ...]) -> tuple[int, ...]:
    return tuple(max(0, -amount) for amount in amounts) if min(amounts) < 0 else ()


def mig_gpus(gpus: NodeGpus, used: Mapping[int, Collection[MigInstance]]) -> Iterator[MigGpu]:
    """Yield the healthy GPUs in MIG mode, by index; `used` are the instances in use, by index."""
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


def held_milli(snapshot: Snapshot) -> dict[str, int]:
    """Thousandths of GPUs that running jobs hold, by node."""
    held: dict[str, int] = defaultdict(int)
    for placement in snapshot.running_placements:
        for replica in placement.replicas:
            if replica.gpus:
                held[replica.node] += replica.quota_milli
    return held


# Power caps of racks; caps of single nodes are a countable resource (see `resource_vectors`).


def power_caps(
    snapshot: Snapshot,
    nodes: list[Node],
    held_milli: Mapping[str, int],
    incumbents: Iterable[Incumbent],
    returns: Mapping[Rack, tuple[tuple[int, int, int | None], ...]],
) -> tuple[PowerCap, ...]:
    """
    Caps that could bind, over the nodes of the problem.

    `held_milli` has the thousandths of GPUs that running jobs hold, by node name. It includes nodes that take
    no new replicas, since they draw power too. For `returns` see `PowerCap.releases`.
    """
    cluster = snapshot.cluster
    if not cluster.rack_power:
        return ()
    members: dict[Rack, list[int]] = defaultdict(list)
    for index, node in enumerate(nodes):
        if node.gpus and node.gpus.watts:
            members[rack_of(node)].append(index)
    drawn: dict[Rack, int] = defaultdict(int)
    for node in cluster.nodes:
        if node.gpus:
            drawn[rack_of(node)] += held_milli.get(node.name, 0) * node.gpus.watts
    elsewhere = _elsewhere(snapshot, {node.name for node in nodes}, incumbents)
    caps = []
    for cap in sorted(cluster.rack_power, key=lambda cap: (*rack_of(cap), cap.watts)):
        rack = rack_of(cap)
        indices = tuple(members[rack])
        watts = tuple(gpus.watts for index in indices if (gpus := nodes[index].gpus))
        left = cap.watts * MILLI - drawn[rack]
        if left < sum(
            nodes[index].gpu_count * MILLI * each for index, each in zip(indices, watts, strict=True)
        ):
            away = tuple(sorted(elsewhere[rack].items()))
            caps.append(PowerCap(indices, watts, left, away, returns.get(rack, ())))
    return tuple(caps)


def _elsewhere(
    snapshot: Snapshot, names: set[str], incumbents: Iterable[Incumbent]
) -> dict[Rack, dict[int, int]]:
    """Thousandths of watts that incumbents draw on nodes outside the problem, by rack and incumbent."""
    drawn: dict[Rack, dict[int, int]] = defaultdict(lambda: defaultdict(int))
    for index, incumbent in enumerate(incumbents):
        placement = snapshot.job_by_name[incumbent.job].placement
        for replica in placement.replicas if placement else ():
            node = snapshot.cluster.node_by_name[replica.node]
            if replica.node not in names and node.gpus and node.gpus.watts:
                drawn[rack_of(node)][index] += replica.quota_milli * node.gpus.watts
    return drawn


# Node pools: nodes that may be added, and nodes that may be removed.


@dataclass(frozen=True, slots=True)
class PoolScaling:
    """Possible changes of one pool."""

    pool: NodePool
    price: int
    """Points that adding one node costs."""
    saving: int
    """Points that removing one node saves; negative if the change costs more than it saves."""
    opened: tuple[Node, ...]
    """The nodes that may be added."""
    spare: frozenset[str]
    """Names of nodes that may be removed once they are empty."""
    most_closed: int


def pool_scalings(
    snapshot: Snapshot, policy: Policy, candidates: Iterable[JobCandidate]
) -> list[PoolScaling]:
    """All pools with possible changes, by name."""
    cluster, now = snapshot.cluster, snapshot.taken_at
    demand = _Demand(candidates)
    names = {node.name for node in cluster.nodes}
    found = []
    for pool in sorted(cluster.pools, key=lambda pool: pool.name):
        points = node_points(policy, pool)
        price, saving = points + policy.prices.scaling, points - policy.prices.scaling
        members = [node for node in cluster.nodes if node.pool == pool.name]
        room = pool.maximum - len(members) if policy.pools.may_add(pool, now) else 0
        opened = _opened(pool, names, min(room, demand.replicas(pool.template)) if room > 0 else 0)
        most_closed = max(0, len(members) - pool.minimum) if policy.pools.may_remove(pool, now) else 0
        # Removing a node without a saving pays only if fragmentation is priced.
        pays = most_closed and (saving > 0 or policy.prices.fragmentation)
        spare = frozenset(node.name for node in members if node.schedulable) if pays else frozenset()
        if opened or spare:
            found.append(PoolScaling(pool, price, saving, opened, spare, most_closed if spare else 0))
    return found


def _opened(pool: NodePool, names: set[str], count: int) -> tuple[Node, ...]:
    """New nodes with the first unused names; `names` is updated in place."""
    made = (f"{pool.template.name}-{number}" for number in numbers(1))
    unused = (name for name in pool.names or made if name not in names)
    chosen = list(islice(unused, count))
    names.update(chosen)
    return tuple(
        pool.template.model_copy(update={"name": name, "pool": pool.name, "ready_at": None})
        for name in chosen
    )


class _Demand:
    """Upper bound on the replicas that a node could take; more added nodes than that stay empty."""

    def __init__(self, candidates: Iterable[JobCandidate]) -> None:
        self._replicas: Counter[Filters] = Counter()
        self._first: dict[Filters, Job] = {}
        for candidate in candidates:
            self._first.setdefault(candidate.filters, candidate.job)
            self._replicas[candidate.filters] += candidate.maximum

    def replicas(self, node: Node) -> int:
        return sum(
            count
            for kind, count in self._replicas.items()
            if (self._first[kind].request.needs_gpu or not node.gpu_count)
            and ineligibility(self._first[kind], node) is None
        )


def pool_options(
    scalings: Iterable[PoolScaling], index: dict[str, int], closable: frozenset[str]
) -> tuple[PoolOption, ...]:
    """The pools of a problem; `closable` are the nodes that can be emptied."""
    return tuple(
        PoolOption(
            name=scaling.pool.name,
            nodes=scaling.opened,
            opening_points=scaling.price,
            closable=tuple(sorted(index[name] for name in scaling.spare & closable)),
            most_closed=scaling.most_closed,
        )
        for scaling in scalings
    )


# Resources of nodes, queues and racks that running jobs release when they end within the horizon.


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
