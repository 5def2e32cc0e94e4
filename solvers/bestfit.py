"""
Best fit: which of the nodes with room takes the next replica.

A node *strands* GPUs when its other free resources run out before its free GPUs do:

    strand(n) = max(0, free GPUs / GPUs  −  min_r free_nr / amount_nr)²

with the amounts the node had free at the start. The next replica goes where it adds least to that, so that
jobs heavy on CPU or memory land where these abound and light ones finish off what heavy ones left. The
square makes harm spread thin, where later light jobs can still undo it. Among equals the tightest node wins,
then the first. docs/decisions/0002 has what was measured.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, TypeAlias

import numpy as np

from planner.models.units import MILLI

if TYPE_CHECKING:
    from collections.abc import Iterator

    from numpy.typing import NDArray

    from planner.models.problem import Shape
    from planner.solvers.ledger import Ints, Ledger, Site

Floats: TypeAlias = "NDArray[np.float64]"

LAST_RESORT: Final = 10.0
"""Added to the cost of a node that should be used only if no other has room; costs are within ±1."""

_DECIMALS: Final = 9
"""Costs that differ by less are rounding errors."""


class Stranding:
    """How much of each node's GPUs is stranded."""

    def __init__(self, gpu_free: Ints, free: Ints) -> None:
        self._gpus = 1.0 / np.maximum(1, gpu_free.sum(axis=1))
        self._amounts = 1.0 / np.maximum(1, free)
        # A resource the node lacks from the start strands nothing: nothing that needs it comes here.
        self._lacking = (free <= 0).astype(np.float64)

    def of(self, gpus: Ints, free: Ints, nodes: Ints) -> Floats:
        """Stranding of nodes that have so many thousandths of GPUs and such amounts free."""
        scarcest = (free * self._amounts[nodes] + self._lacking[nodes]).min(axis=1)
        lack: Floats = np.maximum(0.0, gpus * self._gpus[nodes] - scarcest)
        return lack * lack


class Board:
    """
    The nodes a shape may use with what one more replica would cost on each, kept up to date.

    Placing a replica changes one node; a board looks again only at nodes that changed since it last looked.
    """

    def __init__(self, ledger: Ledger, shape: Shape, nodes: Ints) -> None:
        self.shape = shape
        self.nodes = nodes
        self.cost: Floats = np.zeros(len(nodes))
        """Infinite where there is no room."""
        self.tightness: Ints = np.zeros(len(nodes), dtype=np.int64)
        self._seen = ledger.version
        self._look(ledger, np.arange(len(nodes)))

    def best(self, ledger: Ledger) -> int | None:
        """The node to take next; None if none has room."""
        stale = np.flatnonzero(ledger.changed_at[self.nodes] > self._seen)
        if len(stale):
            self._look(ledger, stale)
            self._seen = ledger.version
        if not len(self.nodes):
            return None
        least = self.cost.min()
        if least == np.inf:
            return None
        equal = np.flatnonzero(self.cost == least)
        return int(self.nodes[equal[self.tightness[equal].argmin()]])

    def _look(self, ledger: Ledger, positions: Ints) -> None:
        nodes, shape = self.nodes[positions], self.shape
        gpus, free = ledger.gpu_left[nodes], ledger.free[nodes]
        after = ledger.stranding.of(gpus - shape.quota_milli, free - ledger.amounts_of(shape), nodes)
        cost = np.round(after - ledger.stranding.of(gpus, free, nodes), _DECIMALS)
        if shape.gpu_milli:
            # A fresh GPU is cut only when no GPU already shared has room.
            each = ledger.gpu_free[nodes]
            shared = ((each >= shape.gpu_milli) & (each < MILLI)).any(axis=1)
            cost += np.where(shared, 0.0, LAST_RESORT)
        elif not shape.gpus:
            # CPU-only work takes nodes with GPUs last.
            cost += np.where(ledger.has_gpus[nodes], LAST_RESORT, 0.0)
        self.cost[positions] = np.where(ledger.has_room(shape, nodes), cost, np.inf)
        self.tightness[positions] = ledger.whole[nodes] if shape.quota_milli else ledger.free[nodes, 0]


def best_fit(ledger: Ledger, shape: Shape, groups: tuple[int, ...]) -> Iterator[Site]:
    """Sites for replicas of a shape on node groups, best first, taken one by one as they are asked for."""
    board = ledger.board(shape, groups)
    while (node := board.best(ledger)) is not None:
        yield ledger.take_one(shape, node)
