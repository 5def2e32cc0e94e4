"""FreePool: what a set of nodes has free, and how many replicas of a request that makes."""

from __future__ import annotations

from functools import cached_property
from typing import TYPE_CHECKING, Final, NamedTuple, TypeAlias

import numpy as np

from gpuplan.models.cluster import rack_of
from gpuplan.models.eligibility.overcommit import charged
from gpuplan.planner.waiting.mig_capacity import MigRoom, Profiles, profiles_of

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from numpy.typing import NDArray

    from gpuplan.models.cluster import Cluster, Node, Rack
    from gpuplan.models.eligibility.free_resources import NodeFree
    from gpuplan.models.job import Job
    from gpuplan.planner.analysis.allocations import Holdings

    Ints: TypeAlias = NDArray[np.int64]

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

_RACK: Final = "rack number"
"""The same for nodes of one rack with a power cap; -1 for those whose GPUs it does not count."""

_ALL_GPUS: Final = "gpu milli"
"""Thousandths of all GPUs of a node, parts of GPUs included."""

_AMOUNT: Final = {
    GPUS: "whole_gpus",
    SHARE: "largest_share",
    _ALL_GPUS: "all_shares",
    CPU: "cpu_milli",
    MEMORY: "memory_mib",
    DISK: "disk_mib",
}
"""Attributes of `NodeFree`."""


class Place(NamedTuple):
    """A node with what is free on it."""

    node: Node
    free: NodeFree
    mig: MigRoom
    power_milli: int | None = None
    """Thousandths of its GPUs that power caps leave; None without a cap."""
    rack_power: int | None = None
    """Thousandths of watts that the cap of its rack leaves to all nodes there; None without a cap."""


def column_of(places: Iterable[Place], dimension: str) -> list[int]:
    """Free of one dimension by place, never negative."""
    if dimension.startswith(MIG):
        profiles = profiles_in(dimension)
        return [place.mig.replicas(place.node, place.free, profiles) for place in places]
    if dimension == _RACK:
        numbers: dict[Rack, int] = {}
        return [
            numbers.setdefault(rack_of(place.node), len(numbers)) if _is_capped(place) else -1
            for place in places
        ]
    if dimension == POWER:
        rooms = (place.power_milli for place in places)
        return [_UNCAPPED if room is None else max(0, room) for room in rooms]
    if (amount := _AMOUNT.get(dimension)) is not None:
        return [max(0, getattr(place.free, amount)) for place in places]
    return [max(0, place.free.resources.get(dimension, 0)) for place in places]


def _is_capped(place: Place) -> bool:
    """True if the cap of a rack counts the node's GPUs."""
    return place.rack_power is not None and bool(place.node.gpus and place.node.gpus.watts)


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
    """Free amounts of some nodes, as arrays: thousands of requests are counted against thousands of nodes."""

    def __init__(self, places: Sequence[Place]) -> None:
        self._places = places
        self._totals: dict[str, int] = {}
        self._columns: dict[str, Ints] = {}

    @property
    def places(self) -> Sequence[Place]:
        """The nodes, in the order of all columns."""
        return self._places

    def part(self, indices: Ints) -> FreePool:
        """The pool of the places at some positions."""
        return _Part(self, indices)

    def __len__(self) -> int:
        return len(self.places)

    def largest(self, dimension: str) -> int:
        """Most that one node (for a share: one GPU) has free."""
        return int(self.column(dimension).max(initial=0))

    def having(self, dimension: str, need: int) -> int:
        """Nodes with at least so much."""
        return int(np.count_nonzero(self.column(dimension) >= need))

    def total(self, dimension: str) -> int:
        """Free in all; for GPUs and shares in thousandths, parts of GPUs included."""
        counted = _ALL_GPUS if dimension in (GPUS, SHARE) else dimension
        if counted not in self._totals:
            amounts = self.column(counted)
            every = np.arange(len(amounts))
            self._totals[counted] = (
                self._within_racks(every, amounts, 1) if counted == POWER else int(amounts.sum())
            )
        return self._totals[counted]

    def fitting(self, needs: Mapping[str, int], enough: int) -> int:
        """Replicas with such needs that find room at the same time, counted until there are enough."""
        if not needs:
            return enough if len(self) else 0
        (first, least), *others = needs.items()
        nodes = np.flatnonzero(self.column(first) >= least)
        for dimension, need in others:
            nodes = nodes[self.column(dimension)[nodes] >= need]
        power = needs.get(POWER, 0)
        if (len(nodes) >= enough and not power) or not len(nodes):
            return min(len(nodes), enough)
        times = np.minimum.reduce([self._times(nodes, name, need) for name, need in needs.items()])
        return min(enough, self._within_racks(nodes, times, power) if power else int(times.sum()))

    def _within_racks(self, nodes: Ints, counts: Ints, need: int) -> int:
        """The sum of what is counted on some nodes, in each rack no more than its cap has power for."""
        racks = self.column(_RACK)[nodes]
        total = int(counts[racks < 0].sum())
        for rack in np.unique(racks[racks >= 0]).tolist():
            here = np.flatnonzero(racks == rack)
            places = [self.places[index] for index in nodes[here].tolist()]
            watts = min(place.node.gpus.watts for place in places if place.node.gpus)
            left = min(place.rack_power or 0 for place in places)
            total += min(int(counts[here].sum()), left // (need * watts))
        return total

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

    def _times(self, nodes: Ints, dimension: str, need: int) -> Ints:
        """How often some nodes have so much."""
        if dimension != SHARE:
            return self.column(dimension)[nodes] // need
        free = (self.places[index].free.gpu_milli for index in nodes.tolist())
        return np.array([sum(milli // need for milli in gpus if milli > 0) for gpus in free], dtype=np.int64)

    def column(self, dimension: str) -> Ints:
        """Free amount by node, never negative."""
        column = self._columns.get(dimension)
        if column is None:
            column = self._columns[dimension] = self._counted(dimension)
        return column

    def _counted(self, dimension: str) -> Ints:
        return np.array(column_of(self.places, dimension), dtype=np.int64)


class ClusterPool(FreePool):
    """All nodes of a cluster: most of what its holdings leave free has been counted."""

    def __init__(self, places: Sequence[Place], holdings: Holdings) -> None:
        super().__init__(places)
        self._holdings = holdings

    def _counted(self, dimension: str) -> Ints:
        amount = _AMOUNT.get(dimension)
        if amount is None:
            return super()._counted(dimension)
        return np.maximum(self._holdings.column(amount), 0)


class _Part(FreePool):
    """Some nodes of a pool, which knows their amounts."""

    def __init__(self, whole: FreePool, indices: Ints) -> None:
        super().__init__(())
        self._whole, self._indices = whole, indices

    @cached_property
    def places(self) -> Sequence[Place]:
        """Those of the whole at its positions."""
        there = self._whole.places
        return [there[index] for index in self._indices.tolist()]

    def __len__(self) -> int:
        return len(self._indices)

    def _counted(self, dimension: str) -> Ints:
        return self._whole.column(dimension)[self._indices]
