"""
Node states: free resources of the nodes of one group in every possible state, and sums of floors over them.

A node is in its base state while all running jobs stay, or in the state of one eviction pattern. Every
right-hand side of the packing rows is a sum over nodes of a function of their state, such as ⌊free GPUs / 4⌋.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from gpuplan.models.mig import mig_geometry
from gpuplan.models.units import MILLI

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from gpuplan.models.formulation.rows import Ints
    from gpuplan.models.problem.jobs import Shape
    from gpuplan.models.problem.problem import Problem

_MIG_SLICES = 7
"""Upper bound on the MIG instances of one GPU."""


class ObservedStates:
    """States of the nodes of one group while they are collected; equal states are merged."""

    def __init__(self, problem: Problem, group: int) -> None:
        self._problem, self._group = problem, group
        self._found: dict[tuple[tuple[int, ...], tuple[int, ...], bool], int] = {}

    def add(self, gpus: Sequence[int], amounts: Sequence[int], *, rounded: bool = False) -> int:
        """
        Index of a state with these thousandths free by GPU and these amounts by resource.

        With `rounded` it is not a state but the gain of a node: functions of it are rounded up, since ⌊(a +
        b)/s⌋ ≤ ⌊a/s⌋ + ⌈b/s⌉.
        """
        return self._found.setdefault((tuple(gpus), tuple(amounts), rounded), len(self._found))

    def closed(self) -> NodeStates:
        """All states as arrays."""
        return NodeStates(self._problem, self._group, tuple(self._found))


class NodeStates:
    """All states of the nodes of one group; in the last one nothing is free."""

    def __init__(
        self, problem: Problem, group: int, free: Sequence[tuple[Sequence[int], Sequence[int], bool]]
    ) -> None:
        """Each entry of `free`: thousandths by GPU, amounts by resource, and whether it is a rounded gain."""
        width = max((len(gpus) for gpus, _, _ in free), default=0)
        rows = [*free, ([0] * width, [0] * len(problem.resources), False)]
        self.nothing = len(free)
        """Index of the state in which nothing is free."""
        self.rounded = np.array([rounded for _, _, rounded in rows], dtype=bool)
        """True for a gain: functions of it are rounded up."""
        gpus = np.array([milli for milli, _, _ in rows], dtype=np.int64).reshape(len(rows), width)
        self.gpus: Ints = gpus
        """Thousandths free, shape (states, GPUs)."""
        self.amounts = np.array([amounts for _, amounts, _ in rows], dtype=np.int64)
        """Amounts free, shape (states, resources)."""
        self.whole: Ints = (gpus == MILLI).sum(axis=1)
        """Wholly free GPUs of each state."""
        self._partial = np.where(gpus < MILLI, gpus, 0)
        model = problem.groups[group].gpu_model
        self._may_switch = problem.charges.switch_mode is not None and bool(model and mig_geometry(model))
        self._mig_gpus = max(
            (len(problem.nodes[node].mig) for node in problem.groups[group].nodes), default=0
        )
        self._room: dict[Shape, Ints] = {}

    def room(self, shape: Shape) -> Ints:
        """Upper bound on the replicas of one shape that fit each state."""
        if (known := self._room.get(shape)) is None:
            known = self._room[shape] = self._room_of(shape)
        return known

    def _room_of(self, shape: Shape) -> Ints:
        if shape.gpus:
            room: Ints = self.whole // shape.gpus
        elif shape.gpu_milli:
            room = (self.gpus // shape.gpu_milli).sum(axis=1)
        elif shape.mig:
            instances = sum(count for _, count in shape.mig)
            gpus = self._mig_gpus + (self.whole if self._may_switch else np.zeros_like(self.whole))
            room = gpus * _MIG_SLICES // instances
        else:
            room = np.full(len(self.whole), np.iinfo(np.int32).max, dtype=np.int64)
        for resource, amount in enumerate(shape.amounts):
            if amount:
                room = np.minimum(room, self.amounts[:, resource] // amount)
        room[self.nothing] = 0
        return room

    def blocks(self, size: int, cheapest: Iterable[tuple[int, int, int]] = ()) -> Ints:
        """
        Number of blocks of `size` wholly free GPUs in each state.

        Each (resource, amount, blocks) says that no replica uses a block with less than amount / blocks of
        that resource, so the free amount of a node limits its blocks too.
        """
        found = self._steps(self.whole, size)
        for resource, amount, per in cheapest:
            allowed = self._steps(self.amounts[:, resource] * per, amount)
            # A gain may be of one resource only, where the node lacked another, so it takes the maximum.
            found = np.where(self.rounded, np.maximum(found, allowed), np.minimum(found, allowed))
        return found

    def floors(self, resource: int, unit: int) -> Ints:
        """⌊free amount / unit⌋."""
        return self._steps(self.amounts[:, resource], unit)

    def share_floors(self, unit: int) -> Ints:
        """Σ ⌊free thousandths / unit⌋ over partly used GPUs."""
        rounded = self.rounded[:, np.newaxis]
        floors: Ints = np.where(rounded, -(-self._partial // unit), self._partial // unit).sum(axis=1)
        return floors

    def _steps(self, amounts: Ints, unit: int) -> Ints:
        """Whole units in each amount; units of a gain are rounded up."""
        steps: Ints = np.where(self.rounded, -(-amounts // unit), amounts // unit)
        return steps
