"""
Schedule of the epochs: at fixed ticks, and with exponential backoff after a failure.

Times are seconds of a monotonic clock and are arguments; this module neither waits nor reads a clock.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import floor
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    import random

FIRST_RETRY: Final = 1 / 8
"""First retry, as a part of the interval; short, since a file that is being rewritten is soon complete."""

FIRST_SECONDS: Final = 60.0
"""Longest time to the first retry."""

LONGEST_RETRY: Final = 4
"""Longest time between two tries, in intervals."""

LONGEST_SECONDS: Final = 900.0
"""Longest time between two tries, in seconds; one interval if that is longer."""

_JITTER: Final = 0.2
"""Random variation of the retry time, as a part of it, so that several planners do not retry in step."""


@dataclass(frozen=True, slots=True)
class Pause:
    """Pause after an epoch."""

    seconds: float
    """Time until the next epoch begins."""
    skipped: int
    """Ticks that passed during the epoch."""


class EpochSchedule:
    """Epochs begin at multiples of an interval after the first; a tick during an epoch is skipped."""

    def __init__(self, every: float, *, began: float, draw: random.Random) -> None:
        self._every = every
        self._began = began
        self._draw = draw
        self._tick = 0
        """The last tick before the current epoch began."""
        self.failures = 0
        """Consecutive failures."""

    def after(self, now: float, *, trouble: bool) -> Pause:
        """The pause after an epoch that ended now."""
        passed = self._tick_at(now)
        skipped = passed - self._tick
        if trouble:
            self.failures += 1
            begins = now + self._retry_seconds()
            self._tick = self._tick_at(begins)
        else:
            self.failures = 0
            self._tick = passed + 1
            begins = self._began + self._tick * self._every
        return Pause(max(0.0, begins - now), skipped)

    def _tick_at(self, now: float) -> int:
        return floor((now - self._began) / self._every)

    def _retry_seconds(self) -> float:
        first = min(FIRST_RETRY * self._every, FIRST_SECONDS)
        longest = min(LONGEST_RETRY * self._every, max(self._every, LONGEST_SECONDS))
        # The exponent is bounded, so that a fault that lasts a year does not overflow.
        seconds: float = min(longest, first * 2 ** min(self.failures - 1, 32))
        return seconds * self._draw.uniform(1 - _JITTER, 1 + _JITTER)
