"""Co-start groups: classes with jobs that start in the same slot or not at all; most start alone."""

from __future__ import annotations

from collections import defaultdict
from typing import TYPE_CHECKING, TypeAlias

from gpuplan.solvers.heuristics import future_reservations, placement

if TYPE_CHECKING:
    from collections.abc import Iterator

    from gpuplan.models.problem.problem import Problem
    from gpuplan.solvers.state.ledger import Ledger

CoStartGroup: TypeAlias = tuple[int, ...]
"""Indices of classes; a group of several classes has one job per class."""


def groups_by_class(problem: Problem) -> dict[int, CoStartGroup]:
    """The co-start group of each class that does not start alone."""
    groups: dict[int, list[int]] = defaultdict(list)
    for index, job_class in enumerate(problem.classes):
        if job_class.co_start is not None:
            groups[job_class.co_start].append(index)
    return {index: tuple(members) for members in groups.values() for index in members}


def start_group(ledger: Ledger, party: CoStartGroup) -> bool:
    """Start one job of every class of a group in slot 0; False, and nothing changes, if not all fit."""
    mark = ledger.undo.mark()
    for index in party:
        options = ledger.problem.classes[index].options
        if not any(placement.place(ledger, index, option, jobs=1) for option in options):
            ledger.undo.rollback(mark)
            return False
    return True


def reserve_group(ledger: Ledger, party: CoStartGroup, slot: int) -> list[int] | None:
    """Reserve one job of every class of a group in a slot, on its best option; None if not all fit."""
    mark, numbers = ledger.undo.mark(), list[int]()
    for index in party:
        for position in _best_first(ledger, index, slot):
            if (number := future_reservations.reserve_start(ledger, index, position, slot)) is not None:
                numbers.append(number)
                break
        else:
            ledger.undo.rollback(mark)
            return None
    return numbers


def group_start_points(ledger: Ledger, party: CoStartGroup) -> Iterator[tuple[int, int]]:
    """(points, slot) of a group's starts in later slots, each class on its best option, earliest first."""
    classes = ledger.problem.classes
    for slot in range(max(1, *(classes[index].earliest for index in party), 0), ledger.problem.slots):
        best = []
        for index in party:
            paid = [option.later[slot] for option in classes[index].options]
            best.append(max((points for points in paid if points is not None), default=None))
        if all(points is not None for points in best):
            yield sum(points or 0 for points in best), slot


def _best_first(ledger: Ledger, index: int, slot: int) -> list[int]:
    options = ledger.problem.classes[index].options
    paid = [
        (-points, position)
        for position, option in enumerate(options)
        if (points := option.later[slot]) is not None
    ]
    return [position for _, position in sorted(paid)]
