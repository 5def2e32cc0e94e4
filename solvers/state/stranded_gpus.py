"""
Stranded GPUs: free GPUs of nodes on which other resources run out first.

A node *strands* GPUs when its other free resources run out before its free GPUs do:

    strand(n) = max(0, free GPUs / GPUs  −  min_r free_nr / amount_nr)²

with the GPUs and amounts that the node has without the running jobs that may leave it. So jobs heavy on CPU
or memory go where these are plentiful, and light jobs use what heavy ones left. The square spreads stranding
thinly, so that later light jobs can still undo it. docs/decisions/0002 has the measurements.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Final, TypeAlias

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from gpuplan.models.problem.jobs import Shape

    Ints: TypeAlias = NDArray[np.int64]
    Floats: TypeAlias = NDArray[np.float64]

COST_SCALE: Final = 1e9
"""Costs are whole numbers of billionths: smaller differences are rounding errors."""


class StrandedGpus:
    """Stranded GPUs of each node; for many nodes as arrays, and for one node in plain numbers."""

    def __init__(self, gpu_left: Ints, free: Ints) -> None:
        self._per_gpu = 1.0 / np.maximum(1, gpu_left)
        self._per_amount = 1.0 / np.maximum(1, free)
        # A resource that the node lacks from the start strands nothing: no job that needs it comes here.
        self._lacking = (free <= 0).astype(np.float64)
        self._rows = [
            (per_gpu, tuple(zip(per_amount, lacking, strict=True)))
            for per_gpu, per_amount, lacking in zip(
                self._per_gpu.tolist(), self._per_amount.tolist(), self._lacking.tolist(), strict=True
            )
        ]

    def added(self, shape: Shape, gpus: Ints, free: Ints, nodes: Ints) -> Floats:
        """Stranding that one more replica adds on nodes with such GPUs (in thousandths) and amounts free."""
        before = self._strand(gpus, free, nodes)
        after = self._strand(gpus - shape.quota_milli, free - np.array(shape.amounts), nodes)
        return np.floor((after - before) * COST_SCALE + 0.5)

    def _strand(self, gpus: Ints, free: Ints, nodes: Ints) -> Floats:
        # Resources as contiguous rows, since numpy is slow at the minimum of short rows.
        parts = np.ascontiguousarray((free * self._per_amount[nodes] + self._lacking[nodes]).T)
        scarcest = parts.min(axis=0)
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
        return float(math.floor((after * after - before * before) * COST_SCALE + 0.5))

    def imbalance(self, shape: Shape, gpus: Ints, free: Ints, nodes: Ints) -> Floats:
        """Difference between the largest and least part left of GPUs, CPU and memory after one replica."""
        left = (free - np.array(shape.amounts))[:, :2] * self._per_amount[nodes][:, :2]
        parts = np.column_stack([(gpus - shape.quota_milli) * self._per_gpu[nodes], left])
        lacks = np.column_stack([self._per_gpu[nodes] >= 1.0, self._lacking[nodes][:, :2] > 0])
        most = np.where(lacks, -np.inf, parts).max(axis=1)
        least = np.where(lacks, np.inf, parts).min(axis=1)
        uneven: Floats = np.floor(np.maximum(0.0, most - least) * COST_SCALE + 0.5)
        return uneven
