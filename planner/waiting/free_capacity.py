"""Free capacity of a set of nodes, and how many replicas of a request fit in it."""

from __future__ import annotations

from collections import defaultdict
from functools import cached_property
from typing import TYPE_CHECKING, Final, NamedTuple, TypeAlias

import numpy as np

from gpuplan.models.cluster import Cluster, Level, Node, Rack, rack_of
from gpuplan.models.eligibility.free_resources import FreeResources, charged_cpu_memory
from gpuplan.planner.waiting.mig_capacity import MigCapacity, profiles_of

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from numpy.typing import NDArray

    from gpuplan.models.job import Job
    from gpuplan.planner.analysis.allocations import Allocations
    from gpuplan.solvers.state.constraints.mig_state import MigRequest

    Ints: TypeAlias = NDArray[np.int64]

# Each name contains a space, so that it differs from all names of countable resources.
GPUS: Final = "whole gpus"
"""Whole GPUs of one node."""
SHARE: Final = "gpu share"
"""Thousandths of one GPU."""
MIG: Final = "mig instances "
"""Prefix of the dimension of a set of MIG profiles; its amount is the replicas with room for them."""
POWER: Final = "gpu power"
"""Thousandths of GPUs that power caps leave on the node."""
CPU: Final = "cpu milli"
MEMORY: Final = "memory mib"
DISK: Final = "disk mib"

# Beyond every need, and whole like all free amounts: infinity would make floating-point columns of them.
_UNCAPPED: Final = 10**12

_RACK: Final = "rack number"
"""Number of the rack with a power cap; -1 for nodes with GPUs that no rack cap counts."""

_ALL_GPUS: Final = "gpu milli"
"""Free thousandths of all GPUs of a node, parts of GPUs included."""

_AMOUNT: Final = {
    GPUS: "whole_gpus",
    SHARE: "largest_share",
    _ALL_GPUS: "all_shares",
    CPU: "cpu_milli",
    MEMORY: "memory_mib",
    DISK: "disk_mib",
}
"""Attributes of `FreeResources` by dimension."""


class NodeRoom(NamedTuple):
    """A node with its free capacity."""

    node: Node
    free: FreeResources
    mig: MigCapacity
    power_milli: int | None = None
    """Thousandths of its GPUs that power caps leave; None without a cap."""
    rack_power: int | None = None
    """Thousandths of watts that the cap of its rack leaves to all nodes there; None without a cap."""


def column_of(places: Iterable[NodeRoom], dimension: str) -> list[int]:
    """Free amount of one dimension by place, never negative."""
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


def _is_capped(place: NodeRoom) -> bool:
    """True if a rack's power cap counts the node's GPUs."""
    return place.rack_power is not None and bool(place.node.gpus and place.node.gpus.watts)


def replica_needs(job: Job, cluster: Cluster, *, capped: bool) -> dict[str, int]:
    """
    Demand of one replica by dimension, without zeros; dimensions that matter most to people come first.

    `capped` states whether any node has a power cap.
    """
    request = job.request
    cpu_milli, memory_mib = charged_cpu_memory(request, job.qos, cluster)
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


def profiles_in(dimension: str) -> MigRequest:
    """The MIG profiles that a dimension name encodes."""
    words = dimension.removeprefix(MIG).split()
    return tuple(zip(words[::2], map(int, words[1::2]), strict=True))


