"""
What preemption has freed, for classes that may take the place of the victims (`preemption_order`).

On nodes, GPUs that a preempted or shrunk job has left accept only classes that may take its place. For all
other resources of the node there is a rule for each set of victims: classes that may replace none of them get
what they would have if the victims were still there, and if no class that may replace any of them had come or
migrated away. A node from which a job was preempted is not removed.

For quotas and the power of racks there is a column for each set of victims: what queues use and racks draw if
all these victims had stayed, and if no class that may take the place of any of them had come or migrated. As
long as one of the victims is out, every other class must also fit there.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from functools import partial
from typing import TYPE_CHECKING, Final, TypeAlias

import numpy as np

from gpuplan.models.eligibility.preemption_order import (
    conservative_victim_views,
    is_bound,
    may_use_freed,
)
from gpuplan.models.plan.reason import ReasonCode
from gpuplan.models.problem.jobs import Incumbent
from gpuplan.models.units import MILLI
from gpuplan.solvers.state.constraints.constraint import Constraint, Shortage

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator, Sequence

    from numpy.typing import NDArray

    from gpuplan.models.eligibility.preemption_order import Claimant, ClaimantOrIncumbent, VictimView
    from gpuplan.models.problem.jobs import JobClass, Shape
    from gpuplan.models.problem.problem import Problem
    from gpuplan.solvers.params.placement import PreemptionParams
    from gpuplan.solvers.state.assignment import ReplicaSite, Span
    from gpuplan.solvers.state.constraints.capacity import NodeCapacities
    from gpuplan.solvers.state.constraints.constraint import Places
    from gpuplan.solvers.state.placement_profile import PlacementProfile

    Ints: TypeAlias = NDArray[np.int64]
    Gone: TypeAlias = tuple[int, int]
    """Incumbent, position in its `holds`."""


_NONE: Final = Counter["Gone"]()


class _FreeForRank:
    """What classes of one rank and claim find free on nodes from which jobs were preempted."""

    def __init__(self, capacity: NodeCapacities) -> None:
        self.gpus: Ints = np.zeros_like(capacity.gpu_free)
        """Free thousandths, shape (nodes, GPUs)."""
        self.amounts: Ints = np.zeros_like(capacity.free)
        """Shape (nodes, resources); negative where victims and others hold more than the node has."""
        self.counted_at: Ints = np.full(len(capacity.nodes), -1, dtype=np.int64)
        """The last change of each node that is counted here, as in `NodeCapacities.changed_at`."""


class PreemptionRanks(Constraint):
    """By node, the replicas that were preempted, migrated away, or came; and the sets of victims."""

    def __init__(self, problem: Problem, capacity: NodeCapacities, victims: VictimSets) -> None:
        self._capacity, self._victims = capacity, victims
        self._incumbents = problem.incumbents
        self._classes = problem.classes
        self.least: Ints = np.zeros((problem.claims, len(problem.nodes)), dtype=np.int64)
        """The rank from which a class may take all that is free, by its claim and node."""
        self._left: dict[int, Counter[Gone]] = defaultdict(Counter)
        self._moved: dict[int, Counter[Gone]] = defaultdict(Counter)
        self._came: dict[int, Counter[tuple[int, ReplicaSite]]] = defaultdict(Counter)
        """By node; a class stands for all that take the same in the same order."""
        self._stands_for = _representatives(problem.classes)
        self._free_for: dict[tuple[int, int], _FreeForRank] = {}
        """By rank and claim."""

    def give_up(self, incumbent: int, positions: Collection[int], times: int, moves: bool) -> None:
        """See `Constraint`; a job that migrates has not been preempted from any node."""
        one = self._incumbents[incumbent]
        for position in sorted(positions):
            if (node := one.holds[position].node) is None:
                continue
            if not moves:
                self._left[node][incumbent, position] += times
                gone = self._gone(node)
                for claim in range(len(self.least)):
                    ranks = (each.rank for each in gone if claim not in each.claims)
                    self.least[claim, node] = max(ranks, default=0)
            elif one.move is not None:
                self._moved[node][incumbent, position] += times
            self._capacity.touch(node)
        if not moves:
            self._victims.count(incumbent, times * len(positions))

    def take(self, index: int, site: ReplicaSite, span: Span, times: int) -> None:
        """See `Constraint`."""
        if span[0] == 0:
            # Sites taken for one class may be settled, and given back, by another that takes the same.
            self._came[site.node][self._stands_for[index], site] += times

    def had_preemption(self, node: int) -> bool:
        """True if a job was preempted from a node."""
        return node in self._left and any(self._left[node].values())

    def _gone(self, node: int) -> list[Incumbent]:
        """Running jobs that were preempted from a node."""
        gone = self._left.get(node, _NONE)
        return [self._incumbents[index] for (index, _), count in gone.items() if count]

    def may_give_up(self, incumbent: int, positions: Collection[int]) -> bool:
        """See `Constraint`."""
        if not self._moved:
            return True
        one = self._incumbents[incumbent]
        nodes = {node for position in positions if (node := one.holds[position].node) is not None}
        return all(self.allows(node, one) for node in nodes)

    def allows(self, node: int, incumbent: Incumbent) -> bool:
        """
        True if a running job may be preempted from a node, given the new jobs there.

        A job that came while it was there takes nothing of it, unless it took what migrated jobs left.
        """
        if not any(self._moved.get(node, _NONE).values()):
            return True
        came = self._came.get(node, Counter()).items()
        order = incumbent.rank, frozenset(incumbent.claims)
        return all(may_use_freed(self._classes[index], order) for (index, _), count in came if count)

    def freed(self, node: int) -> set[int]:
        """Indices of GPUs that preempted jobs gave up on a node."""
        gone = self._left.get(node, _NONE).items()
        return {
            gpu
            for (index, position), count in gone
            if count
            for gpu in self._incumbents[index].holds[position].gpus
        }

    def room_for(self, tenant: PlacementProfile, nodes: Ints) -> Ints:
        """Replicas that fit on each of the nodes if used for them alone; 0 for MIG instances."""
        shape, free = tenant.shape, self._free_on(tenant, nodes)
        room: Ints = np.full(len(nodes), 0 if shape.mig else 2**31, dtype=np.int64)
        if shape.gpus:
            room = (free.gpus[nodes] == MILLI).sum(axis=1) // shape.gpus
        elif shape.gpu_milli:
            room = (np.maximum(0, free.gpus[nodes]) // shape.gpu_milli).sum(axis=1)
        for resource, amount in enumerate(shape.amounts):
            if amount:
                room = np.minimum(room, free.amounts[nodes, resource] // amount)
        return np.maximum(0, room)

    def shortage(self, places: Places) -> Shortage | None:
        """See `Constraint`: there is room only where jobs were stopped for others of higher rank."""
        tenant, nodes = places.tenant, places.nodes
        freed = np.flatnonzero(self.least[tenant.claim, nodes] > tenant.rank)
        room, before = np.full(len(nodes), places.replicas, dtype=np.int64), places.room
        room[freed] = self.room_for(tenant, nodes[freed])
        if places.limit(room):
            return None
        return Shortage(ReasonCode.NOT_CHOSEN, {"nodes": int(np.count_nonzero(places.room < before))})

    def _free_on(self, taker: Claimant, nodes: Ints) -> _FreeForRank:
        """What is free for a class, counted again on those of the nodes that changed."""
        key, capacity = (taker.rank, taker.claim), self._capacity
        free = self._free_for.get(key)
        if free is None:
            free = self._free_for[key] = _FreeForRank(capacity)
        changed = nodes[free.counted_at[nodes] != capacity.changed_at[nodes]]
        for node in changed.tolist():
            gpus, amounts = self._free(taker, node)
            free.gpus[node], free.amounts[node] = gpus, amounts
        free.counted_at[changed] = capacity.changed_at[changed]
        return free

    def shut(self, tenant: PlacementProfile, node: int) -> set[int]:
        """Indices of GPUs that do not have what a replica needs."""
        if self.least[tenant.claim, node] <= tenant.rank:
            return set()
        needed = tenant.shape.gpu_milli or MILLI
        return {gpu for gpu, free in enumerate(self._free(tenant, node)[0]) if free < needed}

    def fits(self, index: int, site: ReplicaSite, span: Span) -> bool:
        """See `Constraint`."""
        return span[0] > 0 or self._fits(self._classes[index], site)

    def fits_back(self, incumbent: int, site: ReplicaSite) -> bool:
        """See `Constraint`."""
        return self._fits(self._incumbents[incumbent], site)

    def _fits(self, comer: JobClass | Incumbent, site: ReplicaSite) -> bool:
        if not any(is_bound(view, comer) for view in conservative_victim_views(self._gone(site.node))):
            return True
        (gpus, amounts), shape = self._free(comer, site.node), comer.shape
        needed = shape.gpu_milli or MILLI
        return (
            not site.slices
            and all(gpus[gpu] >= needed for gpu in site.gpus)
            and all(free >= amount for free, amount in zip(amounts, shape.amounts, strict=True) if amount)
        )

    def _free(self, comer: ClaimantOrIncumbent, node: int) -> tuple[list[int], list[int]]:
        """Free thousandths by GPU and free amounts by resource on a node, for a class or a returning job."""
        capacity = self._capacity
        gpus, amounts = capacity.gpu_free[node].tolist(), list(capacity.balance[node])
        for view in conservative_victim_views(self._gone(node)):
            if not is_bound(view, comer):
                continue
            there_gpus, there = capacity.gpu_free[node].tolist(), list(capacity.balance[node])
            for sign, shape, held in self._besides(node, view):
                for gpu in held:
                    there_gpus[gpu] += sign * (shape.gpu_milli or MILLI)
                for resource, amount in enumerate(shape.amounts):
                    there[resource] += sign * amount
            gpus, amounts = list(map(min, gpus, there_gpus)), list(map(min, amounts, there))
        return gpus, amounts

    def _besides(self, node: int, view: VictimView) -> Iterator[tuple[int, Shape, set[int]]]:
        """Corrections for what a view leaves out: sign (1 more, -1 less is free), shape, GPUs."""
        for (index, site), count in self._came[node].items():
            if count and not view.binds(self._classes[index]):
                held = {*site.gpus, *(gpu for gpu, _, _ in site.slices)}
                for _ in range(count):
                    yield 1, self._classes[index].shape, held
        for gone, is_left_out in ((self._left, view.keeps), (self._moved, partial(self._moves_beside, view))):
            for (index, position), count in gone.get(node, _NONE).items():
                if count and is_left_out(self._incumbents[index]):
                    hold = self._incumbents[index].holds[position]
                    held = {*hold.gpus, *(gpu for gpu, _ in hold.slices)}
                    yield -1, self._incumbents[index].shape, held

    def _moves_beside(self, view: VictimView, incumbent: Incumbent) -> bool:
        """True if a running job migrates as a class that a view does not bind."""
        return incumbent.move is not None and not view.binds(self._classes[incumbent.move])


def _representatives(classes: Sequence[JobClass]) -> list[int]:
    """By class, the first class with the same shape, rank and claim."""
    first: dict[tuple[Shape, int, int], int] = {}
    return [
        first.setdefault((each.shape, each.rank, each.claim), index) for index, each in enumerate(classes)
    ]


class VictimSets:
    """
    The sets of victims (`conservative_victim_views`), a column each where quotas and power are counted.

    As long as one of its victims is out, a set binds the classes that may replace none of them.
    """

    def __init__(self, problem: Problem, params: PreemptionParams) -> None:
        self._problem = problem
        self._views = conservative_victim_views(
            (each for each in problem.incumbents if any(each.shape.quota)),
            _claims_by_worth(problem),
            params.claim_unions,
        )
        self._victims: Ints = np.zeros(len(self._views), dtype=np.int64)
        """Number of replicas that the victims of each set were made to give up."""
        self._bound: dict[tuple[int, int | tuple[int, ...]], Ints] = {}
        """Columns that bind classes by rank and claim, and returning jobs by rank and claims."""
        self._binding_now: dict[tuple[int, int | tuple[int, ...]], Ints] = {}
        """Those of these columns of which a victim is out."""
        self._kept: dict[tuple[int, tuple[int, ...]], Ints] = {}
        """Columns of which running jobs of a rank, with some claims on them, are victims."""

    def __len__(self) -> int:
        return len(self._views)

    def count(self, index: int, replicas: int) -> None:
        """Count replicas that a running job is made to give up; negative ones are restored."""
        self._victims[self._columns_with(self._problem.incumbents[index])] += replicas
        self._binding_now.clear()

    def follower(self, index: int, *, moves: bool) -> ClaimantOrIncumbent:
        """A running job that leaves: as the class as which it migrates if it `moves`."""
        incumbent = self._problem.incumbents[index]
        return self._problem.classes[incumbent.move] if moves and incumbent.move is not None else incumbent

    def binding(self, comer: ClaimantOrIncumbent) -> Ints:
        """Columns that bind `comer`, a class or a returning job, and of which a victim is out."""
        key = comer.rank, comer.claims if isinstance(comer, Incumbent) else comer.claim
        if (columns := self._binding_now.get(key)) is None:
            columns = self.columns_binding(comer)
            columns = self._binding_now[key] = columns[self._victims[columns] > 0]
        return columns

    def columns_binding(self, comer: ClaimantOrIncumbent) -> Ints:
        """Columns that bind `comer`, whether or not a victim is out."""
        key = comer.rank, comer.claims if isinstance(comer, Incumbent) else comer.claim
        if (columns := self._bound.get(key)) is None:
            bound = [is_bound(view, comer) for view in self._views]
            columns = self._bound[key] = np.flatnonzero(np.array(bound, dtype=bool))
        return columns

    def idle_columns_with(self, incumbent: Incumbent) -> Ints:
        """Columns of which a running job is a victim, and none is out."""
        columns = self._columns_with(incumbent)
        idle: Ints = columns[self._victims[columns] == 0]
        return idle

    def _columns_with(self, incumbent: Incumbent) -> Ints:
        key = incumbent.rank, incumbent.claims
        if (columns := self._kept.get(key)) is None:
            kept = [view.keeps(incumbent) for view in self._views]
            columns = self._kept[key] = np.flatnonzero(np.array(kept, dtype=bool))
        return columns


def _claims_by_worth(problem: Problem) -> list[int]:
    """Claims, the ones first with classes that ask for most GPUs at the price of their guarantees."""
    price = [0] * len(problem.queues)
    for guarantee in problem.guarantees:
        if guarantee.owed > guarantee.own:
            for queue in guarantee.queues:
                price[queue] += guarantee.price
    worth = Counter[int]()
    for each in problem.classes:
        worth[each.claim] += price[each.queue] * each.shape.quota_milli * each.minimum * len(each.jobs)
    return sorted(worth, key=lambda claim: (-worth[claim], claim))
