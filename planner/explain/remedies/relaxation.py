"""Lever: one thing that may be changed for a job, by more and more; a longer pull never makes it harder."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

    from gpuplan.planner.explain.answers.remedies import RemedyPart
    from gpuplan.planner.explain.hypothesis import Question


@dataclass(frozen=True)
class Lever:
    """A change in steps, from 1 to `most`."""

    most: int
    pull: Callable[[Question, int], Question]
    """The question with so many steps of the change."""
    part: Callable[[int], RemedyPart]
    """What so many steps are, in words."""


def for_member(lever: Lever, name: str, asked: str) -> Lever:
    """A lever on a member of a question as one on the question about another member."""

    def pull(question: Question, step: int) -> Question:
        return lever.pull(question.seen_by(name), step).seen_by(asked)

    def part(step: int) -> RemedyPart:
        found = lever.part(step)
        return found.model_copy(update={"job": name, "text": f"for {name}: {found.text}"})

    return replace(lever, pull=pull, part=part)


def always(part: RemedyPart) -> Callable[[int], RemedyPart]:
    """The part of a lever of one step."""
    return lambda _: part


def least(most: int, enough: Callable[[int], bool]) -> int | None:
    """
    The fewest steps that are enough, as enough stays enough; None if not even the most are.

    Few are tried first, by doubling: far pulls ask about much of the cluster.
    """
    low, high = 1, 1
    while not enough(high):
        if high == most:
            return None
        low, high = high + 1, min(2 * high, most)
    while low < high:
        middle = (low + high) // 2
        if enough(middle):
            high = middle
        else:
            low = middle + 1
    return low
