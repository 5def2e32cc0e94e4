"""Free capacity of a set of nodes, and how many replicas of a request fit in it."""

from __future__ import annotations

from functools import cached_property
from typing import TYPE_CHECKING, Final, NamedTuple, TypeAlias, TypeVar

import numpy as np

from gpuplan.models.cluster import Cluster, Level, Node, Rack, rack_of
from gpuplan.models.eligibility.free_resources import FreeResources, charged_cpu_memory
from gpuplan.planner.analysis.power_use import watts_of
from gpuplan.planner.waiting.mig_capacity import MigCapacity, profiles_of
from gpuplan.solvers.state.constraints.constraint import JointRoom, SharedLimit

if TYPE_CHECKING:
    from collections.abc import Hashable, Iterable, Mapping, Sequence

    from numpy.typing import NDArray

    from gpuplan.models.job import Job
    from gpuplan.planner.analysis.allocations import Allocations
    from gpuplan.solvers.state.constraints.mig_state import MigRequest

    Ints: TypeAlias = NDArray[np.int64]

_Key = TypeVar("_Key", bound="Hashable")

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
    if dimension == POWER:
        rooms = (place.power_milli for place in places)
        return [_UNCAPPED if room is None else max(0, room) for room in rooms]
    if (amount := _AMOUNT.get(dimension)) is not None:
        return [max(0, getattr(place.free, amount)) for place in places]
    return [max(0, place.free.resources.get(dimension, 0)) for place in places]


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
            limits = self.rack_limits(1) if counted == POWER else ()
            self._totals[counted] = JointRoom(amounts, int(amounts.sum()), limits).best
        return self._totals[counted]

    def count_replicas(self, needs: Mapping[str, int], enough: int) -> int:
        """Number of replicas with these needs that fit at the same time; counting stops at `enough`."""
        if not needs:
            return enough if len(self) else 0
        limits = self.rack_limits(needs.get(POWER, 0))
        if not limits and len(self._nodes_for_one(needs)) >= enough:
            return enough
        return JointRoom(self.room(needs, enough), enough, limits).best

    def room(self, needs: Mapping[str, int], most: int) -> Ints:
        """Number of replicas with these needs that each node alone can take, up to `most`."""
        room, nodes = np.zeros(len(self), dtype=np.int64), self._nodes_for_one(needs)
        room[nodes] = most
        for dimension, need in needs.items():
            room[nodes] = np.minimum(room[nodes], self._times(nodes, dimension, need))
        return room

    def _nodes_for_one(self, needs: Mapping[str, int]) -> Ints:
        """Positions of the nodes with room for a replica."""
        nodes = np.arange(len(self))
        for dimension, need in needs.items():
            nodes = nodes[self.column(dimension)[nodes] >= need]
        return nodes

    def rack_limits(self, milli: int) -> list[SharedLimit]:
        """What racks' power caps leave together to replicas of so many thousandths of GPUs."""
        if not milli or self.rack_watts is None:
            return []
        return [self.rack_watts._replace(costs=self.rack_watts.costs * milli)]

    @cached_property
    def rack_watts(self) -> SharedLimit | None:
        """The same by node, each of the costs for a thousandth of its GPUs; None without a cap."""
        left = {
            rack_of(place.node): place.rack_power for place in self.places if place.rack_power is not None
        }
        return rack_limit([place.node for place in self.places], left) if left else None

    def replicas_by_node(self, needs: Mapping[str, int], most: int) -> dict[str, int]:
        """Number of replicas with these needs that each node alone can take, up to `most`, by name."""
        counts = self.room(needs, most).tolist()
        return {place.node.name: count for place, count in zip(self.places, counts, strict=True)}

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

    @cached_property
    def rack_watts(self) -> SharedLimit | None:
        """See `FreeCapacity`."""
        watts = self._whole.rack_watts
        if watts is None:
            return None
        return watts._replace(groups=watts.groups[self._indices], costs=watts.costs[self._indices])

    def __len__(self) -> int:
        return len(self._indices)

    def _counted(self, dimension: str) -> Ints:
        return self._whole.column(dimension)[self._indices]


# How many replicas of a job fit within its required domain and its spread limit.


def replicas_in_one_domain(job: Job, pool: FreeCapacity, needs: dict[str, int]) -> tuple[int, str]:
    """Return how many replicas fit within the best domain under the spread limit, and that domain's name."""
    nodes = [place.node for place in pool.places]
    limits = pool.rack_limits(needs.get(POWER, 0))
    joint, domains = joint_room(job, nodes, pool.room(needs, job.gang.minimum), limits)
    names = ["/".join(part for part in domain if part) for domain in domains]
    return max(((found, names[each]) for each, found in joint.by_domain().items()), default=(0, ""))


def joint_room(
    job: Job, nodes: Sequence[Node], room: Ints, limits: Sequence[SharedLimit]
) -> tuple[JointRoom, list[tuple[str, ...]]]:
    """
    Room of nodes for a job in the domain that it requires, under its spread limit and others; the domains.

    `room` are the replicas that each node takes by itself. Without a required domain all nodes are in one.
    """
    limits = list(limits)
    if job.spread is not None:
        groups, found = _domains(nodes, job.spread.level)
        most = [job.spread.most] * len(found)
        limits.append(SharedLimit(groups, np.ones(len(nodes), dtype=np.int64), most))
    domains, paths = None, list[tuple[str, ...]]([()])
    if (level := job.locality.required) is not None and job.gang.minimum > 1:
        domains, paths = _domains(nodes, level)
    return JointRoom(room, job.gang.minimum, limits, domains), paths


def rack_limit(nodes: Sequence[Node], left: Mapping[Rack, int]) -> SharedLimit:
    """Thousandths of watts that are left to racks, and what a thousandth of a GPU on each node takes."""
    groups, racks = _numbered([rack_of(node) for node in nodes])
    costs = [watts_of(node) if rack_of(node) in left else 0 for node in nodes]
    return SharedLimit(groups, np.array(costs, dtype=np.int64), [left.get(rack, 0) for rack in racks])


def _domains(nodes: Iterable[Node], level: Level) -> tuple[Ints, list[tuple[str, ...]]]:
    """The domain of each node, a number, and the paths of all; one without is a domain of its own."""
    return _numbered([node.domain(level) or ("", node.name) for node in nodes])


def _numbered(keys: Iterable[_Key]) -> tuple[Ints, list[_Key]]:
    """A number for each of some keys, and the keys by number."""
    numbers: dict[_Key, int] = {}
    found = [numbers.setdefault(key, len(numbers)) for key in keys]
    return np.array(found, dtype=np.int64), list(numbers)
