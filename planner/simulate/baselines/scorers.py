"""
Scorers: the choice among nodes with room for the next replica, by first fit, best fit or Kubernetes' rules.

Kubernetes' rules are the scoring strategies of its NodeResourcesFit plugin, over GPUs, CPU and memory. A
resource that a replica does not request, or that a node lacks, does not count.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, TypeAlias

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from numpy.typing import NDArray

    from gpuplan.models.problem.jobs import Shape
    from gpuplan.solvers.state.constraints.capacity import NodeCapacities
    from gpuplan.solvers.state.node_scoring import Scorer as NodeScorer

    Ints: TypeAlias = NDArray[np.int64]
    Floats: TypeAlias = NDArray[np.float64]

    Scorer: TypeAlias = Callable[[NodeCapacities], NodeScorer]
    """Created once, for the nodes as they are without the jobs that can be taken off."""

_EQUAL: Final = (1, 1, 1)
_GPUS_FIRST: Final = (3, 1, 1)
"""Weights of GPUs, CPU and memory from the bin packing example in Kubernetes' documentation."""


def first_fit(_capacity: NodeCapacities) -> NodeScorer:
    """The first node by name."""
    return lambda _shape, gpus, _free, _nodes: np.zeros(len(gpus))


def best_fit(capacity: NodeCapacities) -> NodeScorer:
    """The node with the fewest free GPUs; for jobs without GPUs, the least free CPU."""
    most = max(1, int(capacity.gpu_left.max(initial=0)))
    most_cpu = max(1, int(capacity.free[:, 0].max(initial=0)))

    def cost(shape: Shape, gpus: Ints, free: Ints, _nodes: Ints) -> Floats:
        left: Floats = gpus / most if shape.quota_milli else free[:, 0] / most_cpu
        return left

    return cost


def most_allocated(capacity: NodeCapacities) -> NodeScorer:
    """MostAllocated: the node with the largest requested part after the placement."""
    used = _requested_part(capacity, _EQUAL)
    return lambda *about: 1.0 - used(*about)


def least_allocated(capacity: NodeCapacities) -> NodeScorer:
    """LeastAllocated: the node with the smallest requested part after the placement."""
    return _requested_part(capacity, _EQUAL)


def requested_to_capacity_ratio(capacity: NodeCapacities) -> NodeScorer:
    """RequestedToCapacityRatio: the shape 0 → 0, 100 → 10, with triple weight for GPUs."""
    used = _requested_part(capacity, _GPUS_FIRST)
    return lambda *about: 1.0 - used(*about)


def _requested_part(capacity: NodeCapacities, weights: Sequence[int]) -> NodeScorer:
    """Weighted mean, over the resources, of the requested part of a node after the placement."""
    gpu_total = capacity.gpu_left.copy()
    totals = capacity.free[:, :2].copy()

    def part(shape: Shape, gpus: Ints, free: Ints, nodes: Ints) -> Floats:
        left = np.column_stack([gpus - shape.quota_milli, free[:, :2] - np.array(shape.amounts[:2])])
        total = np.column_stack([gpu_total[nodes], totals[nodes]])
        asked = np.array([shape.quota_milli, *shape.amounts[:2]]) > 0
        weight = np.where(asked & (total > 0), np.array(weights), 0)
        found: Floats = (weight * (1.0 - left / np.maximum(1, total))).sum(axis=1) / np.maximum(
            1, weight.sum(axis=1)
        )
        return np.clip(found, 0.0, 1.0)

    return part
