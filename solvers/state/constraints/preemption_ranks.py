"""
What preemption has freed on nodes, which is for classes that may replace the victims.

GPUs that a preempted or shrunk job has left accept only classes that may take its place (`preemption_order`).
For all other resources of the node there is a rule for each set of victims: classes that may replace none of
them get what they would have if the victims were still there, and if no class that may replace any of them
had come or migrated away. A node from which a job was preempted is not removed.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from functools import partial
from typing import TYPE_CHECKING, TypeAlias

import numpy as np

from gpuplan.models.eligibility.preemption_order import is_bound, may_use_freed, victim_views
from gpuplan.models.units import MILLI

if TYPE_CHECKING:
    from collections.abc import Iterator

    from numpy.typing import NDArray

    from gpuplan.models.eligibility.preemption_order import ClaimantOrIncumbent, VictimView
    from gpuplan.models.problem.jobs import Incumbent, JobClass, Shape
    from gpuplan.models.problem.problem import Problem
    from gpuplan.solvers.state.assignment import ReplicaSite
    from gpuplan.solvers.state.constraints.capacity import NodeCapacities
    from gpuplan.solvers.state.placement_profile import PlacementProfile

    Ints: TypeAlias = NDArray[np.int64]
    Gone: TypeAlias = tuple[int, int]
    """Incumbent, position in its `holds`."""


class PreemptionRanks:
    """By node, the replicas that were preempted, migrated away, or came."""

    def __init__(self, problem: Problem) -> None:
        self._incumbents = problem.incumbents
        self._classes = problem.classes
        self.least: Ints = np.zeros((problem.claims, len(problem.nodes)), dtype=np.int64)
        """The rank from which a class may take all that is free, by its claim and node."""
        self._left: dict[int, Counter[Gone]] = defaultdict(Counter)
        self._moved: dict[int, Counter[Gone]] = defaultdict(Counter)
        self._came: dict[int, Counter[tuple[int, ReplicaSite]]] = defaultdict(Counter)

    def preempt(self, index: int, position: int, times: int) -> None:
        """Count a replica that a running job is made to give up; `times` -1 restores it."""
        incumbent = self._incumbents[index]
        if (node := incumbent.holds[position].node) is not None:
            self._left[node][index, position] += times
            gone = self._gone(node)
            for claim in range(len(self.least)):
                ranks = (each.rank for each in gone if claim not in each.claims)
                self.least[claim, node] = max(ranks, default=0)

    def move(self, index: int, position: int, times: int) -> None:
        """Count a replica of a running job that leaves to migrate; `times` -1 restores it."""
        incumbent = self._incumbents[index]
        node, move = incumbent.holds[position].node, incumbent.move
        if node is not None and move is not None:
            self._moved[node][index, position] += times

    def count_placed(self, index: int, site: ReplicaSite, times: int) -> None:
        """Count a new replica of a class; `times` -1 removes it."""
        self._came[site.node][index, site] += times

    def had_preemption(self, node: int) -> bool:
        """True if a job was preempted from a node."""
        return node in self._left and any(self._left[node].values())

    def _gone(self, node: int) -> list[Incumbent]:
        """Running jobs that were preempted from a node."""
        gone = self._left.get(node, Counter())
        return [self._incumbents[index] for (index, _), count in gone.items() if count]

    def allows(self, node: int, incumbent: Incumbent) -> bool:
        """
        True if a running job may be preempted from a node, given the new jobs there.

        A job that came while it was there takes nothing of it, unless it took what migrated jobs left.
        """
        if not any(self._moved.get(node, Counter()).values()):
            return True
        came = self._came.get(node, Counter()).items()
        order = incumbent.rank, frozenset(incumbent.claims)
        return all(may_use_freed(self._classes[index], order) for (index, _), count in came if count)

    def freed(self, node: int) -> set[int]:
        """Indices of GPUs that preempted jobs gave up on a node."""
        gone = self._left.get(node, Counter()).items()
        return {
            gpu
            for (index, position), count in gone
            if count
            for gpu in self._incumbents[index].holds[position].gpus
        }

    def room(self, capacity: NodeCapacities, tenant: PlacementProfile, node: int) -> int:
        """Replicas that fit on a node if it is used for them alone; 0 for MIG instances."""
        (gpus, amounts), shape = self._free(capacity, tenant, node), tenant.shape
        room = [free // amount for free, amount in zip(amounts, shape.amounts, strict=True) if amount]
        if shape.gpus:
            room.append(gpus.count(MILLI) // shape.gpus)
        elif shape.gpu_milli:
            room.append(sum(free // shape.gpu_milli for free in gpus if free > 0))
        elif shape.mig:
            room.append(0)
        return max(0, min(room, default=2**31))

    def shut(self, capacity: NodeCapacities, tenant: PlacementProfile, node: int) -> set[int]:
        """Indices of GPUs that do not have what a replica needs."""
        if self.least[tenant.claim, node] <= tenant.rank:
            return set()
        needed = tenant.shape.gpu_milli or MILLI
        return {gpu for gpu, free in enumerate(self._free(capacity, tenant, node)[0]) if free < needed}

    def fits(self, capacity: NodeCapacities, comer: JobClass | Incumbent, site: ReplicaSite) -> bool:
        """True if exactly this site is free for a class or a returning job, as far as preemption goes."""
        if not any(is_bound(view, comer) for view in victim_views(self._gone(site.node))):
            return True
        (gpus, amounts), shape = self._free(capacity, comer, site.node), comer.shape
        needed = shape.gpu_milli or MILLI
        return (
            not site.slices
            and all(gpus[gpu] >= needed for gpu in site.gpus)
            and all(free >= amount for free, amount in zip(amounts, shape.amounts, strict=True) if amount)
        )

    def _free(
        self, capacity: NodeCapacities, comer: ClaimantOrIncumbent, node: int
    ) -> tuple[list[int], list[int]]:
        """Free thousandths by GPU and free amounts by resource on a node, for a class or a returning job."""
        gpus, amounts = capacity.gpu_free[node].tolist(), list(capacity.balance[node])
        for view in victim_views(self._gone(node)):
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
            for (index, position), count in gone.get(node, Counter()).items():
                if count and is_left_out(self._incumbents[index]):
                    hold = self._incumbents[index].holds[position]
                    held = {*hold.gpus, *(gpu for gpu, _ in hold.slices)}
                    yield -1, self._incumbents[index].shape, held

    def _moves_beside(self, view: VictimView, incumbent: Incumbent) -> bool:
        """True if a running job migrates as a class that a view does not bind."""
        return incumbent.move is not None and not view.binds(self._classes[incumbent.move])
