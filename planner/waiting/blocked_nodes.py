"""What keeps a job from nodes that have room: who was stopped there, and whom it must not meet."""

from __future__ import annotations

from collections import defaultdict
from typing import TYPE_CHECKING, NamedTuple

from gpuplan.models.cluster import rack_of
from gpuplan.models.units import MILLI
from gpuplan.planner.analysis.job_changes import Deed
from gpuplan.planner.problem_builder.reclaiming import Reclaiming, holding_of, least_asked

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from gpuplan.models.cluster import Cluster, Level, Node, Rack
    from gpuplan.models.job import Job
    from gpuplan.models.placement import Placement, Replica
    from gpuplan.models.policy.policy import Policy
    from gpuplan.planner.analysis.job_changes import Changes
    from gpuplan.planner.problem_builder.reclaiming import Holding
    from gpuplan.planner.waiting.free_capacity import Place


class Barriers:
    """Answers for one target."""

    def __init__(self, changes: Changes, policy: Policy) -> None:
        snapshot, target = changes.snapshot, changes.target
        self._left = _left_by(changes)
        """By node and GPU index, None for all else of the node."""
        self._gap = policy.disruption.priority_gap
        self._reclaiming = Reclaiming(snapshot, policy)
        self._idle = self._idle_beside(changes)
        jobs, nodes = snapshot.job_by_name, changes.cluster.node_by_name
        self._avoiding = "anti_affinity" in snapshot.stated and any(
            job.anti_affinity for job in snapshot.jobs
        )
        self._standing = [
            (
                jobs[placement.job],
                [nodes[name] for name in sorted({replica.node for replica in placement.replicas})],
            )
            for placement in (target.placements if self._avoiding else ())
        ]

    @property
    def by_priority(self) -> bool:
        """True if the priority of a job matters to where it may go."""
        return bool(self._left)

    @property
    def by_company(self) -> bool:
        """True if the labels of a job matter to where it may go."""
        return self._avoiding

    def reserved(self, job: Job, places: Iterable[Place]) -> set[str]:
        """Nodes, by name, where too little is free beside what was freed for others."""
        if not self._left:
            return set()
        return {place.node.name for place in places if self._is_reserved(job, place)}

    def _is_reserved(self, job: Job, place: Place) -> bool:
        name, request = place.node.name, job.request
        if not self._bars(job, name, None):
            return False
        free = [
            min(milli, self._idle[name, gpu]) if self._bars(job, name, gpu) else milli
            for gpu, milli in enumerate(place.free.gpu_milli)
        ]
        whole = sum(milli == MILLI for milli in free)
        enough = whole >= request.gpus and max(free, default=0) >= request.gpu_milli
        return bool(request.mig) or not enough or not request.needs_gpu

    def _bars(self, job: Job, node: str, gpu: int | None) -> bool:
        """True if a job may not take what some other has given up there."""
        return any(
            job.priority < priority + self._gap
            and not self._reclaiming.may_take(job.queue, least_asked(job), held)
            for held, priority in self._left.get((node, gpu), ())
        )

    def _idle_beside(self, changes: Changes) -> dict[tuple[str, int | None], int]:
        """Thousandths of each GPU that some job has given up which are free beside that, by node and GPU."""
        idle = {key: MILLI for key in self._left if key[1] is not None}
        if not idle:
            return {}
        for placement in changes.snapshot.running_placements:
            for key, milli in _taken(placement.replicas):
                if key in idle:
                    idle[key] -= milli
        for change in changes.jobs:
            for key, milli in _taken(change.arriving):
                # What may follow the victim has taken what the victim gave up.
                if key in idle and self._bars(change.job, *key):
                    idle[key] -= milli
        return idle

    def avoided(self, job: Job, nodes: Iterable[Node]) -> set[str]:
        """Nodes, by name, in a domain with a job that this one must not meet."""
        levels: dict[Level, set[object]] = defaultdict(set)
        for level, places in self._apart_from(job):
            levels[level].update(_domain(node, level) for node in places)
        if not levels:
            return set()
        return {
            node.name
            for node in nodes
            if any(_domain(node, level) in domains for level, domains in levels.items())
        }

    def _apart_from(self, job: Job) -> Iterator[tuple[Level, list[Node]]]:
        for other, places in self._standing:
            for avoiding, avoided in ((job, other), (other, job)):
                for term in avoiding.anti_affinity:
                    if term.labels.items() <= avoided.labels.items():
                        yield term.level, places


def _left_by(changes: Changes) -> dict[tuple[str, int | None], set[tuple[Holding, int]]]:
    """By node and GPU what jobs that are stopped or shrunk there hold, and their priorities."""
    left: dict[tuple[str, int | None], set[tuple[Holding, int]]] = defaultdict(set)
    for change in changes.jobs:
        if change.deed in (Deed.PREEMPT, Deed.SHRINK):
            victim = holding_of(change.job, changes.snapshot), change.job.priority
            for replica in change.leaving:
                for gpu in (None, *(held.index for held in replica.gpus)):
                    left[replica.node, gpu].add(victim)
    return left


def _taken(replicas: Iterable[Replica]) -> Iterator[tuple[tuple[str, int | None], int]]:
    """(node and GPU index, thousandths of it) of what replicas hold."""
    return (
        ((replica.node, gpu), milli) for replica in replicas for gpu, milli in replica.milli_by_gpu.items()
    )


def _domain(node: Node, level: Level) -> object:
    """A node without a domain of the level is one of its own."""
    return node.domain(level) or node.name


class PowerLeft(NamedTuple):
    """What power caps still allow."""

    by_node: dict[str, int]
    """Thousandths of its GPUs that its own cap and that of its rack allow a node; without a cap left out."""
    by_rack: dict[Rack, int]
    """Thousandths of watts, of all nodes of a rack together."""


def power_left(cluster: Cluster, placements: Iterable[Placement]) -> PowerLeft:
    """What power caps still allow beside placements."""
    if not cluster.rack_power and not any(node.power_cap_watts for node in cluster.nodes):
        return PowerLeft({}, {})
    nodes = cluster.node_by_name
    drawn: dict[str, int] = defaultdict(int)
    for placement in placements:
        for replica in placement.replicas:
            if (node := nodes.get(replica.node)) and node.gpus:
                drawn[replica.node] += replica.quota_milli * node.gpus.watts
    rack_drawn: dict[Rack, int] = defaultdict(int)
    for name, amount in drawn.items():
        rack_drawn[rack_of(nodes[name])] += amount
    racks: dict[Rack, int] = {}
    for cap in cluster.rack_power:
        key = rack_of(cap)
        room = max(0, cap.watts * MILLI - rack_drawn[key])
        racks[key] = min(room, racks.get(key, room))
    left = {}
    for node in cluster.nodes:
        if node.gpus is None or not node.gpus.watts:
            continue
        rooms = []
        if node.power_cap_watts:
            rooms.append(node.power_cap_watts * MILLI - drawn[node.name])
        if (room_there := racks.get(rack_of(node))) is not None:
            rooms.append(room_there)
        if rooms:
            left[node.name] = max(0, min(rooms)) // node.gpus.watts
    return PowerLeft(left, racks)
