"""
How many replicas of a job each node takes once a plan is applied, with the changes of a question.

Replicas are equal, so counting them decides what otherwise needs a search. Rules that go beyond one node are
in `PlanFeasibility`.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from gpuplan.models.eligibility.free_resources import FreeResources, charged_cpu_memory
from gpuplan.models.eligibility.node_eligibility import eligibility_key, ineligibility
from gpuplan.models.placement import Placement, Replica
from gpuplan.models.units import MILLI
from gpuplan.planner.analysis.allocations import HeldReplica
from gpuplan.planner.analysis.power_use import PowerUse, left_under_own_cap
from gpuplan.planner.waiting.free_capacity import (
    CPU,
    GPUS,
    MEMORY,
    SHARE,
    FreeCapacity,
    NodeRoom,
    replica_needs,
)
from gpuplan.planner.waiting.mig_capacity import MigCapacity

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from gpuplan.models.cluster import Node
    from gpuplan.models.job import Job
    from gpuplan.models.policy.policy import Policy
    from gpuplan.planner.analysis.job_changes import PlanChanges
    from gpuplan.planner.analysis.projected_schedule import ProjectedSchedule
    from gpuplan.planner.explain.hypothesis import Hypothesis


class ReplicaCounts:
    """Free capacity of the nodes, without what is promised to other jobs."""

    def __init__(self, changes: PlanChanges, policy: Policy, future: ProjectedSchedule) -> None:
        self._snapshot, self._target, self._mig = changes.snapshot, changes.target, policy.mig
        self.cluster, self._future = changes.cluster, future
        self._nodes = self.cluster.node_by_name
        self._added = {node.name for node in self._target.added}
        self.placed: dict[str, Placement] = {each.job: each for each in self._target.placements}
        self.on_node = changes.allocations_after.there
        self.power = PowerUse(self.cluster, self._target.placements)
        self._switched = changes.switched
        mig, free = MigCapacity(self._target.placements, policy.mig, self._switched), changes.free
        self._places = {
            node.name: NodeRoom(node, free[node.name], mig, self._power(node)) for node in self.cluster.nodes
        }
        self._counts: dict[Any, dict[str, int]] = {}

    def needs(self, job: Job) -> dict[str, int]:
        """Demand of one replica by dimension."""
        return replica_needs(job, self.cluster, capped=self.power.capped)

    def counts(self, question: Hypothesis) -> dict[str, int]:
        """Replicas by node, counted up to the size of the job; nodes that take none are left out."""
        job, rules = question.job, question.policy.mig
        needs = self.needs(job)
        # A promise to a member blocks only other jobs, so the counts depend on the members with a promise.
        own = (self.until(question), tuple(sorted(question.names & self._future.planned.keys())))
        key = (
            tuple(needs.items()),
            eligibility_key(job),
            job.gang.minimum,
            own,
            (rules.repartition, rules.switch_mode),
        )
        known = self._counts.get(key)
        if known is None:
            places = list(self._places.values())
            if rules != self._mig and job.request.mig:
                mig = MigCapacity(self._target.placements, rules, self._switched)
                places = [NodeRoom(each.node, each.free, mig, each.power_milli) for each in places]
            known = self._counts[key] = self._counted(question, needs, places)
        if not (touched := sorted(self._touched(question))):
            return known
        counts = dict(known)
        for name in touched:
            counts.pop(name, None)
        return counts | self._counted(question, needs, [self.place(name, question) for name in touched])

    def gained(
        self, names: frozenset[str], question: Hypothesis, counts: Mapping[str, int], *, enough: int
    ) -> int:
        """
        Additional replicas that fit on the nodes of some jobs if these jobs are stopped.

        Counting ends as soon as `enough` is reached.
        """
        needs = self.needs(question.job)
        without = replace(question, stopped=question.stopped | names)
        total = 0
        for node in sorted({replica.node for name in names for replica in self.placed[name].replicas}):
            held = [each for job, each in self.on_node[node] if job.name in names]
            if not (question.gone or self._may_take(node, needs, held)):
                continue
            after = self._counted(question, needs, [self.place(node, without)])
            total += after.get(node, 0) - counts.get(node, 0)
            if total >= enough:
                break
        return total

    def _may_take(self, name: str, needs: Mapping[str, int], held: Iterable[Replica]) -> bool:
        """False if a node lacks GPUs, CPUs or memory for one replica even without the held replicas."""
        free = self._places[name].free
        gpu_milli, cpu_milli, memory_mib = list(free.gpu_milli), free.cpu_milli, free.memory_mib
        for replica in held:
            cpu_milli += replica.cpu_milli
            memory_mib += replica.memory_mib
            for index, milli in _milli_by_gpu((replica,), name).items():
                gpu_milli[index] += milli
        return (
            sum(milli >= MILLI for milli in gpu_milli) >= needs.get(GPUS, 0)
            and max(gpu_milli, default=0) >= needs.get(SHARE, 0)
            and cpu_milli >= needs.get(CPU, 0)
            and memory_mib >= needs.get(MEMORY, 0)
        )

    def place(self, name: str, question: Hypothesis) -> NodeRoom:
        """One node with its free capacity in the question; of the power caps only its own is counted."""
        node = question.node_by_name.get(name) or self._nodes[name]
        staying = self.there(name, question)
        free, cluster = FreeResources.of(node), self._snapshot.cluster
        for job, replica in staying:
            free.take(replica, charged_cpu_memory(replica, job.qos, cluster) if cluster.overcommit else None)
        held = _placements(staying) if question.job.request.mig else []
        power = left_under_own_cap(node, (replica for _, replica in staying))
        return NodeRoom(node, free, MigCapacity(held, question.policy.mig, self._switched), power)

    def there(self, name: str, question: Hypothesis) -> list[HeldReplica]:
        """Residents of a node in the question."""
        jobs = self._snapshot.job_by_name
        found = [each for each in self.on_node.get(name, ()) if each.job.name not in question.gone]
        begun = (
            HeldReplica(jobs[each.job], replica)
            for each in question.begun
            for replica in each.replicas
            if replica.node == name
        )
        return [*found, *begun]

    def offered(self, name: str, question: Hypothesis) -> NodeRoom:
        """One node with its free capacity for the job, without what is promised to others before its end."""
        place, until = self.place(name, question), self.until(question)
        return self._kept_free(place, until, question) if until else place

    def promised_away(self, name: str, question: Hypothesis) -> Counter[int]:
        """Free thousandths of a node's GPUs, by index, that are promised to others before the job's end."""
        if not (until := self.until(question)):
            return Counter()
        free = self.place(name, question).free.gpu_milli
        held = self._promised(name, until, question)
        short = {index: free[index] - max(0, MILLI - milli) for index, milli in held.items()}
        return Counter({index: milli for index, milli in short.items() if milli > 0})

    def _power(self, node: Node) -> int | None:
        return left_under_own_cap(node, (replica for _, replica in self.on_node.get(node.name, ())))

    def _counted(
        self, question: Hypothesis, needs: Mapping[str, int], places: Iterable[NodeRoom]
    ) -> dict[str, int]:
        job, until = question.job, self.until(question)
        open_ = [
            self._kept_free(place, until, question) if until else place
            for place in places
            if ineligibility(job, place.node) is None and not self._is_too_good(place.node, job)
        ]
        counts = FreeCapacity(open_).replicas_by_node(needs, job.gang.minimum)
        return {name: count for name, count in counts.items() if count}

    def _is_too_good(self, node: Node, job: Job) -> bool:
        """True for a job without GPUs on a new node with GPUs."""
        return node.gpus is not None and not job.request.needs_gpu and node.name in self._added

    def until(self, question: Hypothesis) -> int:
        """The first slot in which the job would have ended; 0 if the plan has no later starts."""
        if not self._future.planned or question.second:
            return 0
        return self._future.slots.until(0, self._future.shortest_run_seconds(question.job))

    def _promised(self, name: str, until: int, question: Hypothesis) -> Counter[int]:
        """By GPU of a node, the most that one promised start of another job before a slot holds."""
        future = self._future
        held: Counter[int] = Counter()
        for stay in future.on_node.get(name, ()):
            mine = stay.job.name in question.names
            if 0 < stay.slot < until and not mine and future.planned[stay.job.name].promised:
                for index, milli in _milli_by_gpu(stay.replicas, name).items():
                    held[index] = max(held[index], milli)
        return held

    def _kept_free(self, place: NodeRoom, until: int, question: Hypothesis) -> NodeRoom:
        """The node without the GPU capacity that is promised to other jobs before a slot."""
        if not (held := self._promised(place.node.name, until, question)):
            return place
        free = place.free
        gpus = [min(milli, max(0, MILLI - held[index])) for index, milli in enumerate(free.gpu_milli)]
        return place._replace(free=replace(free, gpu_milli=gpus))

    def _touched(self, question: Hypothesis) -> set[str]:
        changed = [self.placed[name] for name in question.gone & self.placed.keys()]
        nodes = (replica.node for each in (*changed, *question.begun) for replica in each.replicas)
        return {*question.node_by_name, *nodes}


def _placements(there: Iterable[HeldReplica]) -> list[Placement]:
    """Placements of the replicas on one node."""
    replicas: dict[str, list[Replica]] = defaultdict(list)
    for job, replica in there:
        replicas[job.name].append(replica)
    return [Placement(job=name, replicas=tuple(each)) for name, each in replicas.items()]


def _milli_by_gpu(replicas: Iterable[Replica], node: str) -> Counter[int]:
    held: Counter[int] = Counter()
    for replica in replicas:
        for part in replica.gpus if replica.node == node else ():
            # A GPU with a MIG instance cannot serve whole GPUs or shares.
            held[part.index] += getattr(part, "milli", MILLI)
    return held
