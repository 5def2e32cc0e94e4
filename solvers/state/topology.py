"""Locality domains of the nodes, as arrays."""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeAlias

import numpy as np

from gpuplan.models.cluster import Level

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from gpuplan.models.problem.problem import Problem

    Ints: TypeAlias = NDArray[np.int64]


class Topology:
    """The domain of every node at every level in use, and the nodes of every domain."""

    def __init__(self, problem: Problem) -> None:
        self._of: dict[Level, Ints] = {
            level: np.array(domains, dtype=np.int64) for level, domains in problem.domains
        }
        self._of.setdefault(Level.NODE, np.arange(len(problem.nodes), dtype=np.int64))
        self._nodes: dict[Level, list[Ints]] = {}

    def of(self, level: Level) -> Ints:
        """Domain number of each node."""
        return self._of[level]

    def count(self, level: Level) -> int:
        """One more than the largest number of a domain."""
        return int(self._of[level].max(initial=-1)) + 1

    def nodes(self, level: Level, domain: int) -> Ints:
        """Nodes of one domain."""
        if level not in self._nodes:
            order = np.argsort(self._of[level], kind="stable")
            sizes = np.bincount(self._of[level], minlength=self.count(level))
            self._nodes[level] = np.split(order, np.cumsum(sizes)[:-1])
        return self._nodes[level][domain]
