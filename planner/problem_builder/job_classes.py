"""Job classes: candidates with equal points, eligible nodes and demand; and the promises of their jobs."""

from __future__ import annotations

from bisect import bisect_right
from collections import Counter, defaultdict
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from gpuplan.models.placement import GpuShare, MigSlice, Replica
from gpuplan.models.policy.policy import Policy, PriorityOrder, Profile
from gpuplan.models.problem.jobs import (
    ClassRole,
    HeldResources,
    JobClass,
    LocalityRule,
    Option,
    Predecessor,
    PromisedStart,
)
from gpuplan.models.units import MILLI
from gpuplan.models.value.disruption_cost import resize_points
from gpuplan.planner.analysis.quota_headroom import QuotaHeadroom
from gpuplan.planner.problem_builder.start_values import StartValues, from_slot, has_start_slot, start_slots

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable

    from gpuplan.models.cluster import NodeGpus
    from gpuplan.models.job import Job
    from gpuplan.models.snapshot import Snapshot
    from gpuplan.planner.problem_builder.affinity import AffinityTags
    from gpuplan.planner.problem_builder.candidates import JobCandidate
    from gpuplan.planner.problem_builder.claims import Claims
    from gpuplan.planner.problem_builder.earliest_start import EarliestStarts
    from gpuplan.planner.problem_builder.node_groups import NodeGroups
    from gpuplan.planner.problem_builder.resource_vectors import ResourceVectors


@dataclass(frozen=True, slots=True)
class _Draft:
    """Jobs that are known to be equal, with the key of their comparison."""

    candidates: list[JobCandidate]
    key: tuple[Any, ...]
    """All compared values except the options."""
    options: tuple[Option, ...]

    @property
    def first(self) -> Job:
        return self.candidates[0].job


