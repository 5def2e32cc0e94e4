"""
Jobs that give up what they hold, and the jobs that may not follow them.

A job may follow a victim if its priority is higher by the policy's gap, or if it reclaims what the queue of
the victim borrows (`Entitlements`).
"""

from __future__ import annotations

from collections import defaultdict
from math import log2
from typing import TYPE_CHECKING, Final, NamedTuple, TypeAlias

from gpuplan.models.placement import unmatched
from gpuplan.models.queue import ALL_MODELS
from gpuplan.models.timing.progress import unserved_seconds
from gpuplan.models.verifier.job_changes import Change

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from gpuplan.models.job import Job
    from gpuplan.models.placement import Replica
    from gpuplan.models.verifier.context import Context
    from gpuplan.models.verifier.job_changes import JudgedPlacement


_MAX_SETS: Final = 1024
"""Limit on the sets of jobs that are checked at a node, at a rack, or for all queues; rarely reached."""


class PreemptedJob(NamedTuple):
    """A preempted or shrunk job, with the replicas on one GPU model that it gives up."""

    job: Job
    replicas: tuple[Replica, ...]
    model: str
    """GPU model; empty if it holds no GPUs."""


Barred: TypeAlias = "tuple[PreemptedJob, frozenset[str]]"
"""A victim, and the jobs with new replicas that may not follow it."""


def victims_and_barred(case: Context) -> list[Barred]:
    """All victims that some job with new replicas may not follow."""
    victims = _victims(case)
    return [each for each in zip(victims, _excluded_jobs(case, victims), strict=True) if each[1]]


def sets_of_barred(there: Iterable[Barred]) -> Iterator[tuple[frozenset[str], list[PreemptedJob]]]:
    """
    Sets of jobs that may follow none of some victims in a place, each with all such victims.

    The strongest condition on jobs that may follow none of some victims is with all victims of which that is
    true; so one hypothetical plan for each set of such jobs is enough.
    """
    there = list(there)
    for names in intersections({bars for _, bars in there}):
        yield names, [victim for victim, bars in there if names <= bars]


def _victims(case: Context) -> list[PreemptedJob]:
    """Jobs that give up replicas, one entry per GPU model of these."""
    given_up = [(job, job.running.replicas) for job in case.stopped if job.running]
    for job, occupant in case.with_change(Change.SHRUNK):
        before = job.running.replicas if job.running else ()
        numbers = unmatched(before, occupant.placement.replicas)
        given_up.append((job, tuple(before[number] for number in numbers)))
    found = []
    for job, replicas in given_up:
        # What a queue is entitled to is counted by GPU model.
        by_model: dict[str, list[Replica]] = defaultdict(list)
        for replica in replicas:
            node = case.nodes.get(replica.node) if job.request.needs_gpu else None
            by_model[(node.gpu_model if node else None) or ALL_MODELS].append(replica)
        found += [PreemptedJob(job, tuple(there), model) for model, there in by_model.items()]
    return found


def _excluded_jobs(case: Context, victims: list[PreemptedJob]) -> list[frozenset[str]]:
    """
    For each victim, the jobs with new replicas that may not follow it.

    In a rollback the jobs of the plan that is undone may follow each other: it takes back that plan's choice.
    """
    alike: dict[tuple[str, int, int], list[str]] = defaultdict(list)
    for job, occupant in case.arrivals:
        alike[job.queue, job.priority, _fewest_new(job, occupant)].append(job.name)
    found: dict[tuple[str, int, bool, str], frozenset[str]] = {}
    undone, entitlements, barred = case.undo.jobs, case.entitlements, []
    for job, _, model in victims:
        queue, least, turn = job.queue, least_priority(case, job), _in_turn(case, job)
        if (key := (queue, least, turn, model)) not in found:
            found[key] = frozenset(
                name
                for (own, level, milli), names in alike.items()
                if (level < least or (turn and entitlements.owns(queue, own)))
                and not entitlements.quotas(own, milli, queue, model)
                for name in names
            )
        bars = found[key]
        barred.append(bars - undone if job.name in undone else bars)
    return barred


def least_priority(case: Context, job: Job) -> int:
    """
    Lowest priority of a job that may follow a running one without reclaiming what its queue borrows.

    Equal priority is not enough, whatever the policy, while the job is in its turn, nor if it starved before
    it started.
    """
    if (gap := case.policy.disruption.priority_gap) or job.running is None:
        return job.priority + gap
    starving = case.policy.horizon.backfill.starving
    if starving is not None and unserved_seconds(job, case.snapshot.taken_at) >= starving:
        return job.priority + 1
    return job.priority + (1 if _in_turn(case, job, gpus=False) else 0)


def _in_turn(case: Context, job: Job, *, gpus: bool = True) -> bool:
    """
    True if a running job was preempted and has run for less than its turn since; with GPUs only if asked.

    A turn doubles with each time that a job was preempted. For so long a job of a queue that may reclaim is
    not stopped for the priority of a job outside: what it holds would be reclaimed at once.
    """
    if job.running is None or (gpus and not job.request.total_gpu_milli):
        return False
    rules = case.policy.disruption
    saving = rules.checkpoint if job.checkpoint_duration is None else job.checkpoint_duration
    loading = rules.restart if job.restart_duration is None else job.restart_duration
    had = max(0.0, (case.snapshot.taken_at - job.running.started_at).total_seconds())
    doublings = log2(1 + had // max(saving + loading, case.policy.objective.shortest))
    return doublings < job.preemptions


def _fewest_new(job: Job, occupant: JudgedPlacement) -> int:
    """Minimum thousandths of GPUs that a job adds when it starts or grows."""
    replicas = {Change.STARTED: job.gang.minimum, Change.GROWN: 1}.get(occupant.change, 0)
    return replicas * job.request.total_gpu_milli


def intersections(sets: set[frozenset[str]]) -> list[frozenset[str]]:
    """All nonempty intersections of any of some sets."""
    found: dict[frozenset[str], None] = {}
    for one in sorted(sets, key=lambda names: (-len(names), sorted(names))):
        found |= dict.fromkeys(common for other in list(found) if (common := one & other))
        found[one] = None
        # What is left out here is not checked: the rule gets weaker, not stricter.
        if len(found) > _MAX_SETS:
            break
    return list(found)
