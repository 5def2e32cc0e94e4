"""Clock: when epochs are, at regular times or where something happens."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import timedelta
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Iterator
    from datetime import datetime

    from gpuplan.planner.simulate.world import World

LONGEST_WAIT: Final = 3600
"""Seconds from one epoch at an event to the next at most, unless said otherwise."""


@dataclass(frozen=True, slots=True)
class Clock:
    """When epochs are."""

    every: int
    """Seconds from one epoch to the next; at events, from one to the next at most."""
    seconds: int | None = None
    """From the first epoch to the last; None is until every job is over."""
    at_events: bool = False
    """
    Epochs are where something happens: jobs come or end, nodes fail, return or come up.

    What happens in the same second is one event.
    """
    apart: int = 1
    """Seconds from one epoch at an event to the next at least."""
    epochs: int | None = None
    """How many epochs there are at most; None is until the time, or every job, is over."""

    @staticmethod
    def regular(every: int, *, seconds: int | None = None, epochs: int | None = None) -> Clock:
        """Epochs so many seconds apart: for so long, or so many of them."""
        return Clock(every, seconds if epochs is None else (epochs - 1) * every)

    @staticmethod
    def of_events(
        *, least: int, most: int = LONGEST_WAIT, seconds: int | None = None, epochs: int | None = None
    ) -> Clock:
        """Epochs where something happens, at least and at most so many seconds apart."""
        return Clock(most, seconds, at_events=True, apart=max(1, least), epochs=epochs)

    def following(self, world: World) -> datetime:
        """When the next epoch after that of this instant is."""
        latest = world.now + timedelta(seconds=self.every)
        if not self.at_events:
            return latest
        earliest = world.now + timedelta(seconds=max(1, self.apart))
        return min(latest, max(earliest, min(_events(world), default=latest)))


def _events(world: World) -> Iterator[datetime]:
    """When things happen if nothing more is planned, of each kind at least the first that does."""
    for task in world.tasks.values():
        if task.stretch is not None:
            yield task.over_at()
    for coming in world.coming[:1]:
        yield coming.job.submitted_at
    for outage in world.outages[:1]:
        yield world.began + timedelta(seconds=outage.after)
    for node in world.cluster.nodes:
        if node.ready_at is not None:
            yield node.ready_at
