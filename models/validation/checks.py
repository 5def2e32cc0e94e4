"""
Consistency checks of a whole snapshot: names are unique, references are known, nothing is held twice.

pydantic validates each entry alone; these checks compare entries with each other. They are pure: the loader
of a document turns locations into files and lines.
"""

from __future__ import annotations

from collections import defaultdict
from enum import StrEnum
from typing import TYPE_CHECKING, Final, TypeAlias

from gpuplan.models.timing.progress import working_since
from gpuplan.models.units import print_timestamp
from gpuplan.models.validation import entities, running_jobs
from gpuplan.models.validation.base import POOLS, Inconsistency, Location, SnapshotView, cycle_text

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence
    from datetime import datetime

    from gpuplan.models.job import Job
    from gpuplan.models.placement import Running
    from gpuplan.models.snapshot import Snapshot


# Consistency of dependencies: they exist, and no job waits for itself.


if TYPE_CHECKING:
    Party: TypeAlias = tuple[str, ...]
    """Names of jobs that start together: one job, or all pending jobs with the same `co_start`; sorted."""


def dependencies_exist(view: SnapshotView) -> Iterator[Inconsistency]:
    """Each dependency is a job of the snapshot or a finished job."""
    known = view.jobs.keys() | {job.name for job in view.snapshot.finished}
    for index, job in enumerate(view.snapshot.jobs):
        for number, dependency in enumerate(job.depends_on):
            if dependency.job not in known:
                here = ("jobs", index, "depends_on", number, "job")
                depends = f"job '{job.name}' depends on job '{dependency.job}'"
                statement = f"{depends}, which is neither among jobs nor among finished"
                yield view.unknown(here, statement, dependency.job, known - {job.name})


def dependency_count_is_possible(view: SnapshotView) -> Iterator[Inconsistency]:
    """`depends_on_at_least` of a job is at most the number of its dependencies."""
    for index, job in enumerate(view.snapshot.jobs):
        if job.depends_on_at_least is not None and job.depends_on_at_least > len(job.depends_on):
            yield Inconsistency(
                ("jobs", index, "depends_on_at_least"),
                f"job '{job.name}' has depends_on_at_least = {job.depends_on_at_least}; "
                f"expected at most {len(job.depends_on)}, as its depends_on names no more jobs.",
            )


def no_job_waits_for_itself(view: SnapshotView) -> Iterator[Inconsistency]:
    """
    Pending jobs can start in some order; each cycle is reported once, at its first job by name.

    Jobs that start together cannot wait for each other either. If some of a job's dependencies suffice, a
    cycle through the others is allowed.
    """
    stuck, blocked = _never_startable(view)
    position = {job.name: index for index, job in reversed(list(enumerate(view.snapshot.jobs)))}
    seen: set[Party] = set()
    for start in sorted(set(stuck.values())):
        trail: dict[Party, tuple[str, str]] = {}
        party = start
        while party not in seen and party not in trail:
            waits = next(name for name in party if name in blocked)
            target = next(one.job for one in view.jobs[waits].depends_on if one.job in stuck)
            trail[party] = waits, target
            party = stuck[target]
        again = party in trail
        seen.update(trail)
        if again:
            steps = list(trail.values())[list(trail).index(party) :]
            lowest = min(range(len(steps)), key=lambda number: steps[number][0])
            ordered = [*steps[lowest:], *steps[:lowest]]
            waits = ordered[0][0]
            yield Inconsistency(
                ("jobs", position[waits], "depends_on"),
                f"job '{waits}' waits for itself: {_path(ordered)}; expected jobs that can start one after "
                "the other.\n  Take one of these dependencies away.",
            )


def _never_startable(view: SnapshotView) -> tuple[dict[str, Party], set[str]]:
    """
    (pending jobs that no order of starts reaches, with the jobs they start together with; blocked ones).

    Blocked are those of them with unmet dependencies of their own.
    """
    waiting = {name: job for name, job in view.jobs.items() if job.running is None}
    parties = _parties(waiting)
    missing: dict[str, int] = {}
    behind: dict[str, list[str]] = defaultdict(list)
    for name, job in waiting.items():
        # Jobs that run, have ended or are unknown block no job.
        ahead = [dependency.job for dependency in job.depends_on if dependency.job in waiting]
        named = len(job.depends_on)
        missing[name] = min(job.depends_on_at_least or named, named) - (named - len(ahead))
        for target in ahead:
            behind[target].append(name)
    unready = {party: sum(missing[name] > 0 for name in party) for party in parties.values()}
    startable = [party for party, count in unready.items() if not count]
    for party in startable:  # grows as it is walked
        for target in party:
            for name in behind[target]:
                missing[name] -= 1
                if missing[name] == 0:
                    unready[parties[name]] -= 1
                    if not unready[parties[name]]:
                        startable.append(parties[name])
    stuck = {name: party for name, party in parties.items() if unready[party] > 0}
    return stuck, {name for name in stuck if missing[name] > 0}


