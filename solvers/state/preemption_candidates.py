"""
Victims: jobs that may be preempted from each node, and lower bounds on the loss of making room.

The nodes on which room for one more replica costs least come first.
"""

from __future__ import annotations

from collections import defaultdict
from typing import TYPE_CHECKING, NamedTuple, TypeAlias

import numpy as np

from gpuplan.models.eligibility.preemption_order import may_use_freed
from gpuplan.solvers.state.disruption_state import DisruptionKind

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from numpy.typing import NDArray

    from gpuplan.models.eligibility.preemption_order import RankAndClaims
    from gpuplan.models.problem.jobs import Incumbent, Shape
    from gpuplan.models.problem.problem import Problem, QueueBudget
    from gpuplan.solvers.state.ledger import Ledger
    from gpuplan.solvers.state.placement_profile import PlacementProfile

    Ints: TypeAlias = NDArray[np.int64]
    Floats: TypeAlias = NDArray[np.float64]
    Bools: TypeAlias = NDArray[np.bool_]


class PreemptionCandidate(NamedTuple):
    """A running job that may leave a node, or one replica of it that may."""

    incumbent: int
    positions: tuple[int, ...]
    """Positions in its `holds`, those on the node."""
    loss: int
    """Points lost, not negative."""
    milli: int
    """Thousandths of GPUs that it frees on the node; 1 if none, since it frees something else."""
    shrinks: bool
    order: RankAndClaims
    """Rank of the running job, and the claims on it."""

    @property
    def density(self) -> float:
        """Loss per thousandth of a GPU that it frees."""
        return self.loss / self.milli


