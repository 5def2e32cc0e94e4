"""Objective: what a plan is to be good at, as part of the policy."""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated, Final

from pydantic import Field

from planner.models.base import Noun
from planner.models.units import Name, PositiveSeconds

_SECONDS_PER_HOUR: Final = 3600


class Goal(StrEnum):
    """What jobs are worth more than others of the same weight, priority and GPUs."""

    VALUE = "value"
    """None, but by their size and how long they have waited (`weights`)."""
    COMPLETION = "completion"
    """Those with little left to do: the mean completion time gets short."""
    LEAST_ATTAINED_SERVICE = "least-attained-service"
    """Those that have had little: for durations of which nothing is known."""
    FAIRNESS = "fairness"
    """Those that are late compared with an equal share of the cluster."""
    MAKESPAN = "makespan"
    """Those with much left to do: all jobs together end soon."""


class Blend(Noun):
    """A second goal beside the first."""

    goal: Goal
    """The second goal."""
    part: Annotated[float, Field(ge=0, le=1)] = 0.5
    """Its part of the points, between 0 and 1; the first goal has the rest."""


class Objective(Noun):
    """What a plan is to be good at."""

    goal: Goal = Goal.VALUE
    """The goal, which decides what jobs are worth beside their weight, priority and GPUs."""
    blend: Blend | None = None
    """A second goal beside it; none if absent."""
    queues: dict[Name, Goal] = Field(default_factory=dict)
    """Another goal for the jobs of some queues, by the queue's name; queues below do not follow."""
    doubling: PositiveSeconds = 12 * _SECONDS_PER_HOUR
    """
    Time since its submission that doubles what a job is worth, with every goal but `value`, so that none
    waits for ever.
    """
    shortest: PositiveSeconds = 60
    """Jobs with less left to do than this are worth no more."""
    power: Annotated[int, Field(strict=True, ge=1, le=8)] = 3
    """Of the finish-time fairness that jobs are worth with the goal `fairness`: the higher, the more the
    latest job counts."""

    def goal_of(self, queue: str) -> Goal:
        """The first goal for jobs of a queue."""
        return self.queues.get(queue, self.goal)
