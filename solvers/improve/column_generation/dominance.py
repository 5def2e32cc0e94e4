"""Dominance: which places also fit replicas that take no more."""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeAlias

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from gpuplan.models.problem.jobs import Shape
    from gpuplan.solvers.improve.column_generation.subproblem import PackingItem

    Bools: TypeAlias = NDArray[np.bool_]


def dominance_matrix(shapes: Sequence[Shape], *, alike: bool) -> Bools:
    """
    [a, b] is True if a replica of shape b fits wherever one of shape a does; the diagonal is True.

    A share fits on a whole GPU, or where a larger share was. With `alike` both must leave as many GPUs whole.
    """
    count = len(shapes)
    amounts = np.array([shape.amounts for shape in shapes], dtype=np.int64).reshape(
        count, len(shapes[0].amounts) if count else 0
    )
    gpus = np.array([shape.gpus for shape in shapes], dtype=np.int64)
    shares = np.array([shape.gpu_milli for shape in shapes], dtype=np.int64)
    within = (amounts[:, None, :] >= amounts[None, :, :]).all(axis=2) & (gpus[:, None] >= gpus[None, :])
    within &= (gpus[:, None] > 0) | (shares[:, None] >= shares[None, :])
    if alike:
        within &= (gpus[:, None] == gpus[None, :]) & ((shares[:, None] > 0) == (shares[None, :] > 0))
    found: Bools = within
    return found


def dominance_pairs(items: Sequence[PackingItem], *, alike: bool) -> list[tuple[int, int]]:
    """
    (item, item that may take its places), without pairs that follow from others; larger items first.

    The second item takes no more, may be wherever the first may be, and pays the same there. With `alike`
    both leave as many GPUs whole.
    """
    if not items:
        return []
    count = len(items)
    within = dominance_matrix([item.shape for item in items], alike=alike)
    for giver, taker in zip(*np.nonzero(within), strict=True):
        one, other = items[giver], items[taker]
        within[giver, taker] = (
            giver != taker and one.groups <= other.groups and one.node_points == other.node_points
        )
    # Of two equal items only one direction counts.
    within &= ~(within & within.T & (np.arange(count)[:, None] > np.arange(count)[None, :]))
    through = (within.astype(np.int64) @ within.astype(np.int64)) > 0
    size = within.sum(axis=1)  # an item has more takers than each of its takers
    pairs = zip(*np.nonzero(within & ~through), strict=True)
    return sorted(((int(a), int(b)) for a, b in pairs), key=lambda pair: (-size[pair[0]], pair))