class FreeCapacity:
    """Free amounts of some nodes as arrays: thousands of requests are counted on thousands of nodes."""

    def __init__(self, places: Sequence[NodeRoom]) -> None:
        self._places = places
        self._totals: dict[str, int] = {}
        self._columns: dict[str, Ints] = {}

    @property
    def places(self) -> Sequence[NodeRoom]:
        """The nodes, in the order of all columns."""
        return self._places

    def part(self, indices: Ints) -> FreeCapacity:
        """Return the pool of the places at these positions."""
        return _Part(self, indices)

    def __len__(self) -> int:
        return len(self.places)

    def largest(self, dimension: str) -> int:
        """Largest free amount of one node (for a share: of one GPU)."""
        return int(self.column(dimension).max(initial=0))

    def having(self, dimension: str, need: int) -> int:
        """Number of nodes with at least this free amount."""
        return int(np.count_nonzero(self.column(dimension) >= need))

    def total(self, dimension: str) -> int:
        """Total free amount; for GPUs and shares in thousandths, parts of GPUs included."""
        counted = _ALL_GPUS if dimension in (GPUS, SHARE) else dimension
        if counted not in self._totals:
            amounts = self.column(counted)
            every = np.arange(len(amounts))
            self._totals[counted] = (
                self._within_racks(every, amounts, 1) if counted == POWER else int(amounts.sum())
            )
        return self._totals[counted]

    def count_replicas(self, needs: Mapping[str, int], enough: int) -> int:
        """Number of replicas with these needs that fit at the same time; counting stops at `enough`."""
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

    def replicas_by_node(self, needs: Mapping[str, int], most: int) -> dict[str, int]:
        """Number of replicas with these needs that each node alone can take, up to `most`, by name."""
        counts = np.full(len(self), most, dtype=np.int64)
        every = np.arange(len(self))
        for dimension, need in needs.items():
            counts = np.minimum(counts, self._times(every, dimension, need))
        return {place.node.name: count for place, count in zip(self.places, counts.tolist(), strict=True)}

    def _within_racks(self, nodes: Ints, counts: Ints, need: int) -> int:
        """Sum of counts over some nodes, limited in each rack by its power cap."""
        racks = self.column(_RACK)[nodes]
        total = int(counts[racks < 0].sum())
        for rack in np.unique(racks[racks >= 0]).tolist():
            here = np.flatnonzero(racks == rack)
            places = [self.places[index] for index in nodes[here].tolist()]
            watts = min(place.node.gpus.watts for place in places if place.node.gpus)
            left = min(place.rack_power or 0 for place in places)
            total += min(int(counts[here].sum()), left // (need * watts))
        return total

    def slices(self, profiles: MigRequest) -> int:
        """Memory slices that one replica's instances take, on the GPU model where they take the fewest."""
        return min((place.mig.slices(place.node, profiles) for place in self.places), default=0)

    def free_slices(self) -> tuple[int, int]:
        """Free memory slices on GPUs that are or may be in MIG mode, and the number of such GPUs."""
        slices = sum(place.mig.free_slices(place.node, place.free) for place in self.places)
        return slices, sum(place.mig.cut(place.node, place.free) for place in self.places)

    @property
    def instances_in_use(self) -> bool:
        """True if a job uses any MIG instance."""
        return any(place.free.mig_used for place in self.places)

    def largest_profile(self) -> str:
        """Largest MIG profile of which one more instance fits; empty if there is none."""
        return max((place.mig.largest(place.node, place.free) for place in self.places), default=(0, ""))[1]

    def _times(self, nodes: Ints, dimension: str, need: int) -> Ints:
        """How often each node's free amount contains `need`."""
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


class ClusterFreeCapacity(FreeCapacity):
    """All nodes of a cluster; most columns come from its holdings, which have counted them already."""

    def __init__(self, places: Sequence[NodeRoom], holdings: Allocations) -> None:
        super().__init__(places)
        self._holdings = holdings

    def _counted(self, dimension: str) -> Ints:
        amount = _AMOUNT.get(dimension)
        if amount is None:
            return super()._counted(dimension)
        return np.maximum(self._holdings.column(amount), 0)


class _Part(FreeCapacity):
    """Some nodes of a pool; the amounts come from the pool's columns."""

    def __init__(self, whole: FreeCapacity, indices: Ints) -> None:
        super().__init__(())
        self._whole, self._indices = whole, indices

    @cached_property
    def places(self) -> Sequence[NodeRoom]:
        """The places of the whole pool at this part's positions."""
        there = self._whole.places
        return [there[index] for index in self._indices.tolist()]

    def __len__(self) -> int:
        return len(self._indices)

    def _counted(self, dimension: str) -> Ints:
        return self._whole.column(dimension)[self._indices]


# How many replicas of a job fit within its required domain and its spread limit.


def replicas_in_one_domain(job: Job, pool: FreeCapacity, needs: dict[str, int]) -> tuple[int, str]:
    """Return how many replicas fit within the best domain under the spread limit, and that domain's name."""
    level = job.locality.required
    if level is None or job.gang.minimum == 1:
        return _spread_out(job, pool, needs), ""
    found = ((_spread_out(job, domain, needs), name) for name, domain in _domains(pool, level).items())
    return max(found, default=(0, ""))


def _spread_out(job: Job, pool: FreeCapacity, needs: dict[str, int]) -> int:
    if job.spread is None:
        return pool.count_replicas(needs, job.gang.minimum)
    return sum(
        domain.count_replicas(needs, min(job.spread.most, job.gang.minimum))
        for domain in _domains(pool, job.spread.level).values()
    )


def _domains(pool: FreeCapacity, level: Level) -> dict[str, FreeCapacity]:
    """Nodes by domain; a node without a domain is a domain of its own."""
    members: dict[str, list[int]] = defaultdict(list)
    for index, place in enumerate(pool.places):
        domain = place.node.domain(level)
        members["/".join(part for part in domain if part) if domain else place.node.name].append(index)
    return {name: pool.part(np.array(indices, dtype=np.int64)) for name, indices in members.items()}
