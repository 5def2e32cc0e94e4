"""
Floors: what preemption has freed on nodes, which is for the victims' rank and above.

The GPUs that a stopped or shrunk incumbent of rank r has left take only classes of rank r or above. Of all
else on its node, classes of smaller rank have what they had if it and all victims of r and above were still
there, and none of r and above had come or moved away. A node from which a job was preempted is not removed.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from typing import TYPE_CHECKING, TypeAlias

import numpy as np

from planner.models.units import MILLI

if TYPE_CHECKING:
    from collections.abc import Iterator

    from numpy.typing import NDArray

    from planner.models.problem import Problem
    from planner.models.problem_jobs import Shape
    from planner.solvers.capacity import Capacity
    from planner.solvers.site import Site

    Ints: TypeAlias = NDArray[np.int64]
    Gone: TypeAlias = tuple[int, int, int]
    """Rank, incumbent, position in its `holds`."""


class Floors:
    """For each node who was preempted there, who moved away, and who came."""

    def __init__(self, problem: Problem) -> None:
        self._incumbents = problem.incumbents
        self._classes = problem.classes
        self.least: Ints = np.zeros(len(problem.nodes), dtype=np.int64)
        """The rank from which on a class may take all that is free on each node."""
        self._left: dict[int, Counter[Gone]] = defaultdict(Counter)
        self._moved: dict[int, Counter[Gone]] = defaultdict(Counter)
        self._came: dict[int, Counter[tuple[int, Site]]] = defaultdict(Counter)

    def preempt(self, index: int, position: int, times: int) -> None:
        """Count a replica that an incumbent is made to give up, with -1 one that is back."""
        incumbent = self._incumbents[index]
        if (node := incumbent.holds[position].node) is not None:
            self._left[node][incumbent.rank, index, position] += times
            self.least[node] = max(
                (rank for (rank, _, _), count in self._left[node].items() if count), default=0
            )

    def move(self, index: int, position: int, times: int) -> None:
        """Count a replica of an incumbent that leaves to be moved, with -1 one that is back."""
        incumbent = self._incumbents[index]
        node, move = incumbent.holds[position].node, incumbent.move
        if node is not None and move is not None:
            self._moved[node][self._classes[move].rank, index, position] += times

    def come(self, index: int, site: Site, times: int) -> None:
        """Count a new replica of a class, with -1 one that is gone."""
        self._came[site.node][index, site] += times

    def was_left(self, node: int) -> bool:
        """True if somebody was preempted from a node."""
        return node in self._left and any(self._left[node].values())

    def allows(self, node: int, rank: int) -> bool:
        """
        True if an incumbent of this rank may be preempted from a node, given who has come there.

        What has come while it was there takes nothing of it, unless it took what others left that moved away.
        """
        if not any(self._moved.get(node, Counter()).values()):
            return True
        came = self._came.get(node, Counter()).items()
        return all(self._classes[index].rank >= rank for (index, _), count in came if count)

    def freed(self, node: int) -> set[int]:
        """Indices of GPUs that were given up on a node."""
        gone = self._left.get(node, Counter()).items()
        return {
            gpu
            for (_, index, position), count in gone
            if count
            for gpu in self._incumbents[index].holds[position].gpus
        }

    def room(self, capacity: Capacity, shape: Shape, rank: int, node: int) -> int:
        """Replicas for which a node has room, were all of that for them; of MIG instances none."""
        gpus, amounts = self._free(capacity, rank, node)
        room = [free // amount for free, amount in zip(amounts, shape.amounts, strict=True) if amount]
        if shape.gpus:
            room.append(gpus.count(MILLI) // shape.gpus)
        elif shape.gpu_milli:
            room.append(sum(free // shape.gpu_milli for free in gpus if free > 0))
        elif shape.mig:
            room.append(0)
        return max(0, min(room, default=2**31))

    def shut(self, capacity: Capacity, shape: Shape, rank: int, node: int) -> set[int]:
        """Indices of GPUs of which a replica may not take what it needs."""
        if self.least[node] <= rank:
            return set()
        needed = shape.gpu_milli or MILLI
        return {gpu for gpu, free in enumerate(self._free(capacity, rank, node)[0]) if free < needed}

    def fits(self, capacity: Capacity, shape: Shape, rank: int, site: Site) -> bool:
        """True if this very site is free for a rank, as far as preemption is concerned."""
        if self.least[site.node] <= rank:
            return True
        gpus, amounts = self._free(capacity, rank, site.node)
        needed = shape.gpu_milli or MILLI
        return (
            not site.slices
            and all(gpus[gpu] >= needed for gpu in site.gpus)
            and all(free >= amount for free, amount in zip(amounts, shape.amounts, strict=True) if amount)
        )

    def _free(self, capacity: Capacity, rank: int, node: int) -> tuple[list[int], list[int]]:
        """Thousandths by GPU and amounts by resource that are free on a node for a rank."""
        gpus, amounts = capacity.gpu_free[node].tolist(), list(capacity.balance[node])
        for own in sorted(
            {each for (each, _, _), count in self._left[node].items() if count and each > rank}
        ):
            there_gpus, there = capacity.gpu_free[node].tolist(), list(capacity.balance[node])
            for sign, shape, held in self._besides(node, own):
                for gpu in held:
                    there_gpus[gpu] += sign * (shape.gpu_milli or MILLI)
                for resource, amount in enumerate(shape.amounts):
                    there[resource] += sign * amount
            gpus, amounts = list(map(min, gpus, there_gpus)), list(map(min, amounts, there))
        return gpus, amounts

    def _besides(self, node: int, own: int) -> Iterator[tuple[int, Shape, set[int]]]:
        """What would be there less, and more, without what is of a rank and above: sign, shape, GPUs."""
        for (index, site), count in self._came[node].items():
            if count and self._classes[index].rank >= own:
                held = {*site.gpus, *(gpu for gpu, _, _ in site.slices)}
                for _ in range(count):
                    yield 1, self._classes[index].shape, held
        for gone in (self._left, self._moved):
            for (rank, index, position), count in gone.get(node, Counter()).items():
                if count and rank >= own:
                    hold = self._incumbents[index].holds[position]
                    held = {*hold.gpus, *(gpu for gpu, _ in hold.slices)}
                    yield -1, self._incumbents[index].shape, held
