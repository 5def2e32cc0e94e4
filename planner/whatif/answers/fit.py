"""Fit: how many more copies of one job fit beside the running jobs, without a disruption."""

from __future__ import annotations

from pydantic import Field

from gpuplan.models.base import Noun
from gpuplan.models.plan.reason import Reason
from gpuplan.models.units import Count, Name


class Fit(Noun):
    """Number of copies that fit, proven or as an interval."""

    job: Name
    queue: Name
    asks_for: str
    """The request in words: `2 × 8 GPUs`."""
    fits: Count
    """Number of copies placed; the verifier found no rule broken."""
    at_most: Count | None
    """Upper bound on the copies; None if the bound is above the number of copies asked about."""
    proof: str = ""
    """Source of `at_most`: `counting` or the name of a solver."""
    nodes: dict[Name, Count] = Field(default_factory=dict)
    """Number of placed replicas by node."""
    limit: Reason | None = None
    """Why one more copy does not start."""
    plan_id: str = ""
    seconds: float = 0.0

    @property
    def exact(self) -> bool:
        """True if it is proven that one more copy does not fit."""
        return self.at_most == self.fits
