"""size(…) → Capacity: the cheapest new pool nodes with which jobs run, planned, verified and proven."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from math import ceil
from typing import TYPE_CHECKING, Final

from pydantic import Field

from gpuplan.models.base import Noun
from gpuplan.models.plan.actions import ScaleUp
from gpuplan.models.plan.reason import Reason
from gpuplan.models.units import Count, Name
from gpuplan.models.value.disruption_cost import interruption_points
from gpuplan.models.value.job_value import LARGEST_POINTS
from gpuplan.planner.epoch import plan_epoch
from gpuplan.planner.whatif.no_disruption import without_disruption

if TYPE_CHECKING:
    from collections.abc import Sequence

    from gpuplan.models.cluster import NodePool
    from gpuplan.models.job import Job
    from gpuplan.models.plan.plan import Plan
    from gpuplan.models.policy.policy import Policy
    from gpuplan.models.snapshot import Snapshot
    from gpuplan.solvers.incumbent import Watch

_MOST_POINTS: Final = 4 * 10**7
"""Most points of all nodes together: prices stay exact, and one job can be worth more than all nodes."""

_PARTS: Final = (1, 10, 100, 1000, 10_000)
"""Parts of the currency's unit that prices may be stated in."""

_DECIMALS: Final = 4
"""Decimals of interruption costs: as fine as the finest of `_PARTS`."""


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


def find_cheapest_nodes(
    snapshot: Snapshot,
    policy: Policy,
    jobs: Sequence[Job],
    *,
    seed: int,
    most: int | None = None,
    watch: Watch | None = None,
) -> CapacityPlan:
    """
    Find the cheapest new nodes of the cluster's pools with which these jobs run.

    Jobs that run already count as running. `most` is the number of nodes that each pool may get, whatever its
    maximum; by default the maximum decides. Each job is worth more points than all nodes together, so that no
    node is saved at the cost of a job.
    """
    asked = [job for job in jobs if job.running is None]
    roomy, rooms = _with_room(snapshot, policy, most, sum(job.gang.minimum for job in asked))
    scale = _scale_of(roomy.cluster.pools, rooms)
    world, rules = without_disruption(
        roomy, policy, asked, points=scale.of_a_job, currency=scale.currency, scaling=scale.of_a_node
    )
    plan = plan_epoch(world, rules, seed=seed, created_at=snapshot.taken_at, watch=watch)
    names = sorted(job.name for job in jobs)
    placed = {placement.job: placement for placement in plan.placements if placement.job in names}
    waiting = [each for each in plan.waiting if each.job in names]
    slack = None if plan.solution.bound is None else plan.solution.bound - plan.solution.objective
    added = Counter(action.pool for action in plan.actions if isinstance(action, ScaleUp))
    risks = _interruption_costs(snapshot, policy)
    prices = {pool.name: pool.template.price_per_hour for pool in snapshot.cluster.pools}
    return CapacityPlan(
        jobs=tuple(names),
        runs=tuple(sorted(placed)),
        cannot=tuple(Unplaced(job=each.job, reason=each.reason) for each in waiting),
        cannot_proven=slack is not None and slack < scale.of_a_job - scale.of_all_nodes,
        pools=_pools(snapshot, added, risks),
        hourly_cost=_cost(added, prices),
        hourly_interruption_cost=_cost(added, risks),
        hourly_cost_at_least=0.0 if slack is None else _at_least(plan, slack, scale, rooms),
        proven=slack == 0 and scale.exact and (scale.of_a_node > 0 or not added),
        placed={name: tuple(sorted(placement.nodes)) for name, placement in sorted(placed.items())},
        plan_id=plan.plan_id,
        seconds=round(plan.solution.seconds, 3),
    )


@dataclass(frozen=True, slots=True)
class _WeightScale:
    """Points of jobs and nodes in the objective."""

    currency: int
    """Points of one unit of the cluster's currency."""
    finest: int
    """Points of the smallest difference between the prices of two mixes."""
    of_a_node: int
    """Points of one node besides its price, so that of two mixes at the same price the smaller one wins."""
    of_all_nodes: int
    of_a_job: int
    exact: bool
    """True if all prices are whole points."""


