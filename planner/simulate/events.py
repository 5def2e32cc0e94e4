"""Events of jobs in a simulation, and totals of GPU time and cost over a span."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from datetime import datetime

    from gpuplan.planner.simulate.simulated_job import IntervalOutcome


class JobEventKind(StrEnum):
    """Kind of an event of a job."""

    SUBMITTED = "submitted"
    STARTED = "started"
    PREEMPTED = "preempted"
    """A plan stopped the job; it is pending again."""
    INTERRUPTED = "interrupted"
    """One of its nodes failed; it is pending again."""
    MOVED = "moved"
    RESIZED = "resized"
    FINISHED = "finished"
    KILLED = "killed"
    """It reached its kill time, and is removed."""


@dataclass(frozen=True, slots=True)
class JobEvent:
    """One event of a job."""

    at: datetime
    kind: JobEventKind
    job: str
    held: IntervalOutcome | None = None
    """The stretch that ends with this event."""


@dataclass(frozen=True, slots=True)
class GpuTimeFlow:
    """Totals over a span: GPU time in thousandths of GPUs times seconds, and cost."""

    held: int = 0
    """GPUs held by jobs."""
    usable: int = 0
    """Healthy GPUs of nodes that are up."""
    cost: float = 0.0
    """Price of the nodes, busy or idle, in the cluster's currency."""

    def __add__(self, other: GpuTimeFlow) -> GpuTimeFlow:
        return GpuTimeFlow(self.held + other.held, self.usable + other.usable, self.cost + other.cost)


NOTHING: Final = GpuTimeFlow()
"""Totals of an empty span."""
