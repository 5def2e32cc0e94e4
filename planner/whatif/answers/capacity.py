"""Capacity: the cheapest nodes of pools beside which jobs run, disturbing nobody."""

from __future__ import annotations

from pydantic import Field

from gpuplan.models.base import Noun
from gpuplan.models.plan.reason import Reason
from gpuplan.models.units import Count, Name


class PoolNodes(Noun):
    """New nodes of one pool."""

    pool: Name
    nodes: Count
    price_per_hour: float
    """Of each, in the cluster's currency."""
    interruption_cost_per_hour: float = 0.0
    """What interruptions of each are expected to lose, as the policy prices lost GPU-hours; of spot nodes."""
    maximum: Count
    """Nodes that the pool may have."""
    members: Count
    """Nodes that it has."""

    @property
    def beyond(self) -> int:
        """So many more than it may have."""
        return max(0, self.members + self.nodes - self.maximum)


class Unplaced(Noun):
    """A job that no mix of nodes helps, as far as the plan goes."""

    job: Name
    reason: Reason


class Capacity(Noun):
    """The nodes to be added, what they cost, and how sure that is."""

    jobs: tuple[Name, ...]
    """Asked about, by name."""
    runs: tuple[Name, ...]
    """Of them, those that run once the nodes are there."""
    cannot: tuple[Unplaced, ...] = ()
    """The others."""
    cannot_proven: bool = False
    """True if no nodes of the pools make one job more run."""
    pools: tuple[PoolNodes, ...] = ()
    """By name, those that get nodes."""
    hourly_cost: float = 0.0
    """Of the new nodes together, in the cluster's currency."""
    hourly_interruption_cost: float = 0.0
    """What interruptions of them are expected to lose, in the same currency."""
    hourly_cost_at_least: float = 0.0
    """No mix of nodes beside which as many of the jobs run costs less, with what its interruptions lose."""
    proven: bool = False
    """True if no mix costs less, and none that costs the same has fewer nodes."""
    placed: dict[Name, tuple[Name, ...]] = Field(default_factory=dict)
    """Nodes of each job that runs."""
    plan_id: str = ""
    seconds: float = 0.0

    @property
    def gap(self) -> float:
        """What may be saved at most, as a part of the cost."""
        return (self.hourly_cost_in_all - self.hourly_cost_at_least) / max(1e-6, self.hourly_cost_in_all)

    @property
    def hourly_cost_in_all(self) -> float:
        """Of the new nodes and of what their interruptions lose."""
        return round(self.hourly_cost + self.hourly_interruption_cost, 6)
