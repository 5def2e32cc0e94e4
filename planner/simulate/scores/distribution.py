"""Distribution of a figure over jobs, with censored values of jobs not over at the simulation's end."""

from __future__ import annotations

from dataclasses import dataclass
from math import fsum
from typing import TYPE_CHECKING

from gpuplan.planner.simulate.outcome import Distribution, ScoreValue

if TYPE_CHECKING:
    from collections.abc import Iterable


@dataclass(frozen=True, slots=True, order=True)
class ObservedJob:
    """The figure of one job."""

    value: float
    censored: bool = False
    """True if `value` is a lower bound: the simulation ended before the value was known."""


def distribution(observed: Iterable[ObservedJob]) -> Distribution | None:
    """
    Mean and percentiles by nearest rank; None without jobs.

    A censored job counts with its present value. A percentile is exact if no censored job is at or below it,
    since all other values stay above it. Otherwise it is a lower bound.
    """
    ordered = sorted(observed)
    if not ordered:
        return None

    def percentile(percent: int) -> ScoreValue:
        lower = ordered[: -(-percent * len(ordered) // 100)]
        return ScoreValue(value=round(lower[-1].value, 6), at_least=any(each.censored for each in lower))

    mean = fsum(each.value for each in ordered) / len(ordered)
    return Distribution(
        mean=ScoreValue(value=round(mean, 6), at_least=any(each.censored for each in ordered)),
        p50=percentile(50),
        p95=percentile(95),
        p99=percentile(99),
    )
