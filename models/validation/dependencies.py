"""Consistency of dependencies: they exist, and no job waits for itself."""

from __future__ import annotations

from collections import defaultdict
from typing import TYPE_CHECKING, TypeAlias

from gpuplan.models.validation.base import Inconsistency
from gpuplan.models.validation.suggestions import truncated_names

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from gpuplan.models.job import Job
    from gpuplan.models.validation.base import SnapshotView

    Party: TypeAlias = tuple[str, ...]
    """Names of jobs that start together: one job, or all pending jobs with the same `co_start`; sorted."""

_LONGEST_CYCLE = 12


def dependencies_exist(view: SnapshotView) -> Iterator[Inconsistency]:
    """Each dependency is a job of the snapshot or a finished job."""
    known = view.jobs.keys() | {job.name for job in view.snapshot.finished}
    for index, job in enumerate(view.snapshot.jobs):
        for number, dependency in enumerate(job.depends_on):
            if dependency.job not in known:
                yield Inconsistency(
                    ("jobs", index, "depends_on", number, "job"),
                    f"job '{job.name}' depends on job '{dependency.job}', which is neither among jobs nor "
                    f"among finished.\n  Known: {truncated_names(known - {job.name}) or 'none'}."
                    f"{view.near.hint(dependency.job, known - {job.name})}",
                )


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
    shown = names if len(names) <= _LONGEST_CYCLE else [*names[: _LONGEST_CYCLE - 2], "…", names[-1]]
    return " -> ".join(shown)
