"""Scaling learnt: how fast elastic jobs are by size, from what the like of them took before."""

from __future__ import annotations

from collections import defaultdict
from statistics import median
from typing import TYPE_CHECKING, Final, TypeAlias

from gpuplan.models.dependency import Outcome
from gpuplan.models.gang import Gang
from gpuplan.models.timing.durations import DIGITS
from gpuplan.models.units import MILLI

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from gpuplan.models.dependency import FinishedJob
    from gpuplan.models.job import Job
    from gpuplan.models.snapshot import Snapshot

SAMPLES: Final = 3
"""Finished jobs of a size that its speed is learnt from, at least: the median of fewer is one outlier's."""

_FASTEST: Final = 10_000
"""Times as fast as the slowest size: what took less than that has done something else."""

_Kin: TypeAlias = tuple[str, str, str]
"""Queue, user, and the name without its digits."""
_Seconds: TypeAlias = dict[str, dict[int, list[int]]]
"""What jobs took, by GPU model and replicas."""


def with_learnt_scaling(snapshot: Snapshot) -> Snapshot:
    """
    The snapshot whose elastic jobs without a scaling table have one, if their like teach it; else itself.

    Its like are finished jobs of the same queue and user whose names differ only in digits, and that say on
    how many `replicas` of which `gpu_model` they ran.
    """
    taken: dict[_Kin, _Seconds] = defaultdict(lambda: defaultdict(lambda: defaultdict(list)))
    for over in snapshot.finished:
        if over.outcome is Outcome.SUCCEEDED and over.replicas is not None:
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


def is_learnt(snapshot: Snapshot, job: Job) -> bool:
    """True if a job of the snapshot has the scaling table that finished jobs teach."""
    plain = job.gang.model_copy(update={"scaling": {}, "scaling_by_model": {}})
    without = snapshot.model_copy(update={"jobs": (job.model_copy(update={"gang": plain}),)})
    return job.gang.scaled and with_learnt_scaling(without).jobs[0].gang == job.gang


def _kin(over: FinishedJob) -> _Kin:
    return over.queue, over.user, DIGITS.sub("", over.name)


def _learnt(gang: Gang, found: _Seconds) -> Gang | None:
    """The gang with tables for all GPU models that teach one; None if none does."""
    tables: dict[str, dict[int, float]] = {}
    seen: dict[str, int] = {}
    for model, by_size in sorted(found.items()):
        medians = {size: median(took) for size, took in by_size.items() if len(took) >= SAMPLES}
        if len(medians) > 1:
            tables[model] = speeds(medians, gang.maximum)
            seen[model] = sum(map(len, by_size.values()))
    if not tables:
        return None
    # A model that teaches nothing is taken to scale like the one that taught most.
    most = max(seen, key=lambda model: seen[model])
    scaling = tables.pop(most)
    tables.pop("", None)
    return Gang.model_validate(
        {"min": gang.minimum, "max": gang.maximum, "scaling": scaling, "scaling_by_model": tables}
    )


def speeds(seconds: Mapping[int, float], most: int) -> dict[int, float]:
    """
    Speed by number of replicas, from what jobs of each size took: the least concave majorant of 1 / seconds.

    That is what least squares make of values that must be concave (Grenander, Scandinavian Actuarial Journal
    39, 1956). Each replica of the smallest size has speed 1. From the largest size seen up to `most` it grows
    on like before, so that sizes that were never tried are tried.
    """
    smallest, largest = min(seconds), max(seconds)
    unit, least = smallest * seconds[smallest], max(seconds.values()) / _FASTEST
    measured = [(size, unit / max(least, took)) for size, took in sorted(seconds.items())]
    hull = _majorant([(0, 0.0), *measured])
    # Too much of anything does not make it slower than less: a job may leave replicas idle.
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