def _scale_of(pools: Sequence[NodePool], rooms: dict[str, int]) -> _WeightScale:
    prices = {pool.name: pool.template.price_per_hour for pool in pools}
    totals = {
        parts: sum(ceil(prices[name] * parts) * room for name, room in rooms.items()) for parts in _PARTS
    }
    # A job that is worth more than all nodes must still be within the allowed range of points.
    bearable = [parts for parts, total in totals.items() if 2 * total < LARGEST_POINTS] or _PARTS[:1]
    telling = [parts for parts in bearable if all(_whole(price * parts) for price in prices.values())]
    parts = telling[0] if telling else bearable[-1]
    count, total = sum(rooms.values()), totals[parts]
    # One more node must weigh less than the smallest difference in price.
    finest = count + 1 if total * (count + 1) < _MOST_POINTS else 1
    of_a_node = 1 if finest > 1 or not total else 0
    of_all_nodes = total * finest + count * of_a_node
    of_a_job = min(LARGEST_POINTS, 2 * of_all_nodes + 1)
    return _WeightScale(parts * finest, finest, of_a_node, of_all_nodes, of_a_job, exact=bool(telling))


def _whole(amount: float) -> bool:
    return abs(amount - round(amount)) < 1e-6


def _with_room(
    snapshot: Snapshot, policy: Policy, most: int | None, replicas: int
) -> tuple[Snapshot, dict[str, int]]:
    """
    Return the snapshot with pools that may get these nodes, and the number by pool; one per replica at most.

    The price of a node includes the expected loss from interruptions.
    """
    risks = _interruption_costs(snapshot, policy)
    members = Counter(node.pool for node in snapshot.cluster.nodes)
    pools, rooms = [], {}
    for pool in snapshot.cluster.pools:
        room = max(0, pool.maximum - members[pool.name]) if most is None else most
        rooms[pool.name] = min(room, replicas)
        maximum = max(pool.minimum, members[pool.name] + rooms[pool.name])
        price = round(pool.template.price_per_hour + risks[pool.name], 6)
        template = pool.template.model_copy(update={"price_per_hour": price})
        pools.append(pool.model_copy(update={"maximum": maximum, "template": template}))
    cluster = snapshot.cluster.model_copy(update={"pools": tuple(pools)})
    return snapshot.model_copy(update={"cluster": cluster}), rooms


def _interruption_costs(snapshot: Snapshot, policy: Policy) -> dict[str, float]:
    """Expected loss per hour from interruptions of one node, by pool, in currency."""
    currency = max(1, policy.prices.currency)
    return {
        pool.name: round(interruption_points(policy, pool) / currency, _DECIMALS)
        for pool in snapshot.cluster.pools
    }


def _cost(added: Counter[str], prices: dict[str, float]) -> float:
    return round(sum(prices[name] * count for name, count in added.items()), 6)


def _at_least(plan: Plan, slack: int, scale: _WeightScale, rooms: dict[str, int]) -> float:
    """Lower bound on the cost of a mix with as many jobs: none can score above the plan's dual bound."""
    added = [action for action in plan.actions if isinstance(action, ScaleUp)]
    own = sum(round(action.after.price_per_hour * scale.currency) for action in added)
    own += scale.of_a_node * len(added)
    count = sum(rooms.values())
    # A part of another mix's points is not price: up to `of_a_node` for each of all nodes.
    least = own - slack - scale.of_a_node * count
    # Exact prices differ in whole steps; otherwise both mixes may be off by half a point per node.
    least = ceil(least / scale.finest) * scale.finest if scale.exact else least - count
    return round(max(0, least) / scale.currency, 6)


def _pools(snapshot: Snapshot, added: Counter[str], risks: dict[str, float]) -> tuple[PoolNodes, ...]:
    members = Counter(node.pool for node in snapshot.cluster.nodes)
    return tuple(
        PoolNodes(
            pool=pool.name,
            nodes=added[pool.name],
            price_per_hour=pool.template.price_per_hour,
            interruption_cost_per_hour=risks[pool.name],
            maximum=pool.maximum,
            members=members[pool.name],
        )
        for pool in sorted(snapshot.cluster.pools, key=lambda pool: pool.name)
        if added[pool.name]
    )
