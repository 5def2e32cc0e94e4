"""The rule about conditions for a start: other jobs, data, and the earliest start."""

from __future__ import annotations

from collections import defaultdict
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Final

from gpuplan.models.dependency import Dependency, DependencyKind, JobOutcome
from gpuplan.models.plan.violation import Rule, Violation
from gpuplan.models.verifier.messages import format_count, truncated_names

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from gpuplan.models.job import Job
    from gpuplan.models.verifier.context import Context, Interval

_HAS_TO_BE_WELL: Final = (DependencyKind.SUCCEEDED, DependencyKind.CHECKPOINTED)


def dependencies(case: Context) -> Iterator[Violation]:
    """
    A job starts not before its earliest start, with its data available, after enough of its dependencies.

    Pending jobs of a co-start group start in one slot, or none of them does; a group with a running job no
    longer counts.
    """
    for stay in (*case.time.starting, *case.time.later):
        for found, allowed in unmet_start_conditions(case, stay, case.time.starts):
            yield Violation(Rule.DEPENDENCIES, stay.subject, found, allowed)
    for name, members in sorted(co_start_groups(case).items()):
        slots = {job: start.slot if (start := case.time.starts.get(job)) else None for job in members}
        if len(set(slots.values())) > 1:
            found = truncated_names(
                f"{job} waits" if slot is None else f"{job} in slot {slot}" for job, slot in slots.items()
            )
            yield Violation(Rule.DEPENDENCIES, f"co-start group {name}", found, "all in one slot, or none")


def co_start_groups(case: Context) -> dict[str, list[str]]:
    """Pending jobs that are not held, by the name of their co-start group."""
    groups: dict[str, list[str]] = defaultdict(list)
    for job in case.snapshot.waiting:
        if job.co_start and not job.withheld:
            groups[job.co_start].append(job.name)
    # A job that was added to a group, or failed, after the others began cannot start together with them.
    over = {job.co_start for job in case.running} if groups else set()
    return {name: members for name, members in groups.items() if name not in over}


def unmet_start_conditions(
    case: Context, stay: Interval, starts: Mapping[str, Interval]
) -> Iterator[tuple[str, str]]:
    """Unmet conditions of a start as (found, allowed), if the jobs in `starts` start."""
    job, time = stay.job, case.time
    earliest = [("", job.not_before)] if job.not_before else []
    if (again := _end_of_backoff(job)) is not None:
        earliest.append((f", after {format_count(job.failures, 'failure')}", again))
    earliest += [
        (f", when dataset {dataset.name} is available", dataset.available_at)
        for dataset in (case.snapshot.cluster.datasets if job.datasets else ())
        if dataset.available_at and dataset.name in job.datasets
    ]
    for why, instant in earliest:
        if stay.start < (second := time.seconds_to(instant)):
            yield (
                f"starts at {time.format_instant(stay.start)}",
                f"from {time.format_instant(second)} on{why}",
            )
    if job.depends_on:
        missing = [each for each in job.depends_on if not _is_satisfied(case, each, stay.slot, starts)]
        needed = len(job.depends_on) if job.depends_on_at_least is None else job.depends_on_at_least
        if (held := len(job.depends_on) - len(missing)) < needed:
            names = truncated_names(f"{each.job} {each.kind}" for each in missing)
            yield f"starts before {names}", f"after {needed - held} more of them"


def _end_of_backoff(job: Job) -> datetime | None:
    """The time at which a job that failed may be tried again; a running job is tried already."""
    rule, seconds = job.retry, 0
    if rule is None or job.failed_at is None or job.running is not None:
        return None
    longest = max(rule.backoff, rule.longest_backoff)
    for number in range(1, job.failures + 1):
        seconds = rule.backoff if number == 1 else 2 * seconds
        # Doubling ends at the longest pause, so that a job with many failures costs no large number.
        if not 0 < seconds < longest:
            break
    return job.failed_at + timedelta(seconds=min(seconds, longest))


def _is_satisfied(case: Context, dependency: Dependency, slot: int, starts: Mapping[str, Interval]) -> bool:
    """
    True if a dependency is satisfied by the beginning of a slot.

    A start in a slot counts from the next slot on. The end of a running job counts only if the plan leaves
    the job unchanged, since otherwise its end is unknown.
    """
    kind, time = dependency.kind, case.time
    job = case.jobs.get(dependency.job)
    if job is None:
        outcome = time.outcomes.get(dependency.job)
        # A job that the snapshot no longer has is over; one without a known outcome satisfies nothing.
        return outcome is JobOutcome.SUCCEEDED or (outcome is not None and kind not in _HAS_TO_BE_WELL)
    if kind is DependencyKind.STARTED and job.has_run:
        return True
    if kind is DependencyKind.CHECKPOINTED and job.last_checkpoint_at:
        return True
    if job.running is None:
        start = starts.get(job.name)
        if start is None:
            return False
        return slot > start.slot if kind is DependencyKind.STARTED else slot >= start.until
    return job.name in time.kept and slot >= time.slots.until(0, time.durations.remaining(job))
