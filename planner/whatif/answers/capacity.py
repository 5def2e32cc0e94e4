"""Capacity: the cheapest new pool nodes with which given jobs run, without a disruption of running jobs."""

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
    """Price of one node, in the cluster's currency."""
    interruption_cost_per_hour: float = 0.0
    """For spot nodes: expected loss from interruptions of one node, at the policy's price of GPU-hours."""
    maximum: Count
    """Most nodes that the pool may have."""
    members: Count
    """Nodes that the pool has."""

    @property
    def beyond(self) -> int:
        """Number of nodes above the pool's maximum."""
        return max(0, self.members + self.nodes - self.maximum)


class Unplaced(Noun):
    """A job that the plan does not start with any mix of new nodes."""

    job: Name
    reason: Reason


class CapacityPlan(Noun):
    """The nodes to add, their cost, and whether the cost is proven minimal."""

    jobs: tuple[Name, ...]
    """Jobs asked about, sorted by name."""
    runs: tuple[Name, ...]
    """Those of `jobs` that run once the nodes are added."""
    cannot: tuple[Unplaced, ...] = ()
    """Those of `jobs` that do not run."""
    cannot_proven: bool = False
    """True if it is proven that no nodes of the pools make one more job run."""
    pools: tuple[PoolNodes, ...] = ()
    """Pools that get nodes, sorted by name."""
    hourly_cost: float = 0.0
    """Price of all new nodes, in the cluster's currency."""
    hourly_interruption_cost: float = 0.0
    """Expected loss from interruptions of the new nodes, in the same currency."""
    hourly_cost_at_least: float = 0.0
    """Lower bound on the cost, interruptions included, of any mix of nodes with which as many jobs run."""
    proven: bool = False
    """True if it is proven that no mix costs less, and that none of equal cost has fewer nodes."""
    placed: dict[Name, tuple[Name, ...]] = Field(default_factory=dict)
    """Nodes of each job that runs."""
    plan_id: str = ""
    seconds: float = 0.0

    @property
    def gap(self) -> float:
        """The most that another mix could save, as a fraction of the cost."""
        return (self.hourly_cost_in_all - self.hourly_cost_at_least) / max(1e-6, self.hourly_cost_in_all)

    @property
    def hourly_cost_in_all(self) -> float:
        """Cost of the new nodes, with the expected loss from their interruptions."""
        return round(self.hourly_cost + self.hourly_interruption_cost, 6)
