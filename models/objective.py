"""Objective: what a plan is to be good at, as part of the policy."""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated, Final

from pydantic import Field

from planner.models.base import Noun
from planner.models.units import PositiveSeconds

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


class Blend(Noun):
    """A second goal beside the first."""

    goal: Goal
    """Which goal it is."""
    part: Annotated[float, Field(ge=0, le=1)] = 0.5
    """Its part of the points, between 0 and 1; the first goal has the rest."""


class Objective(Noun):
    """What a plan is to be good at. All but the goal `value` is for plans of one slot."""

    goal: Goal = Goal.VALUE
    """The goal, which decides what jobs are worth beside their priority and GPUs."""
    blend: Blend | None = None
    """A second goal beside it; none if absent."""
    doubling: PositiveSeconds = 12 * _SECONDS_PER_HOUR
    """
    Waiting time that counts as much as half of the work, with the goals `completion`,
    `least-attained-service` and `makespan`; up to 16 times as long counts.
    """
    shortest: PositiveSeconds = 60
    """Jobs with less left to do than this are worth no more."""
