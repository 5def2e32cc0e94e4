"""
Feasibility of a start: the nodes that could take one job once a plan is applied, under hypothetical changes.

A single gang on what the other jobs leave free needs no search: `ReplicaCounts` counts how many replicas each
node takes, and this module adds the rules that go beyond one node. Every check is a necessary condition for a
start. If a check fails, the job cannot start; if all pass, the verifier still has to confirm the start.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from gpuplan.models.eligibility.node_eligibility import eligibility_key, ineligibility
from gpuplan.models.gang import Gang
from gpuplan.models.queue import NOT_OF_GPUS
from gpuplan.planner.analysis.allocations import count_usage
from gpuplan.planner.analysis.job_changes import PlanChanges
from gpuplan.planner.analysis.quota_headroom import QuotaAnswer, QuotaHeadroom, QuotaShortage
from gpuplan.planner.explain.hypothesis import Hypothesis
from gpuplan.planner.explain.replica_counts import ReplicaCounts
from gpuplan.planner.waiting.eligible_nodes import BlockedNodes
from gpuplan.planner.waiting.free_capacity import joint_room, rack_limit
from gpuplan.planner.waiting.time_blockers import TimeBlockers

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from gpuplan.models.cluster import Node
    from gpuplan.models.job import Job
    from gpuplan.models.plan.plan import Plan


@dataclass(frozen=True, slots=True)
class CandidateNodes:
    """Nodes that can take a whole job: of one GPU model if the job needs GPUs, and in one domain."""

    gpu_model: str | None
    counts: dict[str, int]
    """Replicas that each node takes, all positive."""

    @property
    def by_room(self) -> list[str]:
        """Node names; nodes that take the most replicas come first."""
        return sorted(self.counts, key=lambda name: (-self.counts[name], name))


class PlanFeasibility:
    """What a plan leaves free, for questions about single jobs; questions do not change it."""

    def __init__(self, plan: Plan) -> None:
        snapshot = plan.snapshot
        self._changes = PlanChanges(snapshot, plan.target)
        self.plan = plan
        self.cluster = self._changes.cluster
        self.nodes = self.cluster.node_by_name
        self.outlook = TimeBlockers(self._changes, plan.rules)
        self.counting = ReplicaCounts(self._changes, plan.rules, self.outlook.future)
        self.placed = self.counting.placed
        self.on_node = self.counting.on_node
        self._company = any(job.anti_affinity for job in snapshot.jobs)
        self._barriers = BlockedNodes(self._changes, plan.rules)
        self.quotas = QuotaBySlot(self.counting, self.outlook)

    def question(self, job: Job) -> Hypothesis:
        """Ask whether a job may start, together with all jobs that have to start with it."""
        jobs = self.plan.snapshot.job_by_name
        return Hypothesis.unchanged(
            self.plan, job, tuple(jobs[name] for name in self.outlook.co_start_jobs(job))
        )

    def has_room(self, question: Hypothesis) -> bool:
        """True if no counted limit keeps the job, or a job that starts with it, from starting."""
        if not question.others:
            return bool(self.candidate_nodes(question))
        rooms = {each.job.name: self.candidate_nodes(each) for each in question.by_member()}
        return all(rooms.values()) and all(
            self._has_room_beside(each, rooms) for each in question.by_member()
        )

    def candidate_nodes(self, question: Hypothesis) -> list[CandidateNodes]:
        """Where the job may start if the jobs that start with it took no capacity; empty if nowhere."""
        job = question.job
        never, not_yet = self.outlook.never, self.outlook.not_yet_reason
        if (
            job.withheld
            or never(job, question.second) is not None
            or not_yet(job, question.second) is not None
        ):
            return []
        if any(name not in self.placed.keys() | question.names for name in self.outlook.co_start_jobs(job)):
            return []
        quota = self.quotas.answer(question)
        if quota.shortage is not None or (not quota.gpu_models and job.request.needs_gpu):
            return []
        counts = self.counting.counts(question)
        if sum(counts.values()) < job.gang.minimum:
            return []
        barred = self._barred(question, counts)
        counts = {name: count for name, count in counts.items() if name not in barred}
        return [
            CandidateNodes(kind or None, {name: counts[name] for name in members})
            for kind, names in sorted(self._kinds(question, counts, quota.gpu_models).items())
            for members in self._domains_with_room(question, sorted(names), counts)
        ]

    def is_within_quota(self, question: Hypothesis) -> bool:
        """True if quotas admit the whole job, on some GPU model that it may use if it needs GPUs."""
        answer = self.quotas.answer(question)
        return answer.shortage is None and (bool(answer.gpu_models) or not question.job.request.needs_gpu)

    def shortage(self, question: Hypothesis) -> QuotaShortage | None:
        """The quota limit that keeps the job from starting on any model; None if there is none."""
        return self.quotas.answer(question).shortage

    def _has_room_beside(self, question: Hypothesis, rooms: Mapping[str, Sequence[CandidateNodes]]) -> bool:
        """
        False if the eligible nodes of a job take too few replicas of it and of the jobs that start with it.

        Each replica of those jobs counts as the replicas of the job that it displaces. `rooms` is by job.
        """
        job = question.job
        alike = [other for other in question.others if eligibility_key(other) == eligibility_key(job)]
        needs, theirs = self.counting.needs(job), [self.counting.needs(other) for other in alike]
        instead = [
            min((each.get(what, 0) // need for what, need in needs.items()), default=0) for each in theirs
        ]
        wanted = job.gang.minimum + sum(
            times * other.gang.minimum for times, other in zip(instead, alike, strict=True)
        )
        # A job that ends sooner may use capacity that is promised to other jobs later.
        most: dict[str, int] = {}
        for each in (job, *alike):
            gang = Gang(minimum=wanted, maximum=wanted)
            like_all = each.model_copy(update={"request": job.request, "gang": gang})
            counts = self.counting.counts(replace(question.for_member(each.name), job=like_all))
            for name in {name for room in rooms[each.name] for name in room.counts}:
                most[name] = max(most.get(name, 0), counts.get(name, 0))
        return sum(most.values()) >= wanted

    @property
    def reserves_freed_resources(self) -> bool:
        """True if the plan preempts jobs: what they held is reserved for jobs of higher priority."""
        return self._barriers.by_priority

    def _barred(self, question: Hypothesis, counts: Mapping[str, int]) -> set[str]:
        """Nodes with free capacity that this job may not use."""
        job = question.job
        nodes = [self._node(name, question) for name in counts]
        barriers = self._barriers
        if (question.gone or question.begun) and self._company:
            changes = PlanChanges(self.plan.snapshot, question.target(()))
            barriers = BlockedNodes(changes, self.plan.rules)
        closed = self.outlook.closed(job, nodes, question.second)
        if question.policy.horizon.backfill.starving is None:
            # Nodes held for a starving job have no reservation of their own.
            closed = {name: window for name, window in closed.items() if window.job is None}
        barred = set(closed) | barriers.avoided(job, nodes)
        # What preemption frees is for jobs of higher priority in this plan, and for any in the next one.
        if question.second or not self.reserves_freed_resources:
            return barred
        places = (self.counting.place(name, question) for name in counts)
        return barred | self._barriers.reserved(job, places)

    def _kinds(
        self, question: Hypothesis, counts: Iterable[str], models: tuple[str, ...]
    ) -> dict[str, list[str]]:
        """Nodes by GPU model, because a whole job runs on one model; one kind for a job without GPUs."""
        kinds: dict[str, list[str]] = defaultdict(list)
        for name in counts:
            model = self._node(name, question).gpu_model or ""
            if not question.job.request.needs_gpu:
                kinds[""].append(name)
            elif model in models:
                kinds[model].append(name)
        return kinds

    def _domains_with_room(
        self, question: Hypothesis, names: list[str], counts: Mapping[str, int]
    ) -> Iterator[list[str]]:
        """The nodes of each domain that takes the whole job under its spread limit and racks' power caps."""
        job, nodes = question.job, [self._node(name, question) for name in names]
        limits = []
        if question.rack_power and (milli := job.request.total_gpu_milli):
            left = self.counting.power.left_of_racks(question.rack_power, question.gone)
            watts = rack_limit(nodes, left)
            limits.append(watts._replace(costs=watts.costs * milli))
        room = np.array([counts[name] for name in names], dtype=np.int64)
        joint, paths = joint_room(job, nodes, room, limits)
        fitting = [each for each, found in joint.by_domain().items() if found >= job.gang.minimum]
        for domain in sorted(fitting, key=paths.__getitem__):
            there = range(len(names)) if joint.domains is None else np.flatnonzero(joint.domains == domain)
            yield [names[position] for position in there]

    def _node(self, name: str, question: Hypothesis) -> Node:
        """A node with the changes of the question."""
        return question.node_by_name.get(name) or self.nodes[name]


