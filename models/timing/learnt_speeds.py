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
    from collections.abc import Mapping

    from numpy import float64
    from numpy.typing import NDArray

    from gpuplan.models.dependency import FinishedJob
    from gpuplan.models.job import Job
    from gpuplan.models.snapshot import Snapshot

SAMPLES: Final = 3
"""Minimum number of finished jobs of a size for its speed: the median of fewer could be an outlier."""

_MISFIT: Final = 0.25
"""
Largest relative difference between a measured speed and the table; beyond it, jobs of different sizes did
not do the same work, and nothing is learnt.
"""

_TOLERANCE: Final = 1e-12
"""Rounding of the gradient, relative to the measured speeds."""

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
        known = {size: took for size, took in by_size.items() if len(took) >= SAMPLES}
        medians = {size: (median(took), len(took)) for size, took in known.items()}
        if len(medians) > 1 and (table := fit_speeds(medians, gang.maximum)) is not None:
            tables[model] = table
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


def fit_speeds(measured: Mapping[int, tuple[float, int]], most: int) -> dict[int, float] | None:
    """
    Speed by number of replicas, from (seconds, samples) by size; None if no table comes near them.

    The concave function through 0 that never falls and has the least sum of squares of relative errors in
    speed, weighted by samples:

        f(k) = Σ_s a_s · min(k, s),  a ≥ 0

    is any such function with corners at the measured sizes s, so the fit is non-negative least squares
    (Lawson and Hanson, Solving Least Squares Problems, 1974). Speeds are those of `most` replicas at most;
    beyond the largest measured size speed grows at the last rate, so that plans try untested sizes. A replica
    of the smallest size has speed 1.
    """
    import numpy as np  # noqa: PLC0415 - most snapshots teach nothing, and are read faster without it

    sizes = np.array(sorted(measured), dtype=float)
    seconds, samples = np.array([measured[int(size)] for size in sizes], dtype=float).T
    # Relative errors: each row is divided by the measured speed, 1 / seconds.
    rows = np.minimum.outer(sizes, sizes) * seconds[:, None]
    weights = np.sqrt(samples)
    corners = _non_negative_least_squares(rows * weights[:, None], weights)
    if np.max(np.abs(rows @ corners - 1)) > _MISFIT:
        return None
    ends = np.array(sorted({size for size in measured if size < most} | {most}), dtype=float)
    speeds = np.minimum.outer(ends, sizes) @ corners
    if most > sizes[-1]:
        at = np.minimum.outer(sizes[-2:], sizes) @ corners
        speeds[-1] += (at[1] - at[0]) / (sizes[-1] - sizes[-2]) * (most - sizes[-1])
    unit = float(np.minimum(sizes[0], sizes) @ corners) / sizes[0]
    return {
        int(size): round(float(speed) / unit * MILLI) / MILLI
        for size, speed in zip(ends, speeds, strict=True)
    }


def _non_negative_least_squares(matrix: NDArray[float64], target: NDArray[float64]) -> NDArray[float64]:
    """The x ≥ 0 that minimizes |matrix · x − target|, by the active-set method of Lawson and Hanson."""
    import numpy as np  # noqa: PLC0415 - see above

    count = matrix.shape[1]
    x, free = np.zeros(count), np.zeros(count, dtype=bool)
    for _ in range(10 * count):
        gradient = matrix.T @ (target - matrix @ x)
        gradient[free] = -np.inf
        entering = int(np.argmax(gradient))
        if gradient[entering] <= _TOLERANCE * np.abs(target).sum():
            break
        free[entering] = True
        while True:
            trial = np.zeros(count)
            trial[free] = np.linalg.lstsq(matrix[:, free], target, rcond=None)[0]
            if (trial[free] > 0).all():
                break
            falling = free & (trial <= 0)
            step = np.min(x[falling] / (x[falling] - trial[falling]))
            x += step * (trial - x)
            free &= x > 0
            x[~free] = 0
        x = trial
    return x
