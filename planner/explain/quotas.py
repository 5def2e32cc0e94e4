"""Quotas of a hypothetical state: the GPU models they allow a job to use, now and until it ends."""

from __future__ import annotations

from collections import Counter, defaultdict
from typing import TYPE_CHECKING, Any

from gpuplan.models.eligibility.node_eligibility import eligibility_key, ineligibility
from gpuplan.models.placement import Placement
from gpuplan.planner.analysis.quota_headroom import QuotaHeadroom, usage_by_queue

if TYPE_CHECKING:
    from collections.abc import Iterable

    from gpuplan.models.cluster import Node
    from gpuplan.models.job import Job
    from gpuplan.planner.analysis.job_changes import PlanChanges
    from gpuplan.planner.analysis.projected_schedule import ProjectedSchedule
    from gpuplan.planner.analysis.quota_headroom import QuotaAnswer
    from gpuplan.planner.explain.hypothesis import Hypothesis
    from gpuplan.planner.explain.replica_counts import ReplicaCounts


class QuotaBySlot:
    """Usage and limits of the queues of a plan in each time slot."""

    def __init__(self, changes: PlanChanges, counting: ReplicaCounts, future: ProjectedSchedule) -> None:
        self._snapshot, self._added = changes.snapshot, changes.target.added
        self._counting, self._future = counting, future
        self._model_of = counting.cluster.gpu_model_by_node
        self._held = {0: changes.allocations_after.usage}
        self._rooms: dict[int, QuotaHeadroom] = {}
        self._usable: dict[Any, frozenset[str]] = {}

    def answer(self, question: Hypothesis) -> QuotaAnswer:
        """GPU models that quotas allow now and in each later slot before the job ends."""
        job = question.job
        needed = job.request.total_gpu_milli * job.gang.minimum
        answer = self._room(question, 0).now(job.queue, needed, sorted(self._models(job, question)))
        for slot in range(1, self._counting.until(question)):
            if answer.shortage is None:
                answer = self._room(question, slot).now(job.queue, needed, answer.gpu_models)
        return answer

    def held(self, name: str) -> Counter[str]:
        """Thousandths of GPUs that a job of the plan holds from its start on, by GPU model."""
        held: Counter[str] = Counter()
        for replica in self._future.stays[name].replicas:
            if replica.gpus and (model := self._model_of.get(replica.node)):
                held[model] += replica.quota_milli
        return held

    def _models(self, job: Job, question: Hypothesis) -> frozenset[str]:
        """GPU models of the nodes that a job may use."""
        key = eligibility_key(job)
        if key not in self._usable:
            self._usable[key] = _models(job, self._counting.cluster.nodes)
        return self._usable[key] | _models(job, question.nodes)

    def _room(self, question: Hypothesis, slot: int) -> QuotaHeadroom:
        """Usage and limits in a slot, with the jobs that start together with the job counted in."""
        planned = question.names & self._future.planned.keys() if slot else frozenset[str]()
        same = not (question.gone or question.begun or question.others or planned)
        if same and question.queues is self._snapshot.queues:
            return self._as_planned(slot)
        own = defaultdict(Counter, {queue: Counter(held) for queue, held in self.own(slot).items()})
        stays = self._future.stays
        for name in question.gone | planned:
            stay = stays[name]
            if stay.slot <= slot < stay.until:
                own[stay.job.queue].subtract(self.held(name))
        for placement in question.begun:
            own[stays[placement.job].job.queue].update(self.held(placement.job))
        for other in question.others:
            if slot and slot >= self._counting.until(question.for_member(other.name)):
                continue
            # If a job may use several models, only its sum over the models is certain.
            models = self._models(other, question)
            model = next(iter(models)) if len(models) == 1 else ""
            own[other.queue][model] += other.request.total_gpu_milli * other.gang.minimum
        return QuotaHeadroom.holding(question.queues, own)

    def _as_planned(self, slot: int) -> QuotaHeadroom:
        """Usage and limits in a slot of the unchanged plan."""
        if slot not in self._rooms:
            self._rooms[slot] = QuotaHeadroom.holding(self._snapshot.queues, self.own(slot))
        return self._rooms[slot]

    def own(self, slot: int) -> dict[str, Counter[str]]:
        """Thousandths of GPUs held by the jobs directly in each queue in a slot, by queue and GPU model."""
        if slot not in self._held:
            stays = self._future.stays.values()
            there = [
                Placement(job=stay.job.name, replicas=stay.replicas)
                for stay in stays
                if stay.slot <= slot < stay.until
            ]
            self._held[slot] = usage_by_queue(self._snapshot, there, added=self._added)
        return self._held[slot]


def _models(job: Job, nodes: Iterable[Node]) -> frozenset[str]:
    return frozenset(node.gpu_model for node in nodes if node.gpu_model and ineligibility(job, node) is None)
