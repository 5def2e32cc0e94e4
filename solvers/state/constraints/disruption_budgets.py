"""What a plan under construction has taken of each disruption limit."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import replace
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from gpuplan.models.problem.problem import DisruptionLimit, Problem


class DisruptionBudgets:
    """Counts the replicas, or jobs, of each group that do not keep their places."""

    def __init__(self, problem: Problem) -> None:
        self._limits = problem.disruption_limits
        self._used = [0] * len(self._limits)
        self._of: dict[int, list[int]] = defaultdict(list)
        """Positions of the limits of each running job that has some."""
        for position, limit in enumerate(self._limits):
            for index in limit.members:
                self._of[index].append(position)
        self._largest = [
            max((limit.taken(len(problem.incumbents[index].holds)) for index in limit.members), default=0)
            for limit in self._limits
        ]

    @property
    def any(self) -> bool:
        """True if there is a limit at all."""
        return bool(self._limits)

    def admits(self, index: int, before: int, after: int) -> bool:
        """True if a running job that has given up some replicas may give up so many in total."""
        if index not in self._of:
            return True
        return all(
            self._used[at] + self._limits[at].taken(after) - self._limits[at].taken(before)
            <= self._limits[at].left
            for at in self._of[index]
        )

    def count(self, index: int, before: int, after: int) -> list[int]:
        """Count what a running job gives up now; returns the jobs that this may have opened or shut out."""
        concerned: list[int] = []
        for at in self._of.get(index, ()):
            limit = self._limits[at]
            free = limit.left - self._used[at]
            self._used[at] += limit.taken(after) - limit.taken(before)
            if min(free, limit.left - self._used[at]) < self._largest[at]:
                concerned += limit.members
        return concerned

    def remaining(self, place: Mapping[int, int], parts: int = 1) -> tuple[DisruptionLimit, ...]:
        """
        The limits of a smaller problem, to which `place` maps running jobs, with what is left for it.

        Of several parts that are solved at the same time each gets an equal share, rounded down.
        """
        found = (
            replace(
                limit,
                left=(limit.left - used) // parts,
                members=tuple(sorted(place[index] for index in limit.members if index in place)),
            )
            for limit, used in zip(self._limits, self._used, strict=True)
        )
        return tuple(limit for limit in found if limit.members)


def nodes_of(problem: Problem, indices: Sequence[int]) -> set[int]:
    """Nodes on which some running jobs have places."""
    incumbents = problem.incumbents
    return {hold.node for index in indices for hold in incumbents[index].holds if hold.node is not None}
