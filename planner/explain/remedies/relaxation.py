"""Lever: one change that may help a job to start, in steps; a further step never makes the start harder."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

    from gpuplan.planner.explain.answers.job import RemedyPart
    from gpuplan.planner.explain.hypothesis import Hypothesis


@dataclass(frozen=True)
class Relaxation:
    """A change in steps, from 1 to `most`."""

    most: int
    apply: Callable[[Hypothesis, int], Hypothesis]
    """Returns the question with this number of steps of the change."""
    part: Callable[[int], RemedyPart]
    """Returns this number of steps in words and as data."""


def relaxation_for_member(lever: Relaxation, name: str, asked: str) -> Relaxation:
    """Convert a lever on one member's question to a lever on the question about another member."""

    def pull(question: Hypothesis, step: int) -> Hypothesis:
        return lever.apply(question.for_member(name), step).for_member(asked)

    def part(step: int) -> RemedyPart:
        found = lever.part(step)
        return found.model_copy(update={"job": name, "text": f"for {name}: {found.text}"})

    return replace(lever, apply=pull, part=part)


def constant_part(part: RemedyPart) -> Callable[[int], RemedyPart]:
    """Return the same part for every step; for levers of one step."""
    return lambda _: part


def fewest_steps(most: int, enough: Callable[[int], bool]) -> int | None:
    """
    Return the fewest steps that suffice, given that `enough` is monotone; None if even `most` does not.

    Doubling tries few steps first, because a question with many steps concerns much of the cluster.
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