def _parties(waiting: Mapping[str, Job]) -> dict[str, Party]:
    """The jobs that start together with each pending job, including itself."""
    together: dict[str, list[str]] = defaultdict(list)
    for name, job in sorted(waiting.items()):
        if job.co_start is not None:
            together[job.co_start].append(name)
    return {
        name: (name,) if job.co_start is None else tuple(together[job.co_start])
        for name, job in waiting.items()
    }


def _path(steps: Sequence[tuple[str, str]]) -> str:
    """The cycle as `a -> b -> a`; where it continues from a co-start job, that job is named too."""
    names = [steps[0][0]]
    for number, (_, target) in enumerate(steps):
        leaves = steps[(number + 1) % len(steps)][0]
        names.append(target if leaves == target else f"{target} (starts with {leaves})")
    return cycle_text(names)


# Consistency of times: no event is later than the snapshot, and no end is before its start.


def times_are_in_order(view: SnapshotView) -> Iterator[Inconsistency]:
    """
    No event is later than the snapshot, and no deadline is before the job's submission.

    A job may have a later start if one of its nodes is still being provisioned.
    """
    taken_at = view.snapshot.taken_at
    for index, job in enumerate(view.snapshot.jobs):
        past: list[tuple[Location, datetime]] = [(("submitted_at",), job.submitted_at)]
        if job.running:
            if not _is_being_provisioned(view, job.running):
                past.append((("running", "started_at"), job.running.started_at))
            if job.running.last_checkpoint_at:
                past.append((("running", "last_checkpoint_at"), job.running.last_checkpoint_at))
            if job.running.resized_at:
                past.append((("running", "resized_at"), job.running.resized_at))
        if job.progress and job.progress.last_checkpoint_at:
            past.append((("progress", "last_checkpoint_at"), job.progress.last_checkpoint_at))
        for field, time in past:
            if time > taken_at:
                yield _misplaced(("jobs", index, *field), f"job '{job.name}'", time, _NOTHING_AFTER, taken_at)
        yield from _ends_before_begins(index, job)


def _ends_before_begins(index: int, job: Job) -> Iterator[Inconsistency]:
    """Times of a job that are before the time from which on they may be."""
    here, subject, running = ("jobs", index), f"job '{job.name}'", job.running
    if running and running.kill_at and running.kill_at <= running.started_at:
        place, expected = (*here, "running", "kill_at"), "one after its started_at"
        yield _misplaced(place, subject, running.kill_at, expected, running.started_at)
    if running and (since := working_since(running)) < running.started_at:
        place = (*here, "running", "resumed_at")
        yield _misplaced(place, subject, since, _NONE_BEFORE_START, running.started_at)
    if job.deadline and job.deadline < job.submitted_at:
        expected = "one after its submitted_at"
        yield _misplaced((*here, "deadline"), subject, job.deadline, expected, job.submitted_at)


_NOTHING_AFTER: Final = "nothing after the snapshot's own taken_at"
_NONE_BEFORE_START: Final = "none before its started_at"


def _misplaced(
    location: Location, subject: str, time: datetime, expected: str, bound: datetime
) -> Inconsistency:
    """A time that is on the wrong side of another one."""
    found = f"{subject} has {location[-1]} {print_timestamp(time)}"
    return Inconsistency(location, f"{found}; expected {expected}, {print_timestamp(bound)}.")


def pool_scaling_is_past(view: SnapshotView) -> Iterator[Inconsistency]:
    """No node was added to or removed from a pool after the snapshot was taken."""
    taken_at = view.snapshot.taken_at
    for index, pool in enumerate(view.snapshot.cluster.pools):
        for field in ("node_added_at", "node_removed_at"):
            if (time := getattr(pool, field)) is not None and time > taken_at:
                place = (*POOLS, index, field)
                yield _misplaced(place, f"pool '{pool.name}'", time, _NOTHING_AFTER, taken_at)


def _is_being_provisioned(view: SnapshotView, running: Running) -> bool:
    """True if the job waits for a node that is being provisioned; an unknown node may be one."""
    nodes = [view.nodes.get(replica.node) for replica in running.replicas]
    taken_at = view.snapshot.taken_at
    return any(node is None or (node.ready_at is not None and node.ready_at > taken_at) for node in nodes)


