"""Shares of GPUs: pack them onto the GPUs of one node, and the undominated ways to cut one GPU into them."""

from __future__ import annotations

from collections import Counter
from functools import lru_cache
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence


def pack_shares(shares: Sequence[int], free: Sequence[int], max_steps: int) -> tuple[int, ...] | None:
    """
    GPU position of each share, given the free thousandths of each GPU; each share is of one GPU.

    Best fit decreasing comes first (Johnson et al., Worst-case performance bounds for simple one-dimensional
    packing algorithms, SIAM Journal on Computing 3, 1974). If it fails, one GPU after the other is filled, in
    all ways that leave no room for another share, the fullest first (Korf, A new algorithm for optimal bin
    packing, AAAI 2002). None if no packing was found within `max_steps` ways.
    """
    order = sorted(range(len(shares)), key=lambda index: (-shares[index], index))
    chosen = _packing(tuple(shares[index] for index in order), tuple(free), max_steps)
    if chosen is None:
        return None
    gpus = [0] * len(shares)
    for index, gpu in zip(order, chosen, strict=True):
        gpus[index] = gpu
    return tuple(gpus)


@lru_cache(maxsize=4096)
def _packing(sizes: tuple[int, ...], free: tuple[int, ...], max_steps: int) -> tuple[int, ...] | None:
    """GPU of each share, the largest first; hundreds of nodes have the same shares."""
    chosen = _best_fit(sizes, list(free))
    if chosen is None:
        chosen = _BinCompletion(sizes, free, max_steps).packing()
    return None if chosen is None else tuple(chosen)


def _best_fit(sizes: Sequence[int], free: list[int]) -> list[int] | None:
    """GPU of each share, each where the least room is left; None if one does not fit."""
    chosen = []
    for size in sizes:
        fitting = [(room, gpu) for gpu, room in enumerate(free) if room >= size]
        if not fitting:
            return None
        gpu = min(fitting)[1]
        free[gpu] -= size
        chosen.append(gpu)
    return chosen


class _BinCompletion:
    """
    Search GPU by GPU, those with the least room first.

    If any packing exists, one exists in which no share that is left fits on the GPUs filled so far, for it
    can be moved there.
    """

    def __init__(self, sizes: Sequence[int], free: Sequence[int], max_steps: int) -> None:
        self._sizes = sizes
        self._distinct = sorted(set(sizes), reverse=True)
        self._gpus = sorted(range(len(free)), key=lambda gpu: (free[gpu], gpu))
        self._rooms = [free[gpu] for gpu in self._gpus]
        self._steps = max_steps
        self._failed: set[tuple[int, tuple[int, ...]]] = set()
        """GPUs filled, and shares left of each size, for which there is no packing."""

    def packing(self) -> list[int] | None:
        """GPU of each share, largest shares first; None if none was found."""
        counts = Counter(self._sizes)
        fillings = self._fill(0, tuple(counts[size] for size in self._distinct))
        if fillings is None:
            return None
        gpus: dict[int, list[int]] = {size: [] for size in self._distinct}
        for gpu, filling in zip(self._gpus, fillings, strict=False):
            for size, count in zip(self._distinct, filling, strict=True):
                gpus[size] += [gpu] * count
        return [gpu for size in self._distinct for gpu in gpus[size]]

    def _fill(self, position: int, left: tuple[int, ...]) -> list[tuple[int, ...]] | None:
        """Numbers of shares of each size by GPU, from a position on; None if there are none."""
        if not any(left):
            return []
        wanted = sum(size * count for size, count in zip(self._distinct, left, strict=True))
        if wanted > sum(self._rooms[position:]) or (position, left) in self._failed:
            return None
        ways = sorted(_fillings(self._distinct, left, 0, self._rooms[position]), key=lambda found: found[1])
        for way, _ in ways:
            self._steps -= 1
            if self._steps < 0:
                return None
            rest = tuple(count - used for count, used in zip(left, way, strict=True))
            if (found := self._fill(position + 1, rest)) is not None:
                return [way, *found]
        self._failed.add((position, left))
        return None


def _fillings(
    sizes: Sequence[int], left: Sequence[int], start: int, room: int
) -> Iterator[tuple[tuple[int, ...], int]]:
    """
    (numbers of shares of each size from `start` on, room left over) where no further share fits.

    Many large shares come first.
    """
    if start == len(sizes):
        yield (), room
        return
    size = sizes[start]
    for count in range(min(left[start], room // size), -1, -1):
        for others, spare in _fillings(sizes, left, start + 1, room - count * size):
            if count == left[start] or spare < size:
                yield (count, *others), spare


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
