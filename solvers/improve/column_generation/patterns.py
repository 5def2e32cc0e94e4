"""Patterns: the undominated ways to cut one GPU into shares of given sizes."""

from __future__ import annotations

from functools import lru_cache
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Iterator


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
