"""Learnt scaling: speed of elastic jobs by size, from the durations of similar finished jobs."""

from __future__ import annotations

from collections import defaultdict
from statistics import median
from typing import TYPE_CHECKING, Final, TypeAlias

from gpuplan.models.dependency import JobOutcome
from gpuplan.models.gang import Gang
from gpuplan.models.timing.durations import DIGITS
from gpuplan.models.units import MILLI

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from gpuplan.models.dependency import FinishedJob
    from gpuplan.models.job import Job
    from gpuplan.models.snapshot import Snapshot

SAMPLES: Final = 3
"""Minimum number of finished jobs of a size for its speed: the median of fewer could be an outlier."""

_FASTEST: Final = 10_000
"""Limit on the speed relative to the slowest size: a job that seems faster did not do the same work."""

_Kin: TypeAlias = tuple[str, str, str]
"""(queue, user, name without digits)."""
_Seconds: TypeAlias = dict[str, dict[int, list[int]]]
"""Durations in seconds by GPU model and number of replicas."""


def with_learnt_scaling(snapshot: Snapshot) -> Snapshot:
    """
    The snapshot with a scaling table for each elastic job without one, if it can be learnt from similar jobs.

    Similar jobs are finished jobs of the same queue and user with names that differ only in digits and with
    `replicas` and `gpu_model`. If no table is learnt, it is the snapshot itself.
    """
    taken: dict[_Kin, _Seconds] = defaultdict(lambda: defaultdict(lambda: defaultdict(list)))
    for over in snapshot.finished:
        if over.outcome is JobOutcome.SUCCEEDED and over.replicas is not None:
            seconds = max(1, int((over.ended_at - over.started_at).total_seconds()))
            taken[_kin(over)][over.gpu_model or ""][over.replicas].append(seconds)
    if not taken:
        return snapshot
    learnt = {
        job.name: gang
        for job in snapshot.jobs
        if job.gang.elastic
        and not job.gang.scaled
        and (found := taken.get((job.queue, job.user, DIGITS.sub("", job.name)))) is not None
        and (gang := _learnt(job.gang, found)) is not None
    }
    if not learnt:
        return snapshot
    jobs = tuple(
        job.model_copy(update={"gang": learnt[job.name]}) if job.name in learnt else job
        for job in snapshot.jobs
    )
    return snapshot.model_copy(update={"jobs": jobs})


def has_learnt_scaling(snapshot: Snapshot, job: Job) -> bool:
    """True if the scaling table of a job equals the one learnt from finished jobs."""
    plain = job.gang.model_copy(update={"scaling": {}, "scaling_by_model": {}})
    without = snapshot.model_copy(update={"jobs": (job.model_copy(update={"gang": plain}),)})
    return job.gang.scaled and with_learnt_scaling(without).jobs[0].gang == job.gang


def _kin(over: FinishedJob) -> _Kin:
    return over.queue, over.user, DIGITS.sub("", over.name)


def _learnt(gang: Gang, found: _Seconds) -> Gang | None:
    """The gang with the tables of all GPU models for which one is learnt; None if there is none."""
    tables: dict[str, dict[int, float]] = {}
    seen: dict[str, int] = {}
    for model, by_size in sorted(found.items()):
        medians = {size: median(took) for size, took in by_size.items() if len(took) >= SAMPLES}
        if len(medians) > 1:
            tables[model] = fit_speeds(medians, gang.maximum)
            seen[model] = sum(map(len, by_size.values()))
    if not tables:
        return None
    # Models without a table are assumed to scale like the one with the most samples.
    most = max(seen, key=lambda model: seen[model])
    scaling = tables.pop(most)
    tables.pop("", None)
    return Gang.model_validate(
        {"min": gang.minimum, "max": gang.maximum, "scaling": scaling, "scaling_by_model": tables}
    )


def fit_speeds(seconds: Mapping[int, float], most: int) -> dict[int, float]:
    """
    Speed by number of replicas, from durations by size: the least concave majorant of 1 / seconds.

    It is the least-squares fit of values that must be concave (Grenander, Scandinavian Actuarial Journal 39,
    1956). Each replica of the smallest size has speed 1. From the largest observed size up to `most` speed
    grows at the last rate, so that plans try untested sizes.
    """
    smallest, largest = min(seconds), max(seconds)
    unit, least = smallest * seconds[smallest], max(seconds.values()) / _FASTEST
    measured = [(size, unit / max(least, took)) for size, took in sorted(seconds.items())]
    hull = _majorant([(0, 0.0), *measured])
    # Speed never falls with size, since a job may leave replicas idle.
    rising = [point for index, point in enumerate(hull) if index == 0 or point[1] > hull[index - 1][1]]
    if rising[-1][0] < largest:
        rising.append((largest, rising[-1][1]))
    if largest < most:
        (size, speed), (last, fastest) = rising[-2:]
        rising.append((most, fastest + (fastest - speed) / (last - size) * (most - last)))
    return {size: round(speed * MILLI) / MILLI for size, speed in rising[1:]}


def _majorant(points: Sequence[tuple[int, float]]) -> list[tuple[int, float]]:
    """The upper hull of points from left to right (Andrew, Information Processing Letters 9, 1979)."""
    hull: list[tuple[int, float]] = []
    for x, y in points:
        while len(hull) > 1:
            (first, low), (second, high) = hull[-2:]
            if (high - low) * (x - second) > (y - high) * (second - first):
                break
            hull.pop()
        hull.append((x, y))
    return hull
