"""
Stop requests of a periodic run: the first signal ends it after the current step, the second one at once.

A signal only sets a flag. Search, apply and pauses check it, so that no step is interrupted in the middle.
"""

from __future__ import annotations

import os
import select
import signal
from contextlib import contextmanager
from typing import TYPE_CHECKING

from gpuplan.models.plan.solution import DRAFT_STAGE, Milestone

if TYPE_CHECKING:
    from collections.abc import Iterator
    from types import FrameType


class StopSignal:
    """Stop request of a run."""

    def __init__(self) -> None:
        self.requested = False
        # A pipe ends a pause; signal handlers must not use locks.
        self._awake, self._wake = os.pipe()

    def request(self) -> None:
        """Request that the run ends after the current step."""
        self.requested = True
        os.write(self._wake, b".")

    def pause(self, seconds: float) -> None:
        """Wait for the seconds, or until a stop is requested."""
        select.select([self._awake], [], [], seconds)

    def end_search(self, now: Milestone) -> None:
        """Watch of a search: after a stop request, end the search with the best plan so far."""
        # Without an objective there is no plan to keep. Once it is written nothing catches the interrupt: the
        # plan would be lost.
        if self.requested and now.objective is not None and now.stage != DRAFT_STAGE:
            raise KeyboardInterrupt

    def close(self) -> None:
        """Close the pipe."""
        os.close(self._awake)
        os.close(self._wake)


@contextmanager
def stop_on_signals() -> Iterator[StopSignal]:
    """A stop that SIGTERM and SIGINT request; a second signal ends the process by its default action."""
    stop = StopSignal()

    def heard(number: int, _: FrameType | None) -> None:
        if stop.requested:
            signal.signal(number, signal.SIG_DFL)
            # By the signal and not by an exit: the exit status then tells which one ended it.
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