def finished_jobs_ended(view: SnapshotView) -> Iterator[Inconsistency]:
    """A finished job ended after its start and before the snapshot was taken."""
    taken_at = view.snapshot.taken_at
    for index, job in enumerate(view.snapshot.finished):
        here, subject = ("finished", index, "ended_at"), f"finished job '{job.name}'"
        if job.ended_at < job.started_at:
            yield _misplaced(here, subject, job.ended_at, _NONE_BEFORE_START, job.started_at)
        if job.ended_at > taken_at:
            yield _misplaced(here, subject, job.ended_at, _NOTHING_AFTER, taken_at)


def hard_deadlines_are_given(view: SnapshotView) -> Iterator[Inconsistency]:
    """A job with `hard_deadline` has a deadline."""
    for index, job in enumerate(view.snapshot.jobs):
        if job.hard_deadline and job.deadline is None:
            yield Inconsistency(
                ("jobs", index, "hard_deadline"),
                f"job '{job.name}' has hard_deadline = true and no deadline; expected a deadline beside it.",
            )


def promises_are_for_waiting_jobs(view: SnapshotView) -> Iterator[Inconsistency]:
    """A running job has no promise: it was kept, or is void."""
    for index, job in enumerate(view.snapshot.jobs):
        if job.promise and job.running:
            yield Inconsistency(
                ("jobs", index, "promise"),
                f"job '{job.name}' runs and has a promise; expected promises of waiting jobs only.\n"
                "  Leave `promise` out.",
            )


# All checks, with the sections of a snapshot that each of them needs.


if TYPE_CHECKING:
    Check: TypeAlias = Callable[[SnapshotView], Iterator[Inconsistency]]


class Section(StrEnum):
    """A section of a snapshot; a check may be valid only if certain sections are complete."""

    TAKEN_AT = "taken_at"
    CLUSTER = "cluster"
    QUEUES = "queues"
    JOBS = "jobs"
    FINISHED = "finished"
    MEASURED = "measured"


CHECKS: Final[dict[Check, frozenset[Section]]] = {
    entities.names_are_unique: frozenset(),
    entities.gpu_details_fit: frozenset(),
    entities.mig_layouts_are_legal: frozenset(),
    entities.gpus_are_measured_once: frozenset({Section.MEASURED}),
    entities.pools_exist: frozenset({Section.CLUSTER}),
    entities.templates_take_jobs: frozenset(),
    entities.datasets_exist: frozenset({Section.CLUSTER}),
    entities.racks_exist: frozenset({Section.CLUSTER}),
    entities.parents_exist: frozenset({Section.QUEUES}),
    entities.queues_form_a_tree: frozenset({Section.QUEUES}),
    entities.guarantees_can_be_kept: frozenset({Section.QUEUES}),
    entities.queues_exist: frozenset({Section.QUEUES}),
    entities.profiles_are_offered: frozenset({Section.CLUSTER}),
    times_are_in_order: frozenset({Section.TAKEN_AT}),
    pool_scaling_is_past: frozenset({Section.TAKEN_AT}),
    finished_jobs_ended: frozenset({Section.TAKEN_AT}),
    hard_deadlines_are_given: frozenset(),
    promises_are_for_waiting_jobs: frozenset(),
    entities.reserved_nodes_exist: frozenset({Section.CLUSTER}),
    entities.enough_nodes_match: frozenset({Section.CLUSTER}),
    entities.owners_exist: frozenset({Section.QUEUES}),
    dependencies_exist: frozenset({Section.JOBS, Section.FINISHED}),
    no_job_waits_for_itself: frozenset(),
    dependency_count_is_possible: frozenset(),
    running_jobs.gangs_are_complete: frozenset(),
    running_jobs.placements_are_valid: frozenset({Section.CLUSTER}),
    running_jobs.profiles_in_use_are_valid: frozenset(),
    running_jobs.mig_use_fits_the_layout: frozenset({Section.CLUSTER}),
    running_jobs.gpus_are_held_once: frozenset(),
    running_jobs.node_capacity_is_kept: frozenset({Section.CLUSTER}),
}
"""All checks, with the sections that must be complete for each."""

DAMAGE_CHECKS: Final[tuple[Check, ...]] = (
    running_jobs.gangs_are_complete,
    running_jobs.groups_are_whole,
    running_jobs.placements_are_valid,
    running_jobs.mig_use_fits_the_layout,
    running_jobs.node_capacity_is_kept,
    entities.profiles_are_offered,
    entities.racks_exist,
    entities.reserved_nodes_exist,
    entities.enough_nodes_match,
)
"""The checks that find damage."""


def inconsistencies(
    snapshot: Snapshot, *, incomplete: frozenset[Section] = frozenset()
) -> Iterator[Inconsistency]:
    """
    All inconsistencies between entries, including damage.

    Checks that need an incomplete section are skipped.
    """
    view = SnapshotView(snapshot)
    for check, needed in CHECKS.items():
        if not needed & incomplete:
            yield from check(view)
