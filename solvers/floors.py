"""
Floors: who may follow preempted jobs onto their nodes.

A node that a stopped or shrunk incumbent of rank r has left takes only classes of rank r or above. The other
way round an incumbent may not be preempted from a node that already took a class of smaller rank. A node from
which somebody was preempted is not removed.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from typing import TYPE_CHECKING, TypeAlias

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Ints: TypeAlias = NDArray[np.int64]


class Floors:
    """For each node the ranks of who was preempted there and of who came."""

    def __init__(self, nodes: int) -> None:
        self.least: Ints = np.zeros(nodes, dtype=np.int64)
        """Least rank of a class that each node takes."""
        self._left: dict[int, Counter[int]] = defaultdict(Counter)
        self._came: dict[int, Counter[int]] = defaultdict(Counter)

    def preempt(self, node: int, rank: int, times: int) -> None:
        """Count an incumbent that is preempted from a node, with -1 one that is back."""
        left = self._left[node]
        left[rank] += times
        self.least[node] = max((rank for rank, count in left.items() if count), default=0)

    def come(self, node: int, rank: int, times: int) -> None:
        """Count a new replica on a node, with -1 one that is gone."""
        self._came[node][rank] += times

    def was_left(self, node: int) -> bool:
        """True if somebody was preempted from a node."""
        return node in self._left and any(self._left[node].values())

    def allows(self, node: int, rank: int) -> bool:
        """True if an incumbent of this rank may be preempted from a node, given who has come there."""
        if node not in self._came:
            return True
        return all(came >= rank for came, count in self._came[node].items() if count)