class PreemptionCandidates:
    """The victims of every node, least loss per GPU first, kept up to date with a ledger."""

    def __init__(self, ledger: Ledger, hopes: Mapping[int, int]) -> None:
        """`hopes` are points that preempted jobs may regain by resuming."""
        self._ledger = ledger
        self._on_node: dict[int, list[PreemptionCandidate]] = defaultdict(list)
        self._below: dict[tuple[str, int], list[tuple[float, PreemptionCandidate]]] = {}
        for index, incumbent in enumerate(ledger.problem.incumbents):
            for node, victim in _candidates_of(index, incumbent, hopes.get(index, 0)):
                self._on_node[node].append(victim)
        for victims in self._on_node.values():
            if len(victims) > 1:
                victims.sort(key=lambda victim: (victim.density, not victim.shrinks, victim.incumbent))
        candidates = [victim for _, victims in sorted(self._on_node.items()) for victim in victims]
        self._least = min((victim.order[0] for victim in candidates), default=2**31)
        self._claimed = frozenset[int]().union(*(victim.order[1] for victim in candidates))
        self._node: Ints = np.array(
            [node for node, victims in sorted(self._on_node.items()) for _ in victims], dtype=np.int64
        )
        """Node of every victim; victims are sorted by node and density."""
        self._first: Ints = np.searchsorted(self._node, np.arange(len(ledger.problem.nodes)))
        self._milli: Ints = np.array([victim.milli for victim in candidates], dtype=np.int64)
        self._loss: Ints = np.array([victim.loss for victim in candidates], dtype=np.int64)
        self._orders = sorted({victim.order for victim in candidates}, key=repr)
        number = {order: position for position, order in enumerate(self._orders)}
        self._order: Ints = np.array([number[victim.order] for victim in candidates], dtype=np.int64)
        self._here: Bools = np.ones(len(candidates), dtype=bool)
        """False once a victim has left."""
        self._seen = 0

    @classmethod
    def shared(cls, ledger: Ledger) -> PreemptionCandidates:
        """The victims without hopes, built once for all searches on a ledger: each would find the same."""
        found = ledger.shared.get(cls)
        if not isinstance(found, cls):
            found = ledger.shared[cls] = cls(ledger, {})
        return found

    def has_any_for(self, tenant: PlacementProfile) -> bool:
        """True if a class may replace any victim."""
        return tenant.rank >= self._least or tenant.claim in self._claimed

    def there(self, node: int, tenant: PlacementProfile) -> list[PreemptionCandidate]:
        """Victims on a node that a class may replace, least loss per GPU first."""
        return [
            victim
            for victim in self._on_node.get(node, ())
            if may_use_freed(tenant, victim.order) and self._stays(victim)
        ]

    def wholly_on(self, node: int) -> list[int]:
        """Running jobs that are on a node alone and may be preempted, least loss per GPU first."""
        incumbents = self._ledger.problem.incumbents
        return [
            victim.incumbent
            for victim in self._on_node.get(node, ())
            if not victim.shrinks
            and len(victim.positions) == len(incumbents[victim.incumbent].holds)
            and self._stays(victim)
        ]

    def below(
        self, budget: QueueBudget, queue: int, tenant: PlacementProfile
    ) -> Iterator[tuple[float, PreemptionCandidate]]:
        """(loss for each unit of the budget, victim) that count against a queue's limit, least loss first."""
        key = budget.resource, queue
        if key not in self._below:
            self._below[key] = self._counted(budget, queue)
        for loss, victim in self._below[key]:
            if may_use_freed(tenant, victim.order) and self._stays(victim):
                yield loss, victim

    def _counted(self, budget: QueueBudget, queue: int) -> list[tuple[float, PreemptionCandidate]]:
        found = [
            (victim.loss / amount, victim)
            for victims in self._on_node.values()
            for victim in victims
            if (amount := self.amount(victim, budget.resource))
            and queue in budget.path_to_root(self._ledger.problem.incumbents[victim.incumbent].queue)
        ]
        return sorted(found, key=lambda each: (each[0], each[1].incumbent, each[1].positions))

    def amount(self, victim: PreemptionCandidate, resource: str) -> int:
        """What the running job gives up, on all its nodes, as it counts against the quotas of a resource."""
        one = self._ledger.problem.incumbents[victim.incumbent]
        return one.quota_of(resource) * len(victim.positions if victim.shrinks else one.holds)

    def loss_lower_bounds(self, tenant: PlacementProfile, nodes: Ints) -> Floats:
        """
        Lower bound on the loss of fitting one more replica on each of the nodes; infinite if none fits.

        It is the fractional knapsack over thousandths of GPUs (Dantzig, "Discrete-variable extremum
        problems", Operations Research 5, 1957): the victims of least loss per GPU leave first, the last one
        in part.
        """
        self._refresh()
        missing = self._missing(tenant.shape, nodes)
        if len(nodes) <= self._ledger.params.preemption.few_nodes:
            pairs = zip(nodes.tolist(), missing.tolist(), strict=True)
            return np.array([self._least_loss(node, lack, tenant) for node, lack in pairs])
        if not len(self._node):
            return np.full(len(nodes), np.inf)
        lacking: Ints = np.zeros(len(self._first), dtype=np.int64)
        lacking[nodes] = missing
        open_to: Bools = np.array([may_use_freed(tenant, order) for order in self._orders], dtype=bool)
        milli = np.where(self._here & open_to[self._order], self._milli, 0)
        before = np.cumsum(milli) - milli
        before -= before[self._first[self._node]]
        taken = np.clip(lacking[self._node] - before, 0, milli)
        count = len(lacking)
        losses = np.bincount(self._node, weights=taken * (self._loss / self._milli), minlength=count)
        most = np.bincount(self._node, weights=milli, minlength=count)
        found: Floats = np.where(most >= lacking, losses, np.inf)[nodes]
        return found

    def _least_loss(self, node: int, missing: int, tenant: PlacementProfile) -> float:
        loss = 0.0
        for victim in self.there(node, tenant):
            loss += min(missing, victim.milli) * victim.density
            missing -= victim.milli
            if missing <= 0:
                return loss
        return float(np.inf)

    def smallest_losses(self, tenant: PlacementProfile, nodes: Ints) -> list[float]:
        """Loss of the victim that loses least on each of the nodes."""
        return [
            min((victim.loss for victim in self.there(node, tenant)), default=np.inf)
            for node in nodes.tolist()
        ]

    def _missing(self, shape: Shape, nodes: Ints) -> Ints:
        """Thousandths of GPUs that the nodes lack for one more replica; 1 where they lack something else."""
        capacity, milli = self._ledger.capacity, shape.quota_milli
        if not milli:
            return np.ones(len(nodes), dtype=np.int64)
        left = capacity.gpu_left[nodes]
        if shape.mig:
            return milli - left % milli
        missing: Ints = np.maximum(
            1, milli * (1 + self._ledger.feasibility.free_room(shape, nodes, 2**31)) - left
        )
        return missing

    def _refresh(self) -> None:
        changes = self._ledger.capacity.changes
        for node in set(changes[self._seen :]):
            for position, victim in enumerate(self._on_node.get(node, ()), int(self._first[node])):
                self._here[position] = self._stays(victim)
        self._seen = len(changes)

    def _stays(self, victim: PreemptionCandidate) -> bool:
        disruptions = self._ledger.disruptions
        disruption = disruptions[victim.incumbent]
        if disruption is not None and not (
            disruption.kind is DisruptionKind.SHRINK and disruption.given_up.isdisjoint(victim.positions)
        ):
            return False
        return not disruptions.budgets.any or disruptions.within_budgets(
            victim.incumbent, self._given_up(victim)
        )

    def _given_up(self, victim: PreemptionCandidate) -> int:
        """Replicas that the running job gives up in total if the victim leaves as well."""
        if not victim.shrinks:
            return len(self._ledger.problem.incumbents[victim.incumbent].holds)
        disruption = self._ledger.disruptions[victim.incumbent]
        return len(victim.positions) + (len(disruption.given_up) if disruption is not None else 0)


