"""Fit: how many more copies of one job find room beside what runs, disturbing nobody."""

from __future__ import annotations

from pydantic import Field

from gpuplan.models.base import Noun
from gpuplan.models.plan.reason import Reason
from gpuplan.models.units import Count, Name


class Fit(Noun):
    """A number that is proven, or the interval in which it lies."""

    job: Name
    queue: Name
    asks_for: str
    """In words: `2 × 8 GPUs`."""
    fits: Count
    """So many copies were placed, and the verifier found no rule broken."""
    at_most: Count | None
    """No more than so many can be placed; None if nobody counted so far."""
    proof: str = ""
    """By what `at_most` is known: `counting` or the name of a solver."""
    nodes: dict[Name, Count] = Field(default_factory=dict)
    """Where the replicas of the copies were placed."""
    limit: Reason | None = None
    """Why one copy more does not start, beside those."""
    plan_id: str = ""
    seconds: float = 0.0

    @property
    def exact(self) -> bool:
        """True if it is proven that one more does not fit."""
        return self.at_most == self.fits
