"""Distribution of a figure over jobs, some of which had not come so far when the simulation ended."""

from __future__ import annotations

from dataclasses import dataclass
from math import fsum
from typing import TYPE_CHECKING

from gpuplan.planner.simulate.outcome import Distribution, Figure

if TYPE_CHECKING:
    from collections.abc import Iterable


@dataclass(frozen=True, slots=True, order=True)
class Observed:
    """What is known of one job."""

    value: float
    censored: bool = False
    """It will be at least this: the simulation ended before it was known."""


def distribution(observed: Iterable[Observed]) -> Distribution | None:
    """
    Mean and percentiles by nearest rank; None of nothing.

    A job that is not over counts with what it has reached. A percentile is exact as long as no such job is
    among those up to it, since then all others stay above; else it is a lower bound.
    """
    ordered = sorted(observed)
    if not ordered:
        return None

    def percentile(percent: int) -> Figure:
        lower = ordered[: -(-percent * len(ordered) // 100)]
        return Figure(value=round(lower[-1].value, 6), at_least=any(each.censored for each in lower))

    mean = fsum(each.value for each in ordered) / len(ordered)
    return Distribution(
        mean=Figure(value=round(mean, 6), at_least=any(each.censored for each in ordered)),
        p50=percentile(50),
        p95=percentile(95),
        p99=percentile(99),
    )
