"""Objective: what a plan is to be good at, as part of the policy."""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated, Final

from pydantic import Field

from gpuplan.models.base import Noun
from gpuplan.models.units import Name, PositiveSeconds

_SECONDS_PER_HOUR: Final = 3600


class Goal(StrEnum):
    """What jobs are worth more than others of the same priority and GPUs."""

    VALUE = "value"
    """None, but by their weight, their size and how long they have waited (`weights`)."""
    COMPLETION = "completion"
    """Those with little left to do: the mean completion time gets short."""
    LEAST_ATTAINED_SERVICE = "least-attained-service"
    """Those that have had little: for durations of which nothing is known."""
    FAIRNESS = "fairness"
    """Those that are late compared with an equal share of the cluster."""
    MAKESPAN = "makespan"
    """Those with much left to do: all jobs together end soon."""
    GOODPUT = "goodput"
    """As `completion`, but a job counts for the GPUs of its smallest size, larger ones as they are faster."""
    CRITICAL_PATH = "critical-path"
    """
    Those without which all jobs together would end later, then those with little time left: the mean
    completion time is short, and so is the time until all is over.
    """


class Blend(Noun):
    """A second goal beside the first."""

    goal: Goal
    """Which goal it is."""
    part: Annotated[float, Field(ge=0, le=1)] = 0.5
    """Its part of the points, between 0 and 1; the first goal has the rest."""


class QueueObjective(Noun):
    """What a plan is to be good at for the jobs of a queue."""

    goal: Goal = Goal.COMPLETION
    """The goal, which decides what jobs are worth beside their priority and GPUs."""
    blend: Blend | None = None
    """A second goal beside it; none if absent."""

    @property
    def words(self) -> str:
        """`completion`, `fairness and 25.0 % makespan`."""
        return f"{self.goal} and {100 * self.blend.part:.1f} % {self.blend.goal}" if self.blend else self.goal


class Objective(QueueObjective):
    """What a plan is to be good at."""

    queues: dict[Name, QueueObjective] = Field(default_factory=dict)
    """Other goals for the jobs of these queues and of all below them; the nearest queue counts."""
    doubling: PositiveSeconds = 12 * _SECONDS_PER_HOUR
    """
    Waiting time that counts as much as half of the time left, with all goals but `value` and
    `fairness`; up to 13 times as long counts.
    """
    shortest: PositiveSeconds = 60
    """Jobs with less left to do than this are worth no more."""

    @property
    def words_of_queues(self) -> str:
        """`batch: makespan, research: fairness`; empty where no queue has a goal of its own."""
        return ", ".join(f"{queue}: {each.words}" for queue, each in sorted(self.queues.items()))

    @property
    def goals(self) -> frozenset[Goal]:
        """All that are named, those of queues and second ones too."""
        named = (self, *self.queues.values())
        return frozenset(
            goal for each in named for goal in (each.goal, each.blend and each.blend.goal) if goal
        )