class Classifier:
    """Builds the classes; `thresholds` has the least priorities to follow running jobs, ascending."""

    def __init__(
        self,
        snapshot: Snapshot,
        policy: Policy,
        *,
        sites: NodeGroups,
        shapes: ResourceVectors,
        meetings: AffinityTags,
        timing: StartValues,
        readiness: EarliestStarts,
        thresholds: list[int],
        claims: Claims,
    ) -> None:
        self._policy = policy
        self._now = snapshot.taken_at
        self._jobs = snapshot.job_by_name
        self._claims = claims
        self._queues = {queue.name: index for index, queue in enumerate(snapshot.queues)}
        self._sites = sites
        self._shapes = shapes
        self._meetings = meetings
        self._timing = timing
        self._readiness = readiness
        self._promises = PromiseConstraints(snapshot, policy, timing, sites)
        self._room = QuotaHeadroom(snapshot.queues, {})
        self._thresholds = thresholds

    def starts(self, waiting: Iterable[JobCandidate]) -> list[JobClass]:
        """Classes of pending jobs, by their first names; jobs that can start in no slot are left out."""
        drafts = self._settled(self._drafts(waiting))
        starving = sorted(
            (draft.first.submitted_at, draft.first.name)
            for draft in drafts
            if self._promises.is_starving(draft.first)
        )
        order = {name: number for number, (_, name) in enumerate(starving)}
        index = {draft.first.name: number for number, draft in enumerate(drafts)}
        companies = sorted({wait.company for name in index if (wait := self._readiness.wait(name)).company})
        return [self._start(draft, index, companies, order) for draft in drafts]

    def class_of_running(self, candidate: JobCandidate, incumbent: int) -> JobClass | None:
        """The class of one running job that migrates, grows or resumes; None if it has no eligible node."""
        job, resumes = candidate.job, candidate.role is ClassRole.RESUME
        earliest = self._readiness.again(job) if resumes else 0
        options = self._timing.options(candidate, self._sites, earliest)
        if resumes:
            options = self._within_quota(candidate, options)
        if not options:
            return None
        return self._class(
            candidate,
            options,
            jobs=(job.name,),
            incumbent=incumbent,
            fixed_points=-resize_points(self._policy, job, self._now)
            if candidate.role is ClassRole.GROW
            else 0,
            priority=self._priority(job),
            seconds=self._seconds([candidate], options),
            earliest=earliest,
        )

    def _drafts(self, waiting: Iterable[JobCandidate]) -> list[_Draft]:
        """Jobs with some feasible slot when the other jobs are ignored, grouped by equal keys."""
        tied = self._readiness.interdependent
        members: dict[Any, list[JobCandidate]] = defaultdict(list)
        keys: dict[tuple[Any, ...], int] = {}
        of_plain: dict[tuple[Any, ...], int] = {}
        for candidate in waiting:
            job = candidate.job
            alone = job.name in tied or self._promises.is_promised(job) or self._promises.is_starving(job)
            # Most jobs of a long queue differ in their name alone. Keys are numbered: to hash one takes as
            # long as to make it.
            number = None if (plain := job.plain_key) is None else of_plain.get(plain)
            if number is None:
                number = keys.setdefault(self._key(candidate), len(keys))
                if plain is not None:
                    of_plain[plain] = number
            kind = self._timing.kind(job, self._readiness.earliest(job.name))
            members[number, job.name if alone else "", kind].append(candidate)
        known = list(keys)
        return [
            _Draft(candidates, (known[number], name), options)
            for (number, name, _), candidates in members.items()
            if (options := self._options(candidates[0]))
        ]

    def _options(self, candidate: JobCandidate) -> tuple[Option, ...]:
        job = candidate.job
        options = self._timing.options(candidate, self._sites, self._readiness.earliest(job.name))
        return self._within_quota(candidate, options)

    def _within_quota(self, candidate: JobCandidate, options: tuple[Option, ...]) -> tuple[Option, ...]:
        """
        Options without the GPU models on which the job alone exceeds a limit of its queue; none if that is a
        limit of CPU cores or memory.

        The job never starts there, but the linear relaxation would start a fraction of it.
        """
        job = candidate.job
        needed = job.request.quota.times(candidate.minimum)
        models = {option.gpu_model for option in options if option.gpu_model is not None}
        answer = self._room.alone(job.queue, needed, models)
        if answer.shortage is not None:
            return ()
        allowed = {None, *answer.gpu_models}
        return tuple(option for option in options if option.gpu_model in allowed)

    def _settled(self, drafts: list[_Draft]) -> list[_Draft]:
        """Drafts with a feasible slot after all dependencies between jobs; equal ones are merged."""
        if tied := self._readiness.interdependent:
            slots = {draft.first.name: start_slots(draft.options) for draft in drafts}
            self._readiness.settle({name: slots.get(name, ()) for name in tied})
        found: dict[Any, _Draft] = {}
        for draft in drafts:
            options = draft.options
            if draft.first.name in tied:
                earliest = self._readiness.earliest(draft.first.name)
                cut = (from_slot(option, earliest) for option in options)
                options = tuple(option for option in cut if has_start_slot(option))
            if not options:
                continue
            same = found.setdefault((draft.key, options), _Draft([], draft.key, options))
            same.candidates.extend(draft.candidates)
        return list(found.values())

    def _start(
        self,
        draft: _Draft,
        index: dict[str, int],
        companies: list[tuple[str, ...]],
        starving: dict[str, int],
    ) -> JobClass:
        jobs = sorted((one.job for one in draft.candidates), key=lambda job: (job.submitted_at, job.name))
        wait = self._readiness.wait(draft.first.name)
        awaited = (
            Predecessor(slot=each.slot)
            if each.slot is not None
            else Predecessor(job_class=index[each.job], ended=each.ended)
            for each in wait.awaited
            if each.slot is not None or each.job in index
        )
        return self._class(
            draft.candidates[0],
            draft.options,
            jobs=tuple(job.name for job in jobs),
            seconds=self._seconds(draft.candidates, draft.options),
            earliest=0 if draft.options[0].groups else start_slots(draft.options)[0],
            predecessors=tuple(awaited),
            needed=wait.needed,
            co_start=companies.index(wait.company) if wait.company else None,
            due=self._timing.due(draft.first),
            priority=min(self._priority(self._jobs[name]) for name in (draft.first.name, *wait.company)),
            promise=self._promises.of(draft.first, draft.options),
            starving=starving.get(draft.first.name),
        )

    def _seconds(self, candidates: Iterable[JobCandidate], options: tuple[Option, ...]) -> int:
        """Longest expected duration of the jobs on the best option."""
        if not self._timing.ahead:
            return 0
        return max(self._timing.seconds(candidate, options[0].gpu_model) for candidate in candidates)

    def _key(self, candidate: JobCandidate) -> tuple[Any, ...]:
        job = candidate.job
        return (
            (job.queue, self._timing.start_value.full_points(job), self._rank(job), self._priority(job)),
            self._claims.of(candidate),
            (job.gang, self._together(candidate)),
            tuple(sorted(job.gpu_models.items())),
            candidate.filters,
            (self._shapes.asked(job), self._shapes.full_request(job)),
            (tuple(sorted(job.datasets)), _preferred_nodes_key(job), self._profile(job)),
            self._meeting(job),
            self._timing.due(job),
        )

    def _class(self, candidate: JobCandidate, options: tuple[Option, ...], **about: Any) -> JobClass:
        job = candidate.job
        workload, carries, avoids = self._meeting(job)
        return JobClass(
            shape=self._shapes.asked(job),
            minimum=candidate.minimum,
            maximum=candidate.maximum,
            queue=self._queues[job.queue],
            options=options,
            role=candidate.role,
            rank=self._rank(job),
            claim=self._claims.of(candidate),
            together=self._together(candidate),
            node_points=self._sites.node_points(
                job, (group for option in options for group in option.groups)
            ),
            profile=self._profile(job),
            asked=self._shapes.full_request(job),
            workload=workload,
            carries=carries,
            avoids=avoids,
            **about,
        )

    def _priority(self, job: Job) -> int:
        """
        Priority of a job in tiers; 0 for all jobs if the policy uses priority only as a weight.

        The jobs of a co-start group all get the lowest priority in it.
        """
        return job.priority if self._policy.priority.order is PriorityOrder.TIERS else 0

    def _rank(self, job: Job) -> int:
        return bisect_right(self._thresholds, job.priority)

    def _together(self, candidate: JobCandidate) -> LocalityRule:
        """The job's locality and spread settings that have an effect at its number of replicas."""
        job = candidate.job
        if candidate.maximum == 1 or candidate.role is ClassRole.GROW:
            return _APART
        required, preferred, spread = job.locality.required, job.locality.preferred, job.spread
        if preferred == required or not self._policy.prices.domain:
            preferred = None
        if spread is not None and spread.most >= candidate.maximum:
            spread = None
        if required is None and preferred is None and spread is None:
            return _APART
        return LocalityRule(
            required=required,
            preferred=preferred,
            spread=spread.level if spread else None,
            most=spread.most if spread else 0,
        )

    def _profile(self, job: Job) -> Profile:
        return self._policy.profiles.get(job.workload_class, Profile.PACK)

    def _meeting(self, job: Job) -> tuple[str, tuple[int, ...], tuple[Any, ...]]:
        return self._meetings.workload(job), self._meetings.carries(job), self._meetings.avoids(job)


