"""Lever: one thing that may be changed for a job, by more and more; a longer pull never makes it harder."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

    from planner.explaining.question import Question
    from planner.models.explanation_remedies import RemedyPart


@dataclass(frozen=True)
class Lever:
    """A change in steps, from 1 to `most`."""

    most: int
    pull: Callable[[Question, int], Question]
    """The question with so many steps of the change."""
    part: Callable[[int], RemedyPart]
    """What so many steps are, in words."""


def always(part: RemedyPart) -> Callable[[int], RemedyPart]:
    """The part of a lever of one step."""
    return lambda _: part


def least(lever: Lever, enough: Callable[[int], bool]) -> int | None:
    """
    The fewest steps that are enough, as enough stays enough; None if not even all of them are.

    Few are tried first, by doubling: far pulls ask about much of the cluster.
    """
    low, high = 1, 1
    while not enough(high):
        if high == lever.most:
            return None
        low, high = high + 1, min(2 * high, lever.most)
    while low < high:
        middle = (low + high) // 2
        if enough(middle):
            high = middle
        else:
            low = middle + 1
    return low
