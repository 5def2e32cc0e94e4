"""Objective: the goals of a plan, as part of the policy."""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated, Final

from pydantic import Field

from gpuplan.models.base import Noun
from gpuplan.models.units import Name, PositiveSeconds

_SECONDS_PER_HOUR: Final = 3600


class Goal(StrEnum):
    """Rule by which some jobs have more value than others of the same priority and GPUs."""

    VALUE = "value"
    """None: value depends on weight, size and waiting time (`weights`)."""
    COMPLETION = "completion"
    """Jobs with little work left: shortens the mean completion time."""
    LEAST_ATTAINED_SERVICE = "least-attained-service"
    """Jobs with little service so far: for unknown durations."""
    FAIRNESS = "fairness"
    """Jobs that are late compared with an equal share of the cluster."""
    MAKESPAN = "makespan"
    """Jobs with much work left: all jobs together end soon."""
    GOODPUT = "goodput"
    """As `completion`, but a job counts its GPUs at its smallest size, and larger sizes by their speed."""
    CRITICAL_PATH = "critical-path"
    """
    Jobs on which the end of all jobs depends, then jobs with little work left: both the mean completion time
    and the makespan are short.
    """


class Blend(Noun):
    """A second goal in addition to the first."""

    goal: Goal
    """The second goal."""
    part: Annotated[float, Field(ge=0, le=1)] = 0.5
    """Its fraction of the points, between 0 and 1; the first goal has the rest."""


class QueueObjective(Noun):
    """Goals for the jobs of a queue."""

    goal: Goal = Goal.COMPLETION
    """The goal, which determines the value of jobs besides priority and GPUs."""
    blend: Blend | None = None
    """A second goal; absent means none."""

    @property
    def words(self) -> str:
        """The goals in words: `completion`, `fairness and 25.0 % makespan`."""
        return f"{self.goal} and {100 * self.blend.part:.1f} % {self.blend.goal}" if self.blend else self.goal


class Objective(QueueObjective):
    """Goals of a plan."""

    queues: dict[Name, QueueObjective] = Field(default_factory=dict)
    """Other goals for the jobs of these queues and all queues below them; the nearest queue counts."""
    doubling: PositiveSeconds = 12 * _SECONDS_PER_HOUR
    """
    Waiting time that has the same effect as halving the time left, with all goals except `value` and
    `fairness`; up to 13 times this time counts.
    """
    shortest: PositiveSeconds = 60
    """Jobs with less work left than this have no more value."""

    @property
    def queue_labels(self) -> str:
        """Goals of queues in words: `batch: makespan, research: fairness`; empty if no queue has its own."""
        return ", ".join(f"{queue}: {each.words}" for queue, each in sorted(self.queues.items()))

    @property
    def goals(self) -> frozenset[Goal]:
        """All goals that are named, including those of queues and second ones."""
        named = (self, *self.queues.values())
        return frozenset(
            goal for each in named for goal in (each.goal, each.blend and each.blend.goal) if goal
        )
