"""Slots: the time a plan looks ahead, cut where the clock strikes."""

from __future__ import annotations

from bisect import bisect_left
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from datetime import datetime

    from gpuplan.models.policy.horizon import HorizonPolicy


@dataclass(frozen=True, slots=True)
class Slots:
    """
    H slots; slot τ begins `edges[τ]` seconds after now and ends where the next begins.

    All but the first begin at multiples of the slot's length since 1970-01-01T00:00Z, so that a promised
    start stays the beginning of a slot in every later epoch.
    """

    edges: tuple[int, ...]
    """H + 1 of them, the first 0, the last the end of the horizon."""

    @classmethod
    def of(cls, horizon: HorizonPolicy, now: datetime) -> Slots:
        """The slots from an instant on."""
        gone = int(now.timestamp()) % horizon.length
        first = horizon.length - gone
        return cls((0, *(first + number * horizon.length for number in range(horizon.slots))))

    @property
    def count(self) -> int:
        """H."""
        return len(self.edges) - 1

    @property
    def end(self) -> int:
        """End of the horizon in seconds."""
        return self.edges[-1]

    def after(self, second: int) -> int:
        """The first slot that does not begin before a second; H if none does."""
        return min(self.count, bisect_left(self.edges, second))

    def until(self, slot: int, seconds: int) -> int:
        """
        The slot before which somebody is gone who starts with a slot and takes so many seconds.

        At least the next one; H if it is there to the end of the horizon or longer.
        """
        return min(self.count, max(slot + 1, self.after(self.edges[slot] + seconds)))
