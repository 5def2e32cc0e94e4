"""Parts: runs of replicas of equal points, beyond the minimum or given up, of a job that scales."""

from __future__ import annotations

from itertools import groupby
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable


class ValueTier(NamedTuple):
    """Replicas of equal points, counted by one column."""

    column: int
    points: int
    """Points of each replica."""
    width: int
    """Number of replicas of one job."""


def value_tiers(points: Iterable[int], jobs: int, new: Callable[[int], int]) -> tuple[ValueTier, ...]:
    """Split replicas with these points, in order, into parts for `jobs` jobs; `new` makes a column."""
    runs = ((each, sum(1 for _ in run)) for each, run in groupby(points))
    return tuple(ValueTier(new(width * jobs), each, width) for each, width in runs)


def fill_tiers(found: Iterable[ValueTier], replicas: int) -> dict[int, int]:
    """Value of each column for one job with this many replicas: the first parts fill up first."""
    values: dict[int, int] = {}
    for part in found:
        values[part.column] = min(part.width, max(0, replicas))
        replicas -= part.width
    return values
