"""Shares of GPUs: pack them onto the GPUs of one node, and the undominated ways to cut one GPU into them."""

from __future__ import annotations

from functools import lru_cache
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence


def pack_shares(shares: Sequence[int], free: Sequence[int], max_steps: int) -> tuple[int, ...] | None:
    """
    GPU position of each share, given the free thousandths of each GPU; each share is of one GPU.

    Best fit decreasing comes first (Johnson et al., Worst-case performance bounds for simple one-dimensional
    packing algorithms, SIAM Journal on Computing 3, 1974). If it fails, depth-first search follows in the
    same order; GPUs with equal room left count as one. None if no packing was found
    within `max_steps` steps.
    """
    order = sorted(range(len(shares)), key=lambda index: (-shares[index], index))
    sizes = [shares[index] for index in order]
    search = _PackingSearch(sizes, list(free), max_steps)
    if not search.run(0, sum(sizes)):
        return None
    gpus = [0] * len(shares)
    for index, gpu in zip(order, search.chosen, strict=True):
        gpus[index] = gpu
    return tuple(gpus)


class _PackingSearch:
    """Depth-first search; its first descent is best fit decreasing."""

    def __init__(self, sizes: list[int], free: list[int], max_steps: int) -> None:
        self._sizes, self._free, self._max_steps = sizes, free, max_steps
        self.chosen: list[int] = []
        self.steps = 0

    def run(self, start: int, wanted: int) -> bool:
        """Pack all shares from `start` on, `wanted` thousandths in all; True if that is possible."""
        if start == len(self._sizes):
            return True
        size = self._sizes[start]
        tried: set[int] = set()
        smallest = self._sizes[-1]
        # Room on a GPU counts only if the smallest share fits there.
        if wanted > sum(room for room in self._free if room >= smallest):
            return False
        for room, gpu in sorted((room, gpu) for gpu, room in enumerate(self._free) if room >= size):
            self.steps += 1
            if room in tried or self.steps > self._max_steps:
                continue
            tried.add(room)
            self._free[gpu] -= size
            self.chosen.append(gpu)
            if self.run(start + 1, wanted - size):
                return True
            self.chosen.pop()
            self._free[gpu] += size
        return False


@lru_cache(maxsize=4096)
def cutting_patterns(sizes: tuple[int, ...], room: int, most: int) -> tuple[tuple[int, ...], ...] | None:
    """
    Patterns of a GPU with `room` thousandths free, without dominated ones; None if there are more
    than `most`.

    `sizes` are distinct, the largest first. A pattern gives for each size the number of its shares that are
    at least as large. A smaller share may have the place of a larger one, so shares fit the patterns of some
    GPUs if and only if there are enough places at least as large as each size (Hall's condition for nested
    sets).
    """
    found: list[tuple[int, ...]] = []
    for counts in _maximal(sizes, 0, room):
        found.append(counts)
        if len(found) > most:
            return None
    if not found:
        return ()
    at_least = np.unique(np.cumsum(np.array(found, dtype=np.int64), axis=1), axis=0)
    below = [bool(((at_least >= one).all(axis=1)).sum() > 1) for one in at_least]
    return tuple(tuple(one) for one in at_least[~np.array(below)].tolist())


def _maximal(sizes: tuple[int, ...], start: int, room: int) -> Iterator[tuple[int, ...]]:
    """Numbers of shares from `start` on that leave no room for another of the smallest size."""
    if start == len(sizes) - 1:
        yield (room // sizes[start],)
        return
    for count in range(room // sizes[start], -1, -1):
        for rest in _maximal(sizes, start + 1, room - count * sizes[start]):
            yield (count, *rest)