_APART = LocalityRule()


def _preferred_nodes_key(job: Job) -> tuple[Any, ...]:
    if not job.preferred_nodes:
        return ()
    return tuple(
        sorted(
            (one.match.key, one.match.operator, one.match.values, one.points) for one in job.preferred_nodes
        )
    )


class PromiseConstraints:
    """The promises of one problem; there are none with a single slot."""

    def __init__(self, snapshot: Snapshot, policy: Policy, timing: StartValues, sites: NodeGroups) -> None:
        self._now = snapshot.taken_at
        self._backfill = policy.horizon.backfill
        self._timing = timing
        self._sites = sites

    def is_promised(self, job: Job) -> bool:
        """True if a job has a promised start within the horizon."""
        return (
            self._timing.ahead
            and job.promise is not None
            and self._slot(self._timing.second(job.promise.start)) < self._timing.slots.count
        )

    def is_starving(self, job: Job) -> bool:
        """True if a job has waited for at least the policy's `starving` seconds and has no promise."""
        least = self._backfill.starving
        if not self._timing.ahead or least is None or self.is_promised(job):
            return False
        return (self._now - job.submitted_at).total_seconds() >= least

    def of(self, job: Job, options: tuple[Option, ...]) -> PromisedStart | None:
        """Promise of a job; without places if they are gone or no longer suit the job."""
        if job.promise is None or not self.is_promised(job):
            return None
        second = self._timing.second(job.promise.start)
        start = self._slot(second)
        latest = min(self._slot(second + self._backfill.max_delay), self._timing.slots.count - 1)
        if len(job.promise.replicas) == job.gang.minimum:
            holds = self._holds(job, job.promise.replicas)
            groups = {self._sites.group_of[hold.node] for hold in holds or () if hold.node is not None}
            for number, option in enumerate(options):
                if holds and groups <= set(_groups(option, start)):
                    return PromisedStart(start, latest, holds, number)
        return PromisedStart(start, latest, ())

    def _slot(self, second: int) -> int:
        """The last slot that begins no later than a second; 0 if it is past, H if it is after the horizon."""
        return max(0, bisect_right(self._timing.slots.edges, second) - 1)

    def _holds(self, job: Job, replicas: Iterable[Replica]) -> tuple[HeldResources, ...] | None:
        """The promised places, by node and GPUs; None if one is gone or does not match the job's request."""
        holds: list[HeldResources] = []
        for replica in replicas:
            index = self._sites.index.get(replica.node)
            if index is None or not _is_asked(job, replica):
                return None
            gpus = self._sites.nodes[index].gpus
            taken = {gpu for hold in holds if hold.node == index for gpu in hold.gpus}
            hold = _hold(job, replica, index, gpus, taken)
            if hold is None:
                return None
            holds.append(hold)
        return tuple(sorted(holds, key=lambda hold: (hold.node, hold.gpus, repr(hold.slices))))


