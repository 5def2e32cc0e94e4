"""
Options of a simulated run: times of its epochs, regular or at events; names of solvers and baselines.

The command line reads them, so this imports nothing of what they depend on.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import timedelta
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator
    from datetime import datetime

    from gpuplan.planner.simulate.world import SimulatedWorld

LONGEST_WAIT: Final = 3600
"""Seconds from one epoch at an event to the next at most, unless said otherwise."""


@dataclass(frozen=True, slots=True)
class EpochClock:
    """Times of the epochs."""

    every: int
    """Seconds between epochs; with `at_events` the longest time between two."""
    seconds: int | None = None
    """Seconds from the first epoch to the last; None is until all jobs are over."""
    at_events: bool = False
    """
    True if epochs are at events: jobs are submitted or end, nodes fail, return or become ready.

    Changes in the same second are one event.
    """
    apart: int = 1
    """Shortest time between two epochs at events, in seconds."""
    epochs: int | None = None
    """Largest number of epochs; None is without a limit."""

    @staticmethod
    def regular(every: int, *, seconds: int | None = None, epochs: int | None = None) -> EpochClock:
        """Epochs so many seconds apart: for so long, or so many of them."""
        return EpochClock(every, seconds if epochs is None else (epochs - 1) * every)

    @staticmethod
    def of_events(
        *, least: int, most: int = LONGEST_WAIT, seconds: int | None = None, epochs: int | None = None
    ) -> EpochClock:
        """Epochs where something happens, at least and at most so many seconds apart."""
        return EpochClock(most, seconds, at_events=True, apart=max(1, least), epochs=epochs)

    def next_epoch(self, world: SimulatedWorld) -> datetime:
        """Time of the next epoch after the world's present time."""
        latest = world.now + timedelta(seconds=self.every)
        if not self.at_events:
            return latest
        earliest = world.now + timedelta(seconds=max(1, self.apart))
        return min(latest, max(earliest, min(_events(world), default=latest)))


def _events(world: SimulatedWorld) -> Iterator[datetime]:
    """Times of events without further plans; at least the first event of each kind."""
    for task in world.tasks.values():
        if task.interval is not None:
            yield task.ends_at()
        elif (again := task.job.retry_at) is not None and again > world.now:
            yield again
    for coming in world.coming[:1]:
        yield coming.job.submitted_at
    for outage in world.outages[:1]:
        yield world.began + timedelta(seconds=outage.after)
    for node in world.cluster.nodes:
        if node.ready_at is not None:
            yield node.ready_at


SOLVER_NAMES: Final = ("auto", "milp", "cpsat", "greedy")
"""Solvers that may plan; `auto` is as the policy says."""

ALL_BASELINES: Final = "all-baselines"
"""Stands for each of the baselines."""

BASELINE_NAMES: Final = (
    "fifo",
    "fifo-skip",
    "easy",
    "conservative",
    "sjf",
    "priority-fifo",
    "priority-easy",
    "priority-sjf",
    "srpt",
    "srsf",
    "lrpt",
    "las",
    "least-slack",
    "max-min",
    "drf",
    "first-fit",
    "best-fit",
    "most-allocated",
    "least-allocated",
    "requested-to-capacity-ratio",
)
"""In the order in which docs/simulation.md describes them."""


def known_names(names: Iterable[str]) -> tuple[str, ...]:
    """
    Names of solvers and baselines, each once, `all-baselines` spelled out.

    Raises
    ------
    ValueError
        One of them is neither.
    """
    spelled = [each for name in names for each in (BASELINE_NAMES if name == ALL_BASELINES else (name,))]
    if strange := [name for name in spelled if name not in (*SOLVER_NAMES, *BASELINE_NAMES)]:
        listed = ", ".join((*SOLVER_NAMES, ALL_BASELINES, *BASELINE_NAMES))
        raise ValueError(f"{strange[0]!r} is none of {listed}.")
    return tuple(dict.fromkeys(spelled))
