"""Random draws of the generator from one seed, equal on every machine and Python version."""

from __future__ import annotations

import random
from typing import TYPE_CHECKING, Protocol, TypeVar

if TYPE_CHECKING:
    from collections.abc import Sequence


class _HasShare(Protocol):
    @property
    def share(self) -> int: ...


_T = TypeVar("_T")
_Shared = TypeVar("_Shared", bound=_HasShare)


class Draws:
    """
    A seeded source of draws.

    Uses only `Random.random()`: Python keeps its sequence for a seed equal in all versions.
    """

    def __init__(self, seed: int) -> None:
        self._random = random.Random(seed)  # noqa: S311 - a workload, no secret

    def happens(self, probability: float) -> bool:
        """True with a probability."""
        return self._random.random() < probability

    def below(self, bound: int) -> int:
        """A whole number from 0 up to but not including `bound`."""
        return int(self._random.random() * bound)

    def between(self, least: int, most: int) -> int:
        """A whole number from `least` to `most`, both included."""
        return least + self.below(most - least + 1)

    def by_share(self, entries: Sequence[_Shared]) -> _Shared:
        """One of the entries, with a probability proportional to its share."""
        ticket = self.below(sum(entry.share for entry in entries))
        for entry in entries:
            ticket -= entry.share
            if ticket < 0:
                return entry
        raise AssertionError

    def shuffled(self, entries: Sequence[_T]) -> list[_T]:
        """The entries in random order (Fisher-Yates)."""
        order = list(entries)
        for last in range(len(order) - 1, 0, -1):
            other = self.below(last + 1)
            order[last], order[other] = order[other], order[last]
        return order
