"""
Stranded GPUs: free GPUs of nodes on which other resources run out first.

A node *strands* GPUs when its other free resources run out before its free GPUs do:

    strand(n) = max(0, free GPUs / GPUs  −  min_r free_nr / amount_nr)²

relative to the whole node, with what running jobs hold. So jobs heavy on CPU or memory go where these are
plentiful, and light jobs use what heavy ones left. The square spreads stranding thinly, so that later light
jobs can still undo it. Where the jobs of the cluster ask for a larger part of another resource than of the
GPUs, GPUs are plentiful: then that resource must not be stranded either, and the difference counts whatever
its sign. docs/decisions/0002 has the measurements.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Final, TypeAlias

import numpy as np

from gpuplan.models.problem.jobs import ClassRole
from gpuplan.models.units import MILLI

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from gpuplan.models.problem.jobs import Shape
    from gpuplan.models.problem.problem import Problem

    Ints: TypeAlias = NDArray[np.int64]
    Floats: TypeAlias = NDArray[np.float64]

COST_SCALE: Final = 1e9
"""Costs are whole numbers of billionths: smaller differences are rounding errors."""


class StrandedGpus:
    """Stranded GPUs of each node; for many nodes as arrays, and for one node in plain numbers."""

    def __init__(self, gpu_left: Ints, free: Ints, *, both_ways: bool = False) -> None:
        # The least difference that counts.
        self._least = -math.inf if both_ways else 0.0
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

    @classmethod
    def of(cls, problem: Problem, gpu_left: Ints, free: Ints) -> StrandedGpus:
        """Of nodes with these thousandths of GPUs and amounts free (negative where a node is overdrawn)."""
        gpus, amounts = gpu_left.copy(), free.copy()
        for group in problem.groups:
            for index in group.nodes:
                if capacity := problem.nodes[index].capacity:
                    gpus[index], amounts[index] = group.gpus * MILLI, capacity
        for incumbent in problem.incumbents:
            for hold in incumbent.holds:
                if hold.node is not None and not problem.nodes[hold.node].capacity:
                    gpus[hold.node] += incumbent.shape.quota_milli
                    amounts[hold.node] += incumbent.shape.amounts
        amounts = np.maximum(0, amounts)
        return cls(
            gpus, amounts, both_ways=_has_spare_gpus(problem, gpus - gpu_left, gpus, amounts - free, amounts)
        )

    def added(self, shape: Shape, gpus: Ints, free: Ints, nodes: Ints) -> Floats:
        """Stranding that one more replica adds on nodes with such GPUs (in thousandths) and amounts free."""
        before = self._strand(gpus, free, nodes)
        after = self._strand(gpus - shape.quota_milli, free - np.array(shape.amounts), nodes)
        return np.floor((after - before) * COST_SCALE + 0.5)

    def _strand(self, gpus: Ints, free: Ints, nodes: Ints) -> Floats:
        # Resources as contiguous rows, since numpy is slow at the minimum of short rows.
        parts = np.ascontiguousarray((free * self._per_amount[nodes] + self._lacking[nodes]).T)
        scarcest = parts.min(axis=0)
        lack: Floats = np.maximum(self._least, gpus * self._per_gpu[nodes] - scarcest)
        return lack * lack

    def added_to_one(self, shape: Shape, gpus: int, free: list[int], node: int) -> float:
        """The same for a single node, twenty times as fast as an array of one."""
        per_gpu, per_amount = self._rows[node]
        scarcest = scarcest_then = math.inf
        for amount, taken, (per, lacking) in zip(free, shape.amounts, per_amount, strict=True):
            scarcest = min(scarcest, amount * per + lacking)
            scarcest_then = min(scarcest_then, (amount - taken) * per + lacking)
        before = max(self._least, gpus * per_gpu - scarcest)
        after = max(self._least, (gpus - shape.quota_milli) * per_gpu - scarcest_then)
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


def _has_spare_gpus(problem: Problem, gpus_used: Ints, gpus: Ints, used: Ints, amounts: Ints) -> bool:
    """True if jobs ask for a larger part of another resource of the nodes with GPUs than of the GPUs."""
    there = gpus > 0
    asked_gpus, asked = int(gpus_used[there].sum()), used[there].sum(axis=0)
    # Jobs without GPUs come to these nodes only if all others are full.
    overflow = (used - amounts)[~there].sum(axis=0)
    if starts := [each for each in problem.classes if each.role is ClassRole.START]:
        replicas = np.array([len(each.jobs) * each.minimum for each in starts], dtype=np.int64)
        milli = np.array([each.shape.quota_milli for each in starts], dtype=np.int64)
        wanted = replicas[:, None] * np.array([each.shape.amounts for each in starts], dtype=np.int64)
        asked_gpus += int((replicas * milli).sum())
        asked, overflow = asked + wanted[milli > 0].sum(axis=0), overflow + wanted[milli == 0].sum(axis=0)
    total = amounts[there].sum(axis=0)
    parts = (asked + np.maximum(0, overflow))[total > 0] / total[total > 0]
    return bool(parts.max(initial=0.0) > asked_gpus / max(1, int(gpus[there].sum())))
