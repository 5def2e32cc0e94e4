"""
Floors: what preemption has freed on nodes, which is for classes that may follow the victims.

The GPUs that a stopped or shrunk incumbent has left take only classes that may follow it (`outranking`). Of
all else on its node, for each set of victims, classes that may follow none of them have what they had if
these were still there, and no class had come or moved away that may follow any of them. A node from which a
job was preempted is not removed.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from functools import partial
from typing import TYPE_CHECKING, TypeAlias

import numpy as np

from gpuplan.models.eligibility.preemption_order import is_bound, may_follow, views
from gpuplan.models.units import MILLI

if TYPE_CHECKING:
    from collections.abc import Iterator

    from numpy.typing import NDArray

    from gpuplan.models.eligibility.preemption_order import Comer, View
    from gpuplan.models.problem.jobs import Incumbent, JobClass, Shape
    from gpuplan.models.problem.problem import Problem
    from gpuplan.solvers.state.assignment import Site
    from gpuplan.solvers.state.constraints.capacity import Capacity
    from gpuplan.solvers.state.placement_profile import Tenant

    Ints: TypeAlias = NDArray[np.int64]
    Gone: TypeAlias = tuple[int, int]
    """Incumbent, position in its `holds`."""


class Floors:
    """For each node who was preempted there, who moved away, and who came."""

    def __init__(self, problem: Problem) -> None:
        self._incumbents = problem.incumbents
        self._classes = problem.classes
        self.least: Ints = np.zeros((problem.claims, len(problem.nodes)), dtype=np.int64)
        """The rank from which on a class may take all that is free, by its claim and node."""
        self._left: dict[int, Counter[Gone]] = defaultdict(Counter)
        self._moved: dict[int, Counter[Gone]] = defaultdict(Counter)
        self._came: dict[int, Counter[tuple[int, Site]]] = defaultdict(Counter)

    def preempt(self, index: int, position: int, times: int) -> None:
        """Count a replica that an incumbent is made to give up, with -1 one that is back."""
        incumbent = self._incumbents[index]
        if (node := incumbent.holds[position].node) is not None:
            self._left[node][index, position] += times
            gone = self._gone(node)
            for claim in range(len(self.least)):
                ranks = (each.rank for each in gone if claim not in each.claims)
                self.least[claim, node] = max(ranks, default=0)

    def move(self, index: int, position: int, times: int) -> None:
        """Count a replica of an incumbent that leaves to be moved, with -1 one that is back."""
        incumbent = self._incumbents[index]
        node, move = incumbent.holds[position].node, incumbent.move
        if node is not None and move is not None:
            self._moved[node][index, position] += times

    def come(self, index: int, site: Site, times: int) -> None:
        """Count a new replica of a class, with -1 one that is gone."""
        self._came[site.node][index, site] += times

    def was_left(self, node: int) -> bool:
        """True if somebody was preempted from a node."""
        return node in self._left and any(self._left[node].values())

    def _gone(self, node: int) -> list[Incumbent]:
        """Incumbents that were preempted on a node."""
        gone = self._left.get(node, Counter())
        return [self._incumbents[index] for (index, _), count in gone.items() if count]

    def allows(self, node: int, incumbent: Incumbent) -> bool:
        """
        True if an incumbent may be preempted from a node, given who has come there.

        What has come while it was there takes nothing of it, unless it took what others left that moved away.
        """
        if not any(self._moved.get(node, Counter()).values()):
            return True
        came = self._came.get(node, Counter()).items()
        order = incumbent.rank, frozenset(incumbent.claims)
        return all(may_follow(self._classes[index], order) for (index, _), count in came if count)

    def freed(self, node: int) -> set[int]:
        """Indices of GPUs that were given up on a node."""
        gone = self._left.get(node, Counter()).items()
        return {
            gpu
            for (index, position), count in gone
            if count
            for gpu in self._incumbents[index].holds[position].gpus
        }

    def room(self, capacity: Capacity, tenant: Tenant, node: int) -> int:
        """Replicas for which a node has room, were all of that for them; of MIG instances none."""
        (gpus, amounts), shape = self._free(capacity, tenant, node), tenant.shape
        room = [free // amount for free, amount in zip(amounts, shape.amounts, strict=True) if amount]
        if shape.gpus:
            room.append(gpus.count(MILLI) // shape.gpus)
        elif shape.gpu_milli:
            room.append(sum(free // shape.gpu_milli for free in gpus if free > 0))
        elif shape.mig:
            room.append(0)
        return max(0, min(room, default=2**31))

    def shut(self, capacity: Capacity, tenant: Tenant, node: int) -> set[int]:
        """Indices of GPUs of which a replica may not take what it needs."""
        if self.least[tenant.claim, node] <= tenant.rank:
            return set()
        needed = tenant.shape.gpu_milli or MILLI
        return {gpu for gpu, free in enumerate(self._free(capacity, tenant, node)[0]) if free < needed}

    def fits(self, capacity: Capacity, comer: JobClass | Incumbent, site: Site) -> bool:
        """True if this very site is free for a comer, as far as preemption is concerned."""
        if not any(is_bound(view, comer) for view in views(self._gone(site.node))):
            return True
        (gpus, amounts), shape = self._free(capacity, comer, site.node), comer.shape
        needed = shape.gpu_milli or MILLI
        return (
            not site.slices
            and all(gpus[gpu] >= needed for gpu in site.gpus)
            and all(free >= amount for free, amount in zip(amounts, shape.amounts, strict=True) if amount)
        )

    def _free(self, capacity: Capacity, comer: Comer, node: int) -> tuple[list[int], list[int]]:
        """Thousandths by GPU and amounts by resource that are free on a node for a comer."""
        gpus, amounts = capacity.gpu_free[node].tolist(), list(capacity.balance[node])
        for view in views(self._gone(node)):
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

    def _besides(self, node: int, view: View) -> Iterator[tuple[int, Shape, set[int]]]:
        """What would be there less, and more, without what a view leaves out: sign, shape, GPUs."""
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

    def _moves_beside(self, view: View, incumbent: Incumbent) -> bool:
        """True if an incumbent moves as a class that a view does not bind."""
        return incumbent.move is not None and not view.binds(self._classes[incumbent.move])
