"""Happening: one thing that becomes of a job, and what went by in a span of time."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from datetime import datetime

    from gpuplan.planner.simulate.simulated_job import Held


class Kind(StrEnum):
    """What can become of a job."""

    SUBMITTED = "submitted"
    STARTED = "started"
    PREEMPTED = "preempted"
    """A plan stopped it; it waits again."""
    INTERRUPTED = "interrupted"
    """A node of its failed; it waits again."""
    MOVED = "moved"
    RESIZED = "resized"
    FINISHED = "finished"
    KILLED = "killed"
    """It ran longer than its plan allowed, and is gone."""


@dataclass(frozen=True, slots=True)
class Happening:
    """Something that became of a job."""

    at: datetime
    kind: Kind
    job: str
    held: Held | None = None
    """The stretch that is over by this."""


@dataclass(frozen=True, slots=True)
class Flow:
    """What went by in a span of time, in thousandths of GPUs times seconds, and money."""

    held: int = 0
    """GPUs held by jobs."""
    usable: int = 0
    """Healthy GPUs of nodes that are up."""
    cost: float = 0.0
    """Price of the nodes, busy or idle, in the cluster's currency."""

    def __add__(self, other: Flow) -> Flow:
        return Flow(self.held + other.held, self.usable + other.usable, self.cost + other.cost)


NOTHING: Final = Flow()
"""What goes by in no time."""
