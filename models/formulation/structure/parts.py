"""Parts: replicas beyond, or short of, what a job has otherwise, that bring or cost the same each."""

from __future__ import annotations

from itertools import groupby
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable


class Part(NamedTuple):
    """Replicas of equal points, which are counted by one column."""

    column: int
    points: int
    """Of each replica."""
    width: int
    """Replicas of one job."""


def parts(points: Iterable[int], jobs: int, new: Callable[[int], int]) -> tuple[Part, ...]:
    """Parts of replicas that bring these points, in order, for so many jobs; `new` makes a column."""
    runs = ((each, sum(1 for _ in run)) for each, run in groupby(points))
    return tuple(Part(new(width * jobs), each, width) for each, width in runs)


def fill(found: Iterable[Part], replicas: int) -> dict[int, int]:
    """Value of each column for one job with so many of these replicas: the first parts in front."""
    values: dict[int, int] = {}
    for part in found:
        values[part.column] = min(part.width, max(0, replicas))
        replicas -= part.width
    return values
