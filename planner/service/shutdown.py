"""
How a periodic run is told to end: the first signal ends it after the step in hand, the second one at once.

A signal only leaves a note. Search, apply and pauses look at it; nothing is torn apart in the middle.
"""

from __future__ import annotations

import os
import select
import signal
from contextlib import contextmanager
from typing import TYPE_CHECKING

from gpuplan.planner.render.plan.search import WRITING

if TYPE_CHECKING:
    from collections.abc import Iterator
    from types import FrameType

    from gpuplan.models.plan.solution import Milestone


class Stop:
    """Whether the run is to end."""

    def __init__(self) -> None:
        self.requested = False
        # A pipe wakes whoever pauses; locks are not for signal handlers.
        self._awake, self._wake = os.pipe()

    def request(self) -> None:
        """End the run after the step in hand."""
        self.requested = True
        os.write(self._wake, b".")

    def pause(self, seconds: float) -> None:
        """Wait so long, or until the run is to end."""
        select.select([self._awake], [], [], seconds)

    def end_search(self, now: Milestone) -> None:
        """As the watch of a search: end it with the best plan so far once the run is to end."""
        if self.requested and now.objective is not None and now.stage != WRITING:
            raise KeyboardInterrupt

    def close(self) -> None:
        """Let go of the pipe."""
        os.close(self._awake)
        os.close(self._wake)


@contextmanager
def stopped_by_signals() -> Iterator[Stop]:
    """A stop that SIGTERM and SIGINT request; a second one of them ends the process as if it were unheard."""
    stop = Stop()

    def heard(number: int, _: FrameType | None) -> None:
        if stop.requested:
            signal.signal(number, signal.SIG_DFL)
            os.kill(os.getpid(), number)
        else:
            stop.request()

    before = {number: signal.signal(number, heard) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield stop
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
        stop.close()
