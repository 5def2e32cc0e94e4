"""FreePool: what a set of nodes has free, and how many replicas of a request that makes."""

from __future__ import annotations

from bisect import bisect_left
from dataclasses import dataclass
from operator import itemgetter
from typing import TYPE_CHECKING, Final

import numpy as np

from planner.models.overcommit import charged
from planner.models.units import MILLI
from planner.waiting.mig_room import MigRoom, Profiles, profiles_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    from planner.models.cluster import Cluster, Node
    from planner.models.job import Job
    from planner.models.occupancy import NodeFree

# Each has a space in it, which no name of a countable resource has.
GPUS: Final = "whole gpus"
"""Of one node."""
SHARE: Final = "gpu share"
"""Thousandths of one GPU."""
MIG: Final = "mig instances "
"""Begins the dimension of each set of profiles; its amount is the replicas whose instances fit."""
POWER: Final = "gpu power"
"""Thousandths of GPUs that the node's power cap leaves."""
CPU: Final = "cpu milli"
MEMORY: Final = "memory mib"
DISK: Final = "disk mib"

_UNCAPPED: Final = 10**12

_ALL_GPUS: Final = "gpu milli"
"""Thousandths of all GPUs of a node, parts of GPUs included."""

_AMOUNT: Final[dict[str, Callable[[NodeFree], int]]] = {
    GPUS: lambda node: node.gpu_milli.count(MILLI),
    SHARE: lambda node: max(node.gpu_milli, default=0),
    _ALL_GPUS: lambda node: sum([milli for milli in node.gpu_milli if milli > 0]),
    CPU: lambda node: node.cpu_milli,
    MEMORY: lambda node: node.memory_mib,
    DISK: lambda node: node.disk_mib,
}


@dataclass(frozen=True, slots=True)
class Place:
    """A node with what is free on it."""

    node: Node
    free: NodeFree
    mig: MigRoom
    power_milli: int | None = None
    """Thousandths of its GPUs that power caps leave; None without a cap."""


def column_of(places: Iterable[Place], dimension: str) -> list[int]:
    """Free of one dimension by place, never negative."""
    if dimension.startswith(MIG):
        profiles = profiles_in(dimension)
        return [place.mig.replicas(place.node, place.free, profiles) for place in places]
    if dimension == POWER:
        rooms = (place.power_milli for place in places)
        return [_UNCAPPED if room is None else max(0, room) for room in rooms]
    if (amount := _AMOUNT.get(dimension)) is not None:
        return [max(0, amount(place.free)) for place in places]
    return [max(0, place.free.resources.get(dimension, 0)) for place in places]


def needs_of(job: Job, cluster: Cluster, *, capped: bool) -> dict[str, int]:
    """
    What one replica needs by dimension, the one people look at first in front; nothing at 0.

    `capped` is whether any node has a power cap.
    """
    request = job.request
    cpu_milli, memory_mib = charged(request, job.qos, cluster)
    mig = {MIG + " ".join(f"{profile} {count}" for profile, count in profiles_of(request.mig)): 1}
    needs = {
        GPUS: request.gpus,
        SHARE: request.gpu_milli,
        **(mig if request.mig else {}),
        POWER: request.total_gpu_milli if capped else 0,
        CPU: cpu_milli,
        MEMORY: memory_mib,
        DISK: request.disk_mib,
        **dict(sorted(request.resources.items())),
    }
    return {dimension: need for dimension, need in needs.items() if need}


def profiles_in(dimension: str) -> Profiles:
    """The profiles that a dimension of MIG instances stands for."""
    words = dimension.removeprefix(MIG).split()
    return tuple(zip(words[::2], map(int, words[1::2]), strict=True))


class FreePool:
    """
    Free amounts of some nodes, indexed so that a request meets few of them.

    Thousands of different requests are counted against thousands of nodes. Every dimension is kept sorted,
    and a request only looks at the nodes that have enough of its scarcest one.
    """

    def __init__(
        self, places: Sequence[Place], whole: FreePool | None = None, indices: Sequence[int] = ()
    ) -> None:
        """`whole` has more places, these among them at the given positions, whose amounts it knows."""
        self.places = places
        self._whole, self._indices = whole, indices
        self._totals: dict[str, int] = {}
        self._columns: dict[str, list[int]] = {}
        self._ranks: dict[str, tuple[list[int], list[int]]] = {}

    def part(self, indices: Sequence[int]) -> FreePool:
        """The pool of the places at some positions."""
        return FreePool([self.places[index] for index in indices], self, indices)

    def __len__(self) -> int:
        return len(self.places)

    def largest(self, dimension: str) -> int:
        """Most that one node (for a share: one GPU) has free."""
        return max(self.column(dimension), default=0)

    def having(self, dimension: str, need: int) -> int:
        """Nodes with at least so much."""
        return len(self) - bisect_left(self._rank(dimension)[1], need)

    def total(self, dimension: str) -> int:
        """Free in all; for GPUs and shares in thousandths, parts of GPUs included."""
        counted = _ALL_GPUS if dimension in (GPUS, SHARE) else dimension
        if counted not in self._totals:
            self._totals[counted] = sum(self.column(counted))
        return self._totals[counted]

    def fitting(self, needs: Mapping[str, int], enough: int) -> int:
        """Replicas with such needs that find room at the same time, counted until there are enough."""
        if not needs:
            return enough if self.places else 0
        count = 0
        for index in self._fewest(needs):
            count += min(self._times(index, dimension, need) for dimension, need in needs.items())
            if count >= enough:
                return enough
        return count

    def slices(self, profiles: Profiles) -> int:
        """Memory slices of the instances of one replica, on the GPU model where they are fewest."""
        return min((place.mig.slices(place.node, profiles) for place in self.places), default=0)

    def free_slices(self) -> tuple[int, int]:
        """Memory slices free on GPUs that are or may be in MIG mode, and how many such GPUs there are."""
        slices = sum(place.mig.free_slices(place.node, place.free) for place in self.places)
        return slices, sum(place.mig.cut(place.node, place.free) for place in self.places)

    def largest_profile(self) -> str:
        """The largest MIG profile of which one more instance fits; empty if none does."""
        return max((place.mig.largest(place.node, place.free) for place in self.places), default=(0, ""))[1]

    def _fewest(self, needs: Mapping[str, int]) -> list[int]:
        """Nodes with enough of the scarcest dimension."""
        ranked = ((*self._rank(dimension), need) for dimension, need in needs.items())
        first, order = max(
            ((bisect_left(amounts, need), order) for order, amounts, need in ranked), key=itemgetter(0)
        )
        return order[first:]

    def _rank(self, dimension: str) -> tuple[list[int], list[int]]:
        """Nodes by free amount, ascending, and these amounts."""
        rank = self._ranks.get(dimension)
        if rank is None:
            column = np.array(self.column(dimension), dtype=np.int64)
            order = np.argsort(column, kind="stable")
            rank = self._ranks[dimension] = order.tolist(), column[order].tolist()
        return rank

    def _times(self, index: int, dimension: str, need: int) -> int:
        if dimension == SHARE:
            return sum(milli // need for milli in self.places[index].free.gpu_milli if milli > 0)
        return self.column(dimension)[index] // need

    def column(self, dimension: str) -> list[int]:
        """Free amount by node, never negative."""
        column = self._columns.get(dimension)
        if column is None:
            if self._whole is None:
                column = column_of(self.places, dimension)
            else:
                known = self._whole.column(dimension)
                column = [known[index] for index in self._indices]
            self._columns[dimension] = column
        return column