def resumption_points(problem: Problem) -> dict[int, int]:
    """Points that preempted jobs regain at their best, if they resume in a later slot."""
    return {
        index: problem.classes[incumbent.resume].best_later_points
        for index, incumbent in enumerate(problem.incumbents)
        if incumbent.resume is not None
    }


def _candidates_of(index: int, incumbent: Incumbent, hope: int) -> Iterator[tuple[int, PreemptionCandidate]]:
    """A running job as a victim on each of its nodes, as a whole and replica by replica."""
    on_node: dict[int, list[int]] = {}
    for position, hold in enumerate(incumbent.holds):
        if hold.node is not None:
            on_node.setdefault(hold.node, []).append(position)
    milli, order = incumbent.shape.quota_milli, (incumbent.rank, frozenset(incumbent.claims))
    for node, positions in on_node.items():
        if incumbent.stop_points is not None:
            loss, freed = max(0, -incumbent.stop_points - hope), milli * len(positions)
            yield (
                node,
                PreemptionCandidate(index, tuple(positions), loss, max(1, freed), shrinks=False, order=order),
            )
        if incumbent.shrinkable:
            loss = -incumbent.shrink_points[0] - incumbent.resize_points
            for position in positions:
                yield (
                    node,
                    PreemptionCandidate(index, (position,), loss, max(1, milli), shrinks=True, order=order),
                )


class PreemptionCosts:
    """
    Lower bounds on the loss of fitting one more replica of a tenant on each of some nodes.

    They are kept up to date: only nodes that changed since the last look are examined again.
    """

    def __init__(
        self,
        ledger: Ledger,
        victims: PreemptionCandidates,
        tenant: PlacementProfile,
        nodes: Ints,
        whole: PreemptionCosts | None = None,
    ) -> None:
        """`whole` are the offers of more nodes, which include these; it shares what either learns."""
        self.nodes = nodes
        self._ledger, self._victims, self._tenant, self._whole = ledger, victims, tenant, whole
        self._at: Ints = np.full(len(ledger.problem.nodes), -1, dtype=np.int64)
        self._at[nodes] = np.arange(len(nodes))
        self._seen = len(ledger.capacity.changes)
        self._bounds: Floats = np.zeros(len(nodes))
        self._learnt: Ints = np.zeros(len(nodes), dtype=np.int64)
        """Changes of a node before its bound was learnt do not matter to that bound."""
        if whole is None:
            self._look(np.arange(len(nodes)))
        else:
            self._bounds = whole.lower_bounds()[whole.positions(nodes)]

    def restricted_to(self, nodes: Ints) -> PreemptionCosts:
        """Offers of some of the nodes only."""
        return PreemptionCosts(self._ledger, self._victims, self._tenant, nodes, self)

    def positions(self, nodes: Ints) -> Ints:
        """Positions of the nodes among those of the offers."""
        return self._at[nodes]

    def cheapest_first(self) -> Iterator[tuple[float, int]]:
        """(bound, node), the cheapest first, with the bounds at the start; infinite bounds are left out."""
        self._refresh()
        bounds = self._bounds.copy()
        while len(bounds):
            position = int(bounds.argmin())
            bound = float(bounds[position])
            if bound == np.inf:
                return
            bounds[position] = np.inf
            yield bound, int(self.nodes[position])

    def set_exact_loss(self, node: int, loss: float) -> None:
        """Store the exact loss on a node, until the node changes."""
        self._bounds[self._at[node]] = loss
        self._learnt[self._at[node]] = len(self._ledger.capacity.changes)
        if self._whole is not None:
            self._whole.set_exact_loss(node, loss)

    def lower_bounds(self) -> Floats:
        """Bounds of all nodes."""
        self._refresh()
        return self._bounds

    def _refresh(self) -> None:
        capacity = self._ledger.capacity
        if len(capacity.changes) == self._seen:
            return
        stale = np.flatnonzero(capacity.changed_at[self.nodes] > np.maximum(self._learnt, self._seen))
        if len(stale):
            self._look(stale)
        self._seen = len(capacity.changes)

    def _look(self, positions: Ints) -> None:
        tenant, nodes = self._tenant, self.nodes[positions]
        losses = self._victims.loss_lower_bounds(tenant, nodes)
        possible = self._ledger.feasibility.rank_admits(tenant, nodes)
        if tenant.shape.mig:
            possible &= self._ledger.capacity.supports_mig(nodes)
        self._bounds[positions] = np.where(possible, losses, np.inf)
