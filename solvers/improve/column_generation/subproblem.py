"""
The packing question: replicas of plain kinds of jobs, and the free capacity of nodes for them.

It also has what the parts that answer it exchange: contents of nodes and their prices.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final, TypeAlias

from gpuplan.models.formulation.structure.replica_types import replica_types_of
from gpuplan.models.problem.jobs import LocalityRule
from gpuplan.models.units import MILLI
from gpuplan.solvers.params.improve import ColumnGenerationParams
from gpuplan.solvers.state.placement_profile import NO_AFFINITY

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from gpuplan.models.formulation.structure.replica_types import ReplicaType
    from gpuplan.models.problem.jobs import Shape
    from gpuplan.solvers.state.ledger import Ledger

    Ints: TypeAlias = NDArray[np.int64]

Contents: TypeAlias = tuple[tuple[int, int], ...]
"""(item, number of it), sorted: the contents of one node."""

PRICE_SCALE: Final = 1_000
"""Prices of places are integers; this many units are one point."""


@dataclass(frozen=True, slots=True)
class PricedPattern:
    """Best contents of one node at given prices."""

    bound: float
    """Upper bound on the value of any contents, in parts of a point; infinite if unknown."""
    contents: Contents = ()
    """Best contents found."""
    value: int = 0
    """Lower bound on their value, in parts of a point."""


@dataclass(frozen=True, slots=True)
class PackingItem:
    """A place for one replica of a kind, on the node groups of one of its tiers."""

    taker: int
    """Class for which sites are taken; the other classes of the kind have the same shape."""
    shape: Shape
    groups: frozenset[int]
    node_points: tuple[tuple[int, int], ...]
    """(group, points of a replica there)."""
    most: int
    """Maximum replicas of all its jobs together."""


@dataclass(frozen=True, slots=True)
class ItemDemand:
    """Jobs of one class that may have places of one item."""

    job_class: int
    item: int
    options: tuple[int, ...]
    """Positions of the class's options that belong to the item."""
    points: int
    """Points of one job."""
    replicas: int
    """Replicas of one job."""
    most: int
    """Maximum number of jobs."""


