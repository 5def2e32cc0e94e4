"""Disruption limit: how many replicas, or jobs, of a group of running jobs a plan may disrupt."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class DisruptionLimit:
    """What a disruption budget leaves to a plan, over the incumbents that it could bind."""

    name: str
    left: int
    """The most that the plan may disrupt, at least 0."""
    members: tuple[int, ...]
    """Indices into `Problem.incumbents`, sorted."""
    whole_jobs: bool = False
    """True: a disrupted job counts once; False: each of its replicas that leaves its place counts."""

    def taken(self, given_up: int) -> int:
        """What an incumbent counts for that gives up so many replicas, by any way of leaving them."""
        return min(1, given_up) if self.whole_jobs else given_up