# Quotas of a hypothetical state: the GPU models they allow a job to use, now and until it ends.


class QuotaBySlot:
    """Usage and limits of the queues of a plan in each time slot."""

    def __init__(self, counting: ReplicaCounts, outlook: TimeBlockers) -> None:
        self._counting, self._future, self._holds = counting, outlook.future, outlook.holds
        self._model_of = counting.cluster.gpu_model_by_node
        self._usable: dict[Any, frozenset[str]] = {}

    def answer(self, question: Hypothesis) -> QuotaAnswer:
        """GPU models that quotas allow now and in each later slot before the job ends."""
        job = question.job
        needed = job.request.quota.times(job.gang.minimum)
        answer = self._room(question, 0).now(job.queue, needed, sorted(self._models(job, question)))
        for slot in range(1, self._counting.until(question)):
            if answer.shortage is None:
                answer = self._room(question, slot).now(job.queue, needed, answer.gpu_models)
        return answer

    def held(self, name: str) -> Counter[str]:
        """What a job of the plan counts for from its start on, by GPU model and `NOT_OF_GPUS`."""
        held: Counter[str] = Counter()
        for replica in self._future.stays[name].replicas:
            count_usage(held, replica, self._model_of.get(replica.node))
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
        if same and question.queues is self._future.snapshot.queues:
            return self._holds.room(slot)
        usage = self._holds.usage(slot)
        own = defaultdict(Counter, {queue: Counter(held) for queue, held in usage.items()})
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
            asked = other.request.quota.times(other.gang.minimum)
            own[other.queue].update(dict(zip((model, *NOT_OF_GPUS), asked, strict=True)))
        return QuotaHeadroom(question.queues, own)


def _models(job: Job, nodes: Iterable[Node]) -> frozenset[str]:
    return frozenset(node.gpu_model for node in nodes if node.gpu_model and ineligibility(job, node) is None)