@dataclass(frozen=True, slots=True)
class FreeNodeClass:
    """Nodes of one group with equal free capacity."""

    nodes: tuple[int, ...]
    group: int
    gpus: tuple[int, ...]
    """Free thousandths of each GPU, most first; GPUs with nothing free are left out."""
    amounts: tuple[int, ...]

    @property
    def whole(self) -> int:
        """Number of wholly free GPUs."""
        return self.gpus.count(MILLI)

    def room(self, shape: Shape) -> int:
        """Replicas of a shape that fit on one of the nodes if it is used for them alone; at most 2^30."""
        room = [free // amount for free, amount in zip(self.amounts, shape.amounts, strict=True) if amount]
        if shape.gpus:
            room.append(self.whole // shape.gpus)
        if shape.gpu_milli:
            room.append(sum(free // shape.gpu_milli for free in self.gpus))
        return min(room, default=2**30)


@dataclass(frozen=True, slots=True)
class RepackProblem:
    """Which contents do how many nodes of each class get, and which jobs then have a place?"""

    items: tuple[PackingItem, ...]
    offers: tuple[ItemDemand, ...]
    node_classes: tuple[FreeNodeClass, ...]
    before: dict[int, Contents] = field(default_factory=dict)
    """Contents of nodes before their jobs were taken off."""
    params: ColumnGenerationParams = ColumnGenerationParams()


def extract_repack_problem(
    ledger: Ledger, nodes: Ints | None, params: ColumnGenerationParams = ColumnGenerationParams()
) -> RepackProblem:
    """Take all plain jobs off some nodes (None: off all); returns what may now be packed there."""
    scope = _scope(ledger, nodes)
    plain = {
        index: kind
        for kind in replica_types_of(ledger.problem)
        if _is_plain(ledger, kind)
        for index in kind.classes
        if _is_waiting(ledger, index)
    }
    lifted = [
        (number, placed)
        for number, placed in sorted(ledger.placed.items())
        if placed.job_class in plain and all(site.node in scope for site in placed.sites)
    ]
    for number, _ in lifted:
        ledger.remove(number)
    items, offers = _demand(ledger, plain, {ledger.group_of[node] for node in scope})
    item_at = {(offer.job_class, group): offer.item for offer in offers for group in items[offer.item].groups}
    before: dict[int, Counter[int]] = defaultdict(Counter)
    for _, placed in lifted:
        for site in placed.sites:
            before[site.node][item_at[placed.job_class, ledger.group_of[site.node]]] += 1
    contents = {node: tuple(sorted(counts.items())) for node, counts in sorted(before.items())}
    return RepackProblem(tuple(items), tuple(offers), _node_classes(ledger, scope), contents, params)


def covers_whole_problem(ledger: Ledger) -> bool:
    """True if packing plain jobs on all nodes is the whole decision."""
    problem = ledger.problem
    if problem.incumbents or problem.pools or problem.jointly_limited:
        return False
    plain = sum(len(kind.classes) for kind in replica_types_of(problem) if _is_plain(ledger, kind))
    return plain == len(problem.classes) and all(
        _is_waiting(ledger, at) for at in range(len(problem.classes))
    )


def _scope(ledger: Ledger, nodes: Ints | None) -> frozenset[int]:
    """
    The nodes that exist, are under no joint limit, and have nothing free through preemption.

    Configurations do not tell apart jobs that may take the place of a victim and jobs that must fit beside
    it.
    """
    among = range(len(ledger.problem.nodes)) if nodes is None else nodes.tolist()
    limited = ledger.problem.jointly_limited
    usable, floors = ledger.capacity.usable, ledger.preemption_ranks
    return frozenset(
        node for node in among if usable[node] and node not in limited and not floors.had_preemption(node)
    )


def _is_plain(ledger: Ledger, kind: ReplicaType) -> bool:
    """True if only room and price decide where replicas of a kind go, and if their number is fixed."""
    free = kind.together == LocalityRule() and ledger.tenants[kind.classes[0]].affinity == NO_AFFINITY
    return free and kind.rigid and not kind.per_replica and not kind.shape.mig


def _is_waiting(ledger: Ledger, index: int) -> bool:
    """True if jobs of a class wait, without a promised start or a co-start group."""
    job_class = ledger.problem.classes[index]
    return job_class.starts_alone and not job_class.firm


def _demand(
    ledger: Ledger, plain: dict[int, ReplicaType], groups: set[int]
) -> tuple[list[PackingItem], list[ItemDemand]]:
    """Items that may be on these groups, and the jobs that ask for them."""
    items: list[PackingItem] = []
    offers: list[ItemDemand] = []
    known: dict[tuple[int, int], int] = {}
    for index, kind in sorted(plain.items()):
        job_class, left = ledger.problem.classes[index], ledger.jobs_left(index)
        for number, (tier, tier_groups) in enumerate(zip(kind.tiers, kind.groups, strict=True)):
            if not left or groups.isdisjoint(tier_groups):
                continue
            key = kind.classes[0], number
            if key not in known:
                known[key] = len(items)
                first = ledger.problem.classes[kind.classes[0]]
                most = kind.minimum * sum(ledger.jobs_left(each) for each in kind.classes if each in plain)
                where = frozenset(tier_groups), first.node_points
                items.append(PackingItem(index, kind.shape, *where, most))
            points = job_class.points(job_class.options[tier[0]], kind.minimum)
            offers.append(ItemDemand(index, known[key], tier, points, kind.minimum, left))
    return items, offers


def _node_classes(ledger: Ledger, scope: frozenset[int]) -> tuple[FreeNodeClass, ...]:
    members: dict[tuple[int, tuple[int, ...], tuple[int, ...]], list[int]] = defaultdict(list)
    capacity = ledger.capacity
    for node in sorted(scope):
        gpus = tuple(sorted((free for free in capacity.gpu_free[node].tolist() if free), reverse=True))
        members[ledger.group_of[node], gpus, tuple(capacity.free[node].tolist())].append(node)
    return tuple(
        FreeNodeClass(tuple(nodes), group, gpus, amounts) for (group, gpus, amounts), nodes in members.items()
    )
