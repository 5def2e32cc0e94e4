"""Classes: candidates that are worth the same, may use the same nodes and take the same there."""

from __future__ import annotations

from bisect import bisect_right
from collections import defaultdict
from typing import TYPE_CHECKING, Any

from planner.models.policy import Profile, completion_points, job_points
from planner.models.problem import JobClass, Option, Role, Togetherness

if TYPE_CHECKING:
    from collections.abc import Iterable

    from planner.models.job import Job
    from planner.models.policy import Policy
    from planner.models.snapshot import Snapshot
    from planner.posing.candidates import Candidate
    from planner.posing.meetings import Meetings
    from planner.posing.shapes import Shapes
    from planner.posing.sites import Sites


class Classifier:
    """Makes classes; `victims` are the priorities of running jobs that may have to make room, ascending."""

    def __init__(
        self,
        snapshot: Snapshot,
        policy: Policy,
        *,
        sites: Sites,
        shapes: Shapes,
        meetings: Meetings,
        victims: list[int],
    ) -> None:
        self._policy = policy
        self._now = snapshot.taken_at
        self._queues = {queue.name: index for index, queue in enumerate(snapshot.queues)}
        self._sites = sites
        self._shapes = shapes
        self._meetings = meetings
        self._thresholds = [priority + policy.disruption.priority_gap for priority in victims]

    def starts(self, waiting: Iterable[Candidate]) -> list[JobClass]:
        """Waiting jobs by class, in the order of their first names; those that fit nowhere are left out."""
        members: dict[Any, list[Candidate]] = defaultdict(list)
        for candidate in waiting:
            members[self._key(candidate)].append(candidate)
        classes = []
        for candidates in members.values():
            jobs = sorted((one.job for one in candidates), key=lambda job: (job.submitted_at, job.name))
            if made := self._class(candidates[0], tuple(job.name for job in jobs)):
                classes.append(made)
        return classes

    def only(self, candidate: Candidate, incumbent: int) -> JobClass | None:
        """The class of one running job that moves or grows; None if there is no node for it."""
        return self._class(candidate, (candidate.job.name,), incumbent)

    def _key(self, candidate: Candidate) -> tuple[Any, ...]:
        job = candidate.job
        return (
            (job.queue, job_points(self._policy, job, self._now), self._rank(job)),
            (job.gang.minimum, job.gang.maximum, self._together(candidate)),
            tuple(sorted(job.gpu_models.items())),
            candidate.filters,
            (self._shapes.asked(job), self._shapes.in_full(job)),
            (tuple(sorted(job.datasets)), _wishes(job), self._profile(job)),
            self._meeting(job),
        )

    def _class(
        self, candidate: Candidate, names: tuple[str, ...], incumbent: int | None = None
    ) -> JobClass | None:
        job, role = candidate.job, candidate.role
        points = job_points(self._policy, job, self._now)
        count = candidate.maximum if role is Role.MOVE else 1
        allowed = self._sites.allowed(candidate)
        options = tuple(
            Option(model, allowed[model], completion_points(points, job, model, count))
            for model in sorted(allowed, key=lambda model: (-job.speed_milli(model), model or ""))
        )
        if not options:
            return None
        workload, carries, avoids = self._meeting(job)
        return JobClass(
            jobs=names,
            shape=self._shapes.asked(job),
            minimum=candidate.minimum,
            maximum=candidate.maximum,
            queue=self._queues[job.queue],
            options=options,
            role=role,
            incumbent=incumbent,
            fixed_points=-self._policy.prices.resize if role is Role.GROW else 0,
            rank=self._rank(job),
            together=self._together(candidate),
            node_points=self._sites.node_points(
                job, (group for option in options for group in option.groups)
            ),
            profile=self._profile(job),
            asked=self._shapes.in_full(job),
            workload=workload,
            carries=carries,
            avoids=avoids,
        )

    def _rank(self, job: Job) -> int:
        return bisect_right(self._thresholds, job.priority)

    def _together(self, candidate: Candidate) -> Togetherness:
        """What of the job's wishes about places makes a difference to so many replicas."""
        job = candidate.job
        if candidate.maximum == 1 or candidate.role is Role.GROW:
            return _APART
        required, preferred, spread = job.locality.required, job.locality.preferred, job.spread
        if preferred == required or not self._policy.prices.domain:
            preferred = None
        if spread is not None and spread.most >= candidate.maximum:
            spread = None
        if required is None and preferred is None and spread is None:
            return _APART
        return Togetherness(
            required=required,
            preferred=preferred,
            spread=spread.level if spread else None,
            most=spread.most if spread else 0,
        )

    def _profile(self, job: Job) -> Profile:
        return self._policy.profiles.get(job.workload_class, Profile.PACK)

    def _meeting(self, job: Job) -> tuple[str, tuple[int, ...], tuple[Any, ...]]:
        return self._meetings.workload(job), self._meetings.carries(job), self._meetings.avoids(job)


_APART = Togetherness()


def _wishes(job: Job) -> tuple[Any, ...]:
    if not job.preferred_nodes:
        return ()
    return tuple(
        sorted(
            (one.match.key, one.match.operator, one.match.values, one.points) for one in job.preferred_nodes
        )
    )
