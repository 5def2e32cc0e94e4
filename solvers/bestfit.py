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

import math
from typing import TYPE_CHECKING, Final, TypeAlias

import numpy as np

from planner.models.units import MILLI

if TYPE_CHECKING:
    from collections.abc import Iterator

    from numpy.typing import NDArray

    from planner.models.problem import Shape
    from planner.solvers.ledger import Ints, Ledger, Site

Floats: TypeAlias = "NDArray[np.float64]"

_STEPS: Final = 1e9
"""Costs are whole numbers of billionths: what differs by less is a rounding error."""

LAST_RESORT: Final = 10 * _STEPS
"""Added to the cost of a node that should be used only if no other has room."""

_FEW: Final = 8
"""Up to so many nodes are looked at one by one."""


class Stranding:
    """How much of each node's GPUs is stranded; for many nodes at once, and for one in plain numbers."""

    def __init__(self, gpu_free: Ints, free: Ints) -> None:
        self._per_gpu = 1.0 / np.maximum(1, gpu_free.sum(axis=1))
        self._per_amount = 1.0 / np.maximum(1, free)
        # A resource the node lacks from the start strands nothing: nothing that needs it comes here.
        self._lacking = (free <= 0).astype(np.float64)
        self._rows = [
            (per_gpu, tuple(zip(per_amount, lacking, strict=True)))
            for per_gpu, per_amount, lacking in zip(
                self._per_gpu.tolist(), self._per_amount.tolist(), self._lacking.tolist(), strict=True
            )
        ]

    def added(self, shape: Shape, gpus: Ints, free: Ints, nodes: Ints) -> Floats:
        """What one more replica adds on nodes that have so many thousandths of GPUs and such amounts free."""
        before = self._strand(gpus, free, nodes)
        after = self._strand(gpus - shape.quota_milli, free - np.array(shape.amounts), nodes)
        return np.floor((after - before) * _STEPS + 0.5)

    def _strand(self, gpus: Ints, free: Ints, nodes: Ints) -> Floats:
        scarcest = (free * self._per_amount[nodes] + self._lacking[nodes]).min(axis=1)
        lack: Floats = np.maximum(0.0, gpus * self._per_gpu[nodes] - scarcest)
        return lack * lack

    def added_to_one(self, shape: Shape, gpus: int, free: list[int], node: int) -> float:
        """The same for a single node, twenty times as fast as an array of one."""
        per_gpu, per_amount = self._rows[node]
        scarcest = min(
            amount * per + lacking for amount, (per, lacking) in zip(free, per_amount, strict=True)
        )
        before = max(0.0, gpus * per_gpu - scarcest)
        scarcest = min(
            (amount - taken) * per + lacking
            for amount, taken, (per, lacking) in zip(free, shape.amounts, per_amount, strict=True)
        )
        after = max(0.0, (gpus - shape.quota_milli) * per_gpu - scarcest)
        return float(math.floor((after * after - before * before) * _STEPS + 0.5))


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
        if not len(self.nodes):
            return None
        if ledger.version > self._seen:
            stale = np.flatnonzero(ledger.changed_at[self.nodes] > self._seen)
            if len(stale) <= _FEW:
                for position in stale.tolist():
                    self._look_at_one(ledger, position)
            else:
                self._look(ledger, stale)
            self._seen = ledger.version
        least = self.cost.min()
        if least == np.inf:
            return None
        equal = np.flatnonzero(self.cost == least)
        return int(self.nodes[equal[self.tightness[equal].argmin()]])

    def _look(self, ledger: Ledger, positions: Ints) -> None:
        nodes, shape = self.nodes[positions], self.shape
        gpus, free = ledger.gpu_left[nodes], ledger.free[nodes]
        cost = ledger.stranding.added(shape, gpus, free, nodes)
        room = np.all(free >= np.array(shape.amounts), axis=1)
        if shape.gpus:
            room &= ledger.whole[nodes] >= shape.gpus
        elif shape.gpu_milli:
            fitting = ledger.gpu_free[nodes] >= shape.gpu_milli
            room &= fitting.any(axis=1)
            # A fresh GPU is cut only when no GPU already shared has room.
            shared = (fitting & (ledger.gpu_free[nodes] < MILLI)).any(axis=1)
            cost += np.where(shared, 0.0, LAST_RESORT)
        else:
            # CPU-only work takes nodes with GPUs last.
            cost += np.where(ledger.has_gpus[nodes], LAST_RESORT, 0.0)
        self.cost[positions] = np.where(room, cost, np.inf)
        self.tightness[positions] = ledger.whole[nodes] if shape.quota_milli else free[:, 0]

    def _look_at_one(self, ledger: Ledger, position: int) -> None:
        """As `_look`, in plain numbers; a test holds the two together."""
        node, shape = int(self.nodes[position]), self.shape
        free = ledger.free[node].tolist()
        cost = ledger.stranding.added_to_one(shape, int(ledger.gpu_left[node]), free, node)
        room = all(amount >= taken for amount, taken in zip(free, shape.amounts, strict=True))
        if shape.gpus:
            room = room and bool(ledger.whole[node] >= shape.gpus)
        elif shape.gpu_milli:
            fitting = [milli for milli in ledger.gpu_free[node].tolist() if milli >= shape.gpu_milli]
            room = room and bool(fitting)
            if not any(milli < MILLI for milli in fitting):
                cost += LAST_RESORT
        elif ledger.has_gpus[node]:
            cost += LAST_RESORT
        self.cost[position] = cost if room else np.inf
        self.tightness[position] = ledger.whole[node] if shape.quota_milli else free[0]


def best_fit(ledger: Ledger, shape: Shape, groups: tuple[int, ...]) -> Iterator[Site]:
    """Sites for replicas of a shape on node groups, best first, taken one by one as they are asked for."""
    board = ledger.board(shape, groups)
    while (node := board.best(ledger)) is not None:
        yield ledger.take_one(shape, node)