def _groups(option: Option, slot: int) -> tuple[int, ...]:
    return option.later_groups[slot] if slot else option.groups


def _is_asked(job: Job, replica: Replica) -> bool:
    """True if a replica holds the GPUs that the job requests."""
    shares = [held.milli for held in replica.gpus if isinstance(held, GpuShare)]
    slices = Counter(held.profile for held in replica.gpus if isinstance(held, MigSlice))
    request = job.request
    asked = [MILLI] * request.gpus + [request.gpu_milli] * bool(request.gpu_milli)
    return shares == asked and slices == Counter(request.mig)


def _hold(
    job: Job, replica: Replica, node: int, gpus: NodeGpus | None, taken: Collection[int]
) -> HeldResources | None:
    """One promised place; None if its GPUs are gone, unhealthy, or in another MIG mode."""
    if not replica.gpus:
        return HeldResources(node)
    if gpus is None:
        return None
    slices = [held for held in replica.gpus if isinstance(held, MigSlice)]
    sound = {
        index for index, gpu in gpus.by_index.items() if gpu.healthy and (gpu.mig is not None) == bool(slices)
    }
    wanted = sorted({held.index for held in replica.gpus})
    if slices:
        instances = sorted(
            ((held.index, held.instance) for held in slices),
            key=lambda held: (held[0], held[1].start),
        )
        return HeldResources(node, slices=tuple(instances)) if sound.issuperset(wanted) else None
    if job.request.gpus:
        # Only the number of whole GPUs counts: another GPU replaces one that is gone.
        free = sorted(sound.difference(taken), key=lambda index: (index not in wanted, index))
        chosen = sorted(free[: len(replica.gpus)])
        return HeldResources(node, tuple(chosen)) if len(chosen) == len(replica.gpus) else None
    return HeldResources(node, tuple(wanted)) if sound.issuperset(wanted) else None
