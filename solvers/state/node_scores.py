"""
Best fit: which of the nodes with room takes the next replica.

If nodes differ in points, the cheapest is taken. Among equally cheap nodes the profile of the class decides:

    pack      least increase of stranded GPUs (`stranded_gpus`) plus a small cost of GPUs that other jobs
              cannot do without (`NodeGroup.scarcity`), then the tightest node
    spread    most free
    balanced  GPUs, CPU and memory left in the most even proportions

MIG instances go where other instances lose least room, whatever the profile.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, TypeAlias

import numpy as np

from gpuplan.models.policy.policy import Profile
from gpuplan.models.units import MILLI
from gpuplan.solvers.state.stranded_gpus import COST_SCALE

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from gpuplan.solvers.state.feasibility import Feasibility
    from gpuplan.solvers.state.placement_profile import PlacementProfile

    Ints: TypeAlias = NDArray[np.int64]
    Bools: TypeAlias = NDArray[np.bool_]
    Floats: TypeAlias = NDArray[np.float64]

LAST_RESORT: Final = 10 * COST_SCALE
"""Added to the cost of a node that should be used only if no other has room."""

_TIGHTEST: Final = 2**24
"""More than the tightness of any node, in GPUs or thousandths of cores."""

NO_ROOM: Final = 2**62
"""Value in `NodeScores.order` of nodes without room."""


class NodeScores:
    """
    The nodes that a tenant may use, with the cost of one more replica on each, kept up to date.

    Placing a replica changes one node; a board looks again only at nodes that changed since its last look.
    """

    def __init__(self, rules: Feasibility, tenant: PlacementProfile, nodes: Ints) -> None:
        self.tenant = tenant
        self.nodes = nodes
        self.order: Ints = np.zeros(len(nodes), dtype=np.int64)
        """The node with the least is taken first: by cost, then tightness; `NO_ROOM` without room."""
        self.price: Ints | None = None
        """Points lost on each node with room; None if no node has a price."""
        if rules.is_priced(tenant):
            self.price = np.zeros(len(nodes), dtype=np.int64)
        self._at: NDArray[np.int32] | None = None
        """Position of each node; computed once something has changed."""
        self._plain = rules.is_unpriced_packing(tenant) and rules.unused_opened(nodes) is None
        self._seen = len(rules.capacity.changes)
        self._look_again(rules, range(len(nodes)))

    def best(self, rules: Feasibility) -> int | None:
        """The best node; None if none has room."""
        if not len(self.nodes):
            return None
        self._refresh(rules)
        order = self.order
        if self.price is not None:
            room = order < NO_ROOM
            if not room.any():
                return None
            order = np.where(self.price == self.price[room].min(), order, NO_ROOM)
        best = int(order.argmin())
        return int(self.nodes[best]) if order[best] < NO_ROOM else None

    def close(self, shut: Bools) -> None:
        """Take nodes off the board, which serves one job only."""
        self.nodes, self.order, self._at = self.nodes[~shut], self.order[~shut], None
        if self.price is not None:
            self.price = self.price[~shut]

    def _refresh(self, rules: Feasibility) -> None:
        changes = rules.capacity.changes
        if len(changes) == self._seen:
            return
        if self._at is None:
            self._at = np.full(len(rules.problem.nodes), -1, dtype=np.int32)
            self._at[self.nodes] = np.arange(len(self.nodes), dtype=np.int32)
        if len(changes) == self._seen + 1:
            stale = [at] if (at := int(self._at[changes[-1]])) >= 0 else []
        elif len(changed := set(changes[self._seen :])) <= rules.params.ledger.few_changed_nodes:
            stale = [at for node in changed if (at := int(self._at[node])) >= 0]
        else:
            found = self._at[list(changed)]
            stale = found[found >= 0].tolist()
        self._look_again(rules, stale)
        self._seen = len(changes)

    def _look_again(self, rules: Feasibility, positions: Sequence[int]) -> None:
        """Few nodes are looked at one by one, which is faster than arrays of one."""
        if self._plain and len(positions) <= rules.params.ledger.few_changed_nodes:
            for position in positions:
                self._look_at_one(rules, position)
        elif positions:
            self._look(rules, np.array(positions, dtype=np.int64))

    def _look(self, rules: Feasibility, positions: Ints) -> None:
        shape, capacity = self.tenant.shape, rules.capacity
        self.order[positions] = NO_ROOM
        # Few nodes of a busy cluster have room: the others need no cost.
        positions = positions[self._has_room(rules, self.nodes[positions])]
        if not len(positions):
            return
        nodes = self.nodes[positions]
        cost, tightness = self._preference(rules, nodes, capacity.gpu_left[nodes], capacity.free[nodes])
        room = np.ones(len(nodes), dtype=np.bool_)
        if shape.gpu_milli:
            # An unused GPU is cut only when no GPU already shared has room.
            free = capacity.gpu_free[nodes]
            shared = ((free >= shape.gpu_milli) & (free < MILLI)).any(axis=1)
            cost += np.where(shared, 0.0, LAST_RESORT)
        elif shape.mig:
            outlook = rules.capacity.mig_costs(shape.mig, nodes, room)
            room = outlook.room
            cost = np.where(outlook.switches, LAST_RESORT, 0.0) + outlook.lost
        elif not shape.gpus:
            # Jobs without GPUs use nodes with GPUs last.
            cost += np.where(capacity.has_gpus[nodes], LAST_RESORT, 0.0)
        if (untouched := rules.unused_opened(nodes)) is not None:
            cost += np.where(untouched, 2 * LAST_RESORT, 0.0)
        steps = np.where(room, cost, 0).astype(np.int64)
        self.order[positions] = np.where(room, steps * _TIGHTEST + tightness, NO_ROOM)
        if self.price is not None:
            self.price[positions] = -rules.node_price(self.tenant, nodes)
            if shape.mig:
                self.price[positions] -= outlook.points

    def _has_room(self, rules: Feasibility, nodes: Ints) -> Bools:
        """True for nodes with room for one more replica; for MIG instances only its amounts are looked at."""
        shape, capacity = self.tenant.shape, rules.capacity
        room: Bools = np.ones(len(nodes), dtype=np.bool_)
        if shape.gpus:
            room &= capacity.whole[nodes] >= shape.gpus
        elif shape.gpu_milli:
            room &= (capacity.gpu_free[nodes] >= shape.gpu_milli).any(axis=1)
        for resource, amount in enumerate(shape.amounts):
            if amount:
                room &= capacity.free[nodes, resource] >= amount
        left = np.flatnonzero(room)
        if len(left):
            room[left] = rules.admits(self.tenant, nodes[left])
        return room

    def _preference(self, rules: Feasibility, nodes: Ints, gpus: Ints, free: Ints) -> tuple[Floats, Ints]:
        """(cost, tightness) of nodes by the tenant's profile, whatever room they have."""
        shape, stranding = self.tenant.shape, rules.capacity.stranded_gpus
        tightness = rules.capacity.whole[nodes] if shape.quota_milli else free[:, 0]
        if rules.scorer is not None:
            return np.floor(rules.scorer(shape, gpus, free, nodes) * COST_SCALE + 0.5), np.zeros_like(
                tightness
            )
        match self.tenant.profile:
            case Profile.PACK:
                cost = stranding.added(shape, gpus, free, nodes)
                if shape.quota_milli and rules.scarcity_cost is not None:
                    cost += rules.scarcity_cost[nodes]
                return cost, tightness
            case Profile.SPREAD:
                left = gpus if shape.quota_milli else free[:, 0]
                return -left.astype(np.float64), -tightness
            case Profile.BALANCED:
                return stranding.imbalance(shape, gpus, free, nodes), tightness

    def _look_at_one(self, rules: Feasibility, position: int) -> None:
        """As `_look` for one node in plain numbers; a test compares the two."""
        self.order[position] = self._order_of(rules, int(self.nodes[position]))

    def _order_of(self, rules: Feasibility, node: int) -> int:
        """See `order`; room comes first, since most nodes that changed have none left."""
        shape, capacity = self.tenant.shape, rules.capacity
        free = capacity.free[node].tolist()
        for amount, taken in zip(free, shape.amounts, strict=True):
            if amount < taken:
                return NO_ROOM
        last = False
        if shape.gpus:
            if capacity.whole[node] < shape.gpus:
                return NO_ROOM
        elif shape.gpu_milli:
            fitting = [milli for milli in capacity.gpu_free[node].tolist() if milli >= shape.gpu_milli]
            if not fitting:
                return NO_ROOM
            last = min(fitting) == MILLI
        else:
            last = bool(capacity.has_gpus[node])
        if not self._is_welcome(rules, node):
            return NO_ROOM
        cost = capacity.stranded_gpus.added_to_one(shape, int(capacity.gpu_left[node]), free, node)
        if shape.quota_milli and rules.scarcity_cost is not None:
            cost += float(rules.scarcity_cost[node])
        tightness = int(capacity.whole[node]) if shape.quota_milli else free[0]
        return int(cost + LAST_RESORT if last else cost) * _TIGHTEST + int(tightness)

    def _is_welcome(self, rules: Feasibility, node: int) -> bool:
        """True if the tenant may use a node that has room, beside what is freed and reserved there."""
        tenant, timeline = self.tenant, rules.timeline
        if not rules.capacity.usable[node]:
            return False
        if rules.preemption_ranks.least[tenant.claim, node] > tenant.rank:
            here = np.array([node], dtype=np.int64)
            if not rules.has_room_beside_freed(tenant, here)[0]:
                return False
        if timeline is None or not timeline.reserved[node]:
            return True
        return bool(rules.beside(tenant, np.array([node], dtype=np.int64), 1)[0])
