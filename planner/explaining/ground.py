"""
Ground: where a job could go once a plan is in force, whatever of it a question changes.

It judges one gang on what others leave free, which is simple enough to be decided without a search: replicas
are equal, so that it is enough to count how many each node takes. Everything it looks at is necessary for a
start; so where it finds no room there is none. Where it finds some, the verifier still has to agree.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any

from planner.changes import Changes
from planner.models.job import Running
from planner.models.occupancy import NodeFree
from planner.models.overcommit import charged
from planner.models.plan import Keep, Repartition, Start, Wait
from planner.models.selection import filters, refusal
from planner.models.units import MILLI
from planner.quota_room import QuotaRoom, own_usage
from planner.waiting.barriers import Barriers, power_left
from planner.waiting.free_pool import SHARE, Place, column_of, needs_of
from planner.waiting.mig_room import MigRoom
from planner.waiting.outlook import Outlook

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from planner.explaining.question import Question
    from planner.models.cluster import Level, Node
    from planner.models.job import Job
    from planner.models.placement import Placement, Replica
    from planner.models.plan import Plan
    from planner.quota_room import QuotaAnswer, QuotaShortage


@dataclass(frozen=True, slots=True)
class Room:
    """Nodes among which a whole job finds its places: of one GPU model where it needs GPUs, in one domain."""

    gpu_model: str | None
    counts: dict[str, int]
    """Replicas that each node takes, none of them 0."""


class Ground:
    """What a plan leaves free, for questions about single jobs; each answer leaves it as it is."""

    def __init__(self, plan: Plan) -> None:
        snapshot, target = plan.snapshot, plan.target
        self.plan, self.target = plan, target
        changes = Changes(snapshot, target)
        self.cluster = changes.cluster
        self.nodes = self.cluster.node_by_name
        self.placed: dict[str, Placement] = {each.job: each for each in target.placements}
        self.on_node = _by_node(target.placements)
        self.own = own_usage(snapshot, target.placements, added=target.added)
        self.outlook = Outlook(snapshot, plan.policy, target)
        self._jobs = snapshot.job_by_name
        self._added = {node.name for node in target.added}
        self._power = power_left(self.cluster, target.placements)
        self._capped = bool(self._power)
        free = changes.free
        mig = MigRoom(target.placements, plan.policy.mig)
        self._places = {
            node.name: Place(node, free[node.name], mig, self._power.get(node.name))
            for node in self.cluster.nodes
        }
        self._company = any(job.anti_affinity for job in snapshot.jobs)
        self._barriers = Barriers(changes, plan.policy)
        self._quotas = QuotaRoom.holding(snapshot.queues, self.own)
        self._usable: dict[Any, frozenset[str]] = {}
        self._counts: dict[Any, dict[str, int]] = {}

    def rooms(self, question: Question) -> list[Room]:
        """Where the job may start; empty if it cannot start at all."""
        job = question.job
        if job.held or self.outlook.never(job) is not None or self.outlook.not_yet(job) is not None:
            return []
        if any(name not in self.placed for name in self.outlook.companions(job)):
            return []
        if not (models := self.allowed_models(question)) and job.request.needs_gpu:
            return []
        counts = self.counts(question)
        if sum(counts.values()) < job.gang.minimum:
            return []
        barred = self._barred(question, counts)
        counts = {name: count for name, count in counts.items() if name not in barred}
        found = []
        for kind, names in sorted(self._kinds(question, counts, models).items()):
            for members in self._domains(question, names):
                room = {name: counts[name] for name in members}
                if self._fits(question, room):
                    found.append(Room(kind or None, room))
        return found

    def counts(self, question: Question) -> dict[str, int]:
        """Replicas by node, counted up to the whole job; nodes that take none are left out."""
        job, policy = question.job, question.policy
        needs = needs_of(job, self.cluster, capped=self._capped)
        cut_otherwise = policy.mig != self.plan.policy.mig and bool(job.request.mig)
        # What is promised to a job is in nobody's way but that of others.
        own = (self._until(job), job.name if job.name in self.outlook.future.planned else "")
        mig_policy = (policy.mig.repartition, policy.mig.switch_mode)
        key = (tuple(needs.items()), filters(job), job.gang.minimum, own, mig_policy)
        known = self._counts.get(key)
        if known is None:
            places = list(self._places.values())
            if cut_otherwise:
                mig = MigRoom(self.target.placements, policy.mig)
                places = [Place(each.node, each.free, mig, each.power_milli) for each in places]
            known = self._counts[key] = self._counted(job, needs, places)
        if not (touched := sorted(self._touched(question))):
            return known
        counts = dict(known)
        for name in touched:
            counts.pop(name, None)
        return counts | self._counted(job, needs, [self.place(name, question) for name in touched])

    def gained(self, name: str, question: Question, counts: Mapping[str, int], *, enough: int) -> int:
        """
        Replicas more than counted that find room on the nodes of one job without it.

        No more are counted than are enough.
        """
        request = question.job.request
        needs = needs_of(question.job, self.cluster, capped=self._capped)
        total = 0
        for node in sorted({replica.node for replica in self.placed[name].replicas}):
            if request.gpus:
                held = sum(len(each.gpus) for owner, each in self.on_node[node] if owner == name)
                if self._places[node].free.gpu_milli.count(MILLI) + held < request.gpus:
                    continue
            without = replace(question, stopped=question.stopped | {name})
            after = self._counted(question.job, needs, [self.place(node, without)])
            total += after.get(node, 0) - counts.get(node, 0)
            if total >= enough:
                break
        return total

    def allowed_models(self, question: Question) -> tuple[str, ...]:
        """GPU models that the job may use and on which quotas let the whole of it start."""
        return self._quota_answer(question).gpu_models

    def shortage(self, question: Question) -> QuotaShortage | None:
        """The limit that keeps the job from starting anywhere; None if none does."""
        return self._quota_answer(question).shortage

    def _quota_answer(self, question: Question) -> QuotaAnswer:
        job = question.job
        key = filters(job)
        if key not in self._usable:
            self._usable[key] = _models(job, self.cluster.nodes)
        models = self._usable[key] | _models(job, question.nodes)
        needed = job.request.total_gpu_milli * job.gang.minimum
        return self.quotas(question).now(job.queue, needed, sorted(models))

    def quotas(self, question: Question) -> QuotaRoom:
        """What the queues hold, and may."""
        if not question.gone and question.queues is self.plan.snapshot.queues:
            return self._quotas
        own = {queue: Counter(held) for queue, held in self.own.items()}
        for name in question.gone:
            for model, milli in self.held(name).items():
                own[self._jobs[name].queue][model] -= milli
        return QuotaRoom.holding(question.queues, own)

    def held(self, name: str) -> Counter[str]:
        """Thousandths of GPUs that a job of the plan holds, by GPU model."""
        held: Counter[str] = Counter()
        for replica in self.placed[name].replicas:
            if replica.gpus and (model := self.nodes[replica.node].gpu_model):
                held[model] += replica.quota_milli
        return held

    def place(self, name: str, question: Question) -> Place:
        """One node as the question has it, with what is free there."""
        node = next((each for each in question.nodes if each.name == name), None) or self.nodes[name]
        gone = question.gone
        staying = [one for one in self.on_node.get(name, ()) if one[0] not in gone]
        free, cluster = NodeFree.of(node), self.plan.snapshot.cluster
        for owner, replica in staying:
            job = self._jobs[owner]
            free.take(replica, charged(replica, job.qos, cluster) if cluster.overcommit else None)
        held = [self.placed[owner] for owner, _ in staying] if question.job.request.mig else []
        power = self._power.get(name)
        if self._capped and (gone or node is not self.nodes.get(name)):
            left = [each for each in self.target.placements if each.job not in gone]
            nodes = self.nodes | {each.name: each for each in question.nodes}
            cluster = self.cluster.model_copy(update={"nodes": tuple(nodes.values())})
            power = power_left(cluster, left).get(name)
        return Place(node, free, MigRoom(held, question.policy.mig), power)

    def offered(self, name: str, question: Question) -> Place:
        """One node with what is free there for the job, nothing that is promised to others before its end."""
        place, until = self.place(name, question), self._until(question.job)
        return self._kept_free(place, until, question.job) if until else place

    def _counted(self, job: Job, needs: Mapping[str, int], places: Iterable[Place]) -> dict[str, int]:
        until = self._until(job)
        open_ = [
            self._kept_free(place, until, job) if until else place
            for place in places
            if refusal(job, place.node) is None and not self._is_too_good(place.node, job)
        ]
        counts = [job.gang.minimum] * len(open_)
        for dimension, need in needs.items():
            counts = list(map(min, counts, _times(open_, dimension, need)))
        return {place.node.name: count for place, count in zip(open_, counts, strict=True) if count}

    def _is_too_good(self, node: Node, job: Job) -> bool:
        """True of a new node with GPUs and a job without."""
        return node.gpus is not None and not job.request.needs_gpu and node.name in self._added

    def _until(self, job: Job) -> int:
        """The first slot in which the job would be done; 0 where nothing later is promised."""
        if not self.outlook.future.planned:
            return 0
        return self.outlook.future.slots.until(0, self.outlook.future.fastest(job))

    def promised_away(self, name: str, question: Question) -> Counter[int]:
        """Thousandths of its GPUs, by index, that are free on a node and promised before the job is done."""
        if not (until := self._until(question.job)):
            return Counter()
        free = self.place(name, question).free.gpu_milli
        held = self._promised(name, until, question.job)
        short = {index: free[index] - max(0, MILLI - milli) for index, milli in held.items()}
        return Counter({index: milli for index, milli in short.items() if milli > 0})

    def _promised(self, name: str, until: int, job: Job) -> Counter[int]:
        """Most that promised starts of others before a slot hold of each GPU of a node at a time."""
        future = self.outlook.future
        held: Counter[int] = Counter()
        for stay in future.on_node.get(name, ()):
            mine = stay.job.name == job.name
            if 0 < stay.slot < until and not mine and future.planned[stay.job.name].promised:
                for index, milli in _milli_by_gpu(stay.replicas, name).items():
                    held[index] = max(held[index], milli)
        return held

    def _kept_free(self, place: Place, until: int, job: Job) -> Place:
        """The node without the GPUs that are promised to somebody before a slot."""
        if not (held := self._promised(place.node.name, until, job)):
            return place
        free = place.free
        gpus = [min(milli, max(0, MILLI - held[index])) for index, milli in enumerate(free.gpu_milli)]
        return replace(place, free=replace(free, gpu_milli=gpus))

    def _touched(self, question: Question) -> set[str]:
        names = {node.name for node in question.nodes}
        return names.union(
            *({replica.node for replica in self.placed[name].replicas} for name in question.gone)
        )

    def _barred(self, question: Question, counts: Mapping[str, int]) -> set[str]:
        """Nodes that have room which is not for this job."""
        job, changed = question.job, {node.name: node for node in question.nodes}
        nodes = [changed.get(name) or self.nodes[name] for name in counts]
        barriers = self._barriers
        if question.gone and self._company:
            changes = Changes(self.plan.snapshot, question.target(None))
            barriers = Barriers(changes, self.plan.policy)
        barred = self._barriers.reserved(job, nodes) | set(self.outlook.closed(job, nodes))
        return barred | barriers.avoided(job, nodes)

    def _kinds(
        self, question: Question, counts: Iterable[str], models: tuple[str, ...]
    ) -> dict[str, list[str]]:
        """Nodes by what the whole job must be on alike: a GPU model; one kind for a job without GPUs."""
        changed = {node.name: node for node in question.nodes}
        kinds: dict[str, list[str]] = defaultdict(list)
        for name in counts:
            model = (changed.get(name) or self.nodes[name]).gpu_model or ""
            if not question.job.request.needs_gpu:
                kinds[""].append(name)
            elif model in models:
                kinds[model].append(name)
        return kinds

    def _domains(self, question: Question, names: list[str]) -> list[list[str]]:
        level = question.job.locality.required
        if level is None or question.job.gang.minimum == 1:
            return [sorted(names)]
        return [sorted(members) for _, members in sorted(self._by_domain(question, names, level).items())]

    def _by_domain(
        self, question: Question, names: Iterable[str], level: Level
    ) -> dict[tuple[str, ...], list[str]]:
        changed = {node.name: node for node in question.nodes}
        found: dict[tuple[str, ...], list[str]] = defaultdict(list)
        for name in names:
            node: Node = changed.get(name) or self.nodes[name]
            found[node.domain(level) or ("", name)].append(name)
        return found

    @cached_property
    def only_starts(self) -> bool:
        """True if the plan looks no further than this instant, and disturbs nobody, nor changes any node."""
        calm = all(isinstance(action, Start | Keep | Wait | Repartition) for action in self.plan.actions)
        return calm and self.outlook.future.slots.count == 1

    @cached_property
    def settled(self) -> dict[str, Job]:
        """The jobs as a plan leaves them that only starts some: these run."""
        jobs, now = dict(self._jobs), self.plan.snapshot.taken_at
        for name, placement in self.placed.items():
            running = jobs[name].running or Running(started_at=now, replicas=placement.replicas)
            # The very replicas of the target: whoever compares the two need not look into them.
            held = running.model_copy(update={"replicas": placement.replicas})
            jobs[name] = jobs[name].model_copy(update={"running": held})
        return jobs

    def _fits(self, question: Question, counts: Mapping[str, int]) -> bool:
        job = question.job
        if job.spread is None:
            return sum(counts.values()) >= job.gang.minimum
        most = job.spread.most
        domains = self._by_domain(question, counts, job.spread.level).values()
        return sum(min(most, sum(counts[name] for name in names)) for names in domains) >= job.gang.minimum


def _models(job: Job, nodes: Iterable[Node]) -> frozenset[str]:
    """GPU models of the nodes that a job may use."""
    return frozenset(node.gpu_model for node in nodes if node.gpu_model and refusal(job, node) is None)


def _times(places: list[Place], dimension: str, need: int) -> list[int]:
    """How often each node has so much of one thing."""
    if dimension == SHARE:
        return [sum(milli // need for milli in place.free.gpu_milli if milli > 0) for place in places]
    return [int(free) // need for free in column_of(places, dimension)]


def _by_node(placements: Iterable[Placement]) -> dict[str, list[tuple[str, Replica]]]:
    found: dict[str, list[tuple[str, Replica]]] = defaultdict(list)
    for placement in placements:
        for replica in placement.replicas:
            found[replica.node].append((placement.job, replica))
    return found


def _milli_by_gpu(replicas: Iterable[Replica], node: str) -> Counter[int]:
    held: Counter[int] = Counter()
    for replica in replicas:
        for part in replica.gpus if replica.node == node else ():
            # A MIG instance takes the GPU out of what whole GPUs and shares may be had of.
            held[part.index] += getattr(part, "milli", MILLI)
    return held
