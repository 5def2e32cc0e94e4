"""
When the next epoch begins: at the ticks of a clock, and after trouble sooner, then later and later.

Seconds of a monotonic clock come in as arguments; nothing here waits or looks at a clock.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import floor
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    import random

FIRST_RETRY: Final = 1 / 8
"""Of the interval: what is only being rewritten is there again soon."""

FIRST_SECONDS: Final = 60.0
"""Until the first retry at most."""

LONGEST_RETRY: Final = 4
"""Intervals between two tries at most."""

LONGEST_SECONDS: Final = 900.0
"""Between two tries at most, or one interval where that is longer."""

_JITTER: Final = 0.2
"""Part by which a retry is earlier or later, so that several planners do not try in step."""


@dataclass(frozen=True, slots=True)
class Pause:
    """What follows an epoch."""

    seconds: float
    """Until the next one begins."""
    skipped: int
    """Ticks that passed while it was at work."""


class Pace:
    """Epochs begin at multiples of an interval since the first; none begins while another is at work."""

    def __init__(self, every: float, *, began: float, draw: random.Random) -> None:
        self._every = every
        self._began = began
        self._draw = draw
        self._tick = 0
        """The last one that came before the epoch at work began."""
        self.failures = 0
        """In a row."""

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
        # The exponent is bounded, for a fault that lasts a year.
        seconds: float = min(longest, first * 2 ** min(self.failures - 1, 32))
        return seconds * self._draw.uniform(1 - _JITTER, 1 + _JITTER)
