"""Slots: the planning horizon, divided at multiples of the slot length."""

from __future__ import annotations

from bisect import bisect_left
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from datetime import datetime

    from gpuplan.models.policy.settings import HorizonPolicy


@dataclass(frozen=True, slots=True)
class TimeSlots:
    """
    H slots; slot τ begins `edges[τ]` seconds after now and ends at the beginning of the next.

    All except the first begin at multiples of the slot length since 1970-01-01T00:00Z, so that a promised
    start stays the beginning of a slot in every later epoch.
    """

    edges: tuple[int, ...]
    """H + 1 values: the first is 0, the last the end of the horizon."""

    @classmethod
    def of(cls, horizon: HorizonPolicy, now: datetime) -> TimeSlots:
        """The slots from an instant on."""
        gone = int(now.timestamp()) % horizon.length
        first = horizon.length - gone
        return cls((0, *(first + number * horizon.length for number in range(horizon.slots))))

    @property
    def count(self) -> int:
        """H, the number of slots."""
        return len(self.edges) - 1

    @property
    def end(self) -> int:
        """End of the horizon in seconds."""
        return self.edges[-1]

    def after(self, second: int) -> int:
        """The first slot that begins at or after a second; H if there is none."""
        return min(self.count, bisect_left(self.edges, second))

    def until(self, slot: int, seconds: int) -> int:
        """
        The slot before which a job ends if it starts with `slot` and takes `seconds`.

        At least the next slot; H if it lasts to the end of the horizon or longer.
        """
        return min(self.count, max(slot + 1, self.after(self.edges[slot] + seconds)))
