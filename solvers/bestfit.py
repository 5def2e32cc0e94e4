"""
Best fit: which of the nodes with room takes the next replica.

A node *strands* GPUs when its other free resources run out before its free GPUs do:

    strand(n) = max(0, free GPUs / GPUs  −  min_r free_nr / amount_nr)²

with the amounts the node had free at the start. The next replica goes where it adds least to that, so that
jobs heavy on CPU or memory land where these abound and light ones finish off what heavy ones left. The
square makes harm spread thin, where later light jobs can still undo it. Among equals the tightest node wins.
"""

from __future__ import annotations

import heapq
from typing import TYPE_CHECKING, TypeAlias

import numpy as np

from planner.models.units import MILLI

if TYPE_CHECKING:
    from collections.abc import Iterator

    from numpy.typing import NDArray

    from planner.models.problem import Shape
    from planner.solvers.ledger import Ints, Ledger, Site

Floats: TypeAlias = "NDArray[np.float64]"
_Rank: TypeAlias = tuple[bool, float, int, int]
"""Last resort?, added strand, tightness, node: smallest first."""


class Stranding:
    """How much of each node's GPUs is stranded, and how much one more replica would add."""

    def __init__(self, gpu_free: Ints, free: Ints) -> None:
        self._gpus = 1.0 / np.maximum(1, gpu_free.sum(axis=1))
        self._amounts = 1.0 / np.maximum(1, free)
        # A resource the node lacks from the start strands nothing: nothing that needs it comes here.
        self._lacking = (free <= 0).astype(np.float64)

    def _strand(self, gpus: Floats, free: Floats, nodes: Ints) -> Floats:
        scarcest = (free * self._amounts[nodes] + self._lacking[nodes]).min(axis=1)
        lack: Floats = np.maximum(0.0, gpus * self._gpus[nodes] - scarcest)
        return lack * lack

    def added(self, ledger: Ledger, shape: Shape, nodes: Ints) -> Floats:
        """What one replica adds on each of the nodes; negative where it helps."""
        gpus = ledger.gpu_free[nodes].sum(axis=1).astype(np.float64)
        free = ledger.free[nodes].astype(np.float64)
        after = self._strand(gpus - shape.quota_milli, free - np.array(shape.amounts), nodes)
        return after - self._strand(gpus, free, nodes)


def best_fit(ledger: Ledger, shape: Shape, nodes: Ints) -> Iterator[Site]:
    """Sites for replicas of a shape, best first, taken in the ledger one by one as they are asked for."""
    nodes = nodes[ledger.room(shape, nodes) > 0]
    heap = _ranked(ledger, shape, nodes)
    heapq.heapify(heap)
    while heap:
        node = heap[0][3]
        yield ledger.take_one(shape, node)
        here = np.array([node])
        if ledger.room(shape, here)[0] > 0:
            heapq.heapreplace(heap, _ranked(ledger, shape, here)[0])
        else:
            heapq.heappop(heap)


def _ranked(ledger: Ledger, shape: Shape, nodes: Ints) -> list[_Rank]:
    added = ledger.stranding.added(ledger, shape, nodes)
    if shape.gpu_milli:
        # A fresh GPU is cut only when no GPU already shared has room.
        gpus = ledger.gpu_free[nodes]
        last_resort = np.logical_not(((gpus >= shape.gpu_milli) & (gpus < MILLI)).any(axis=1))
        tightness = ledger.whole[nodes]
    elif shape.gpus:
        last_resort = np.zeros(len(nodes), dtype=bool)
        tightness = ledger.whole[nodes]
    else:
        # CPU-only work takes nodes with GPUs last.
        last_resort = ledger.has_gpus[nodes]
        tightness = ledger.free[nodes, 0]
    return list(zip(last_resort.tolist(), added.tolist(), tightness.tolist(), nodes.tolist(), strict=True))
