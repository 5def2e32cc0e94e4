"""
MIG layouts of all nodes while instances are taken and given back: where one more fits, and what it costs.

A layout is an immutable value, and what may be added to it is cached: a cluster has few different layouts.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import lru_cache
from typing import TYPE_CHECKING, TypeAlias

from gpuplan.models.cluster import MigInstance
from gpuplan.models.mig import mig_geometry, profile_milli
from gpuplan.models.units import MILLI

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from gpuplan.models.mig import MigGeometry
    from gpuplan.models.problem.problem import Problem
    from gpuplan.solvers.state.assignment import Slice

InstancePlace: TypeAlias = tuple[str, int]
"""(profile, start) of an instance."""


@dataclass(frozen=True, slots=True)
class MigLayout:
    """Layout of a GPU in MIG mode, or of one that could be switched to it."""

    gpu_model: str
    existing: frozenset[InstancePlace]
    """Instances that exist at first, used or not."""
    used: frozenset[InstancePlace] = frozenset()
    reserved: frozenset[InstancePlace] = frozenset()
    """Instances kept for jobs placed later: new instances take these first, and never conflict with them."""
    fresh: bool = False
    """True if the plan switches the GPU to MIG mode: then it may create any instance."""

    def holding(self, place: InstancePlace) -> MigLayout:
        """The layout with one more instance in use."""
        return replace(self, used=self.used | {place}, reserved=self.reserved - {place})


@dataclass(frozen=True, slots=True, order=True)
class MigStart:
    """One way to add an instance to a layout, better ones first in order."""

    created: bool
    """True if the instance must be created."""
    destroyed: int
    """Idle instances that must be destroyed."""
    lost: int
    """Loss of room for wanted instances (see `addable_slices`)."""
    start: int


@lru_cache(maxsize=1 << 16)
def best_instance_start(
    layout: MigLayout, profile: str, wanted: frozenset[str], *, may_create: bool
) -> MigStart | None:
    """
    The best way to add an instance; None if there is none. Reserved instances come first.

    `wanted` are the profiles for which room should be left.
    """
    spots = [
        spot
        for start in _starts(layout, profile, may_create=may_create)
        if (spot := _evaluate_start(layout, (profile, start), wanted)) is not None
    ]
    reserved = [spot for spot in spots if (profile, spot.start) in layout.reserved]
    return min(reserved or spots, default=None)


def is_legal(layout: MigLayout) -> bool:
    """True if the used and reserved instances may exist together."""
    geometry = mig_geometry(layout.gpu_model)
    if geometry is None:
        return layout.used | layout.reserved <= layout.existing
    return _legal(geometry, layout.used | layout.reserved)


def memory_slices_of(gpu_model: str, profile: str) -> int:
    """Memory slices of a profile; 1 if the GPU model or the profile is not known."""
    geometry = mig_geometry(gpu_model)
    known = geometry.profiles.get(profile) if geometry else None
    return known.memory_slices if known else 1


def request_slices(gpu_model: str, wish: MigRequest) -> int:
    """Memory slices that one replica's instances take on a GPU model."""
    return sum(count * memory_slices_of(gpu_model, name) for name, count in wish)


def largest_first(gpu_model: str, wish: MigRequest) -> list[str]:
    """Profile of every instance of a replica, the largest first."""
    return sorted(
        (profile for profile, count in wish for _ in range(count)),
        key=lambda profile: (-memory_slices_of(gpu_model, profile), profile),
    )


def _starts(layout: MigLayout, profile: str, *, may_create: bool) -> list[int]:
    present = {start for name, start in layout.existing | layout.reserved if name == profile}
    geometry = mig_geometry(layout.gpu_model)
    if may_create and geometry is not None and profile in geometry.profiles:
        present |= set(geometry.profiles[profile].starts)
    return sorted(present)


def _evaluate_start(layout: MigLayout, place: InstancePlace, wanted: frozenset[str]) -> MigStart | None:
    if place in layout.used:
        return None
    after = layout.holding(place)
    if not is_legal(after):
        return None
    geometry = mig_geometry(layout.gpu_model)
    if geometry is None:
        return MigStart(created=False, destroyed=0, lost=0, start=place[1])
    idle = layout.existing - layout.used - {place}
    return MigStart(
        created=place not in layout.existing,
        destroyed=sum(_overlap(geometry, place, other) for other in idle),
        lost=addable_slices(layout, wanted) - addable_slices(after, wanted),
        start=place[1],
    )


@lru_cache(maxsize=1 << 16)
def addable_slices(layout: MigLayout, wanted: frozenset[str]) -> int:
    """Sum of memory slices over all wanted instances that could be added, each by itself."""
    geometry = mig_geometry(layout.gpu_model)
    if geometry is None:
        return 0
    taken = layout.used | layout.reserved
    return sum(
        profile.memory_slices
        for profile in geometry.profiles.values()
        for start in profile.starts
        if profile.name in wanted
        and (profile.name, start) not in taken
        and _legal(geometry, taken | {(profile.name, start)})
    )


def _legal(geometry: MigGeometry, places: frozenset[InstancePlace]) -> bool:
    instances = [MigInstance(profile=profile, start=start) for profile, start in places]
    return next(geometry.faults(instances), None) is None


def _overlap(geometry: MigGeometry, one: InstancePlace, other: InstancePlace) -> bool:
    ends = []
    for name, start in (one, other):
        profile = geometry.profiles.get(name)
        ends.append(start + (profile.memory_slices if profile else 1))
    return one[1] < ends[1] and other[1] < ends[0]


MigRequest: TypeAlias = tuple[tuple[str, int], ...]
"""(profile, count) of one replica."""


@dataclass(frozen=True, slots=True)
class MigCost:
    """Cost of the MIG instances of one more replica on a node."""

    points: int
    """Points, never positive."""
    lost: int
    """Loss of room for other instances."""
    switches: bool
    """True if a GPU must be switched to MIG mode."""


class MigInventory:
    """Instances in use on every GPU in MIG mode, and the cost of layout changes so far."""

    def __init__(self, problem: Problem, wanted: frozenset[str] | None = None) -> None:
        """Keep room for `wanted` profiles; if none are given, for those of the problem's classes."""
        charges = problem.charges
        self._may_create = charges.may_repartition
        self._create_price = charges.repartition
        self._switch_price = charges.switch_mode
        self._model = {
            node: group.gpu_model for group in problem.groups for node in group.nodes if group.gpu_model
        }
        self._layouts: list[dict[int, MigLayout]] = [
            {
                gpu.index: MigLayout(
                    self._model[index],
                    frozenset((each.profile, each.start) for each in (*gpu.idle, *gpu.used)),
                    frozenset((each.profile, each.start) for each in gpu.used),
                )
                for gpu in node.mig
            }
            for index, node in enumerate(problem.nodes)
        ]
        of_classes = (profile for job_class in problem.classes for profile, _ in job_class.shape.mig)
        self._wanted = frozenset(of_classes) if wanted is None else wanted
        self._outlooks: dict[tuple[object, ...], MigCost | None] = {}
        self.points = 0
        """Points of instances created and GPUs switched to MIG mode; never positive."""

    def free_milli(self, node: int) -> int:
        """Thousandths of GPUs that instances in use leave on the GPUs in MIG mode."""
        return sum(
            MILLI - min(MILLI, sum(profile_milli(profile) for profile, _ in layout.used))
            for layout in self._layouts[node].values()
        )

    def free_slices(self, node: int, whole: Sequence[int]) -> int:
        """Memory slices that no instance in use covers, on GPUs that are or may be in MIG mode."""
        geometry = mig_geometry(self._model.get(node, ""))
        if geometry is None:
            return 0
        layouts = self._layouts[node].values()
        used = sum(memory_slices_of(each.gpu_model, name) for each in layouts for name, _ in each.used)
        gpus = len(layouts) + (len(whole) if self._may_switch(node) else 0)
        return gpus * geometry.memory_slices - used

    def slices_of(self, node: int, wish: MigRequest) -> int:
        """Memory slices that one replica's instances take on the GPU model of a node."""
        return request_slices(self._model.get(node, ""), wish)

    def find(self, node: int, wish: MigRequest, whole: Sequence[int], copies: int = 1) -> list[list[Slice]]:
        """
        Instances for up to `copies` replicas, each in the best position.

        `whole` are the wholly free GPUs, which may be switched to MIG mode if that is allowed.
        """
        layouts = dict(self._layouts[node])
        fresh = list(whole) if self._may_switch(node) else []
        found: list[list[Slice]] = []
        while len(found) < copies:
            slices: list[Slice] = []
            for profile in largest_first(self._model.get(node, ""), wish):
                place = self._best(layouts, profile)
                if place is None and fresh:
                    layouts[fresh[0]] = self._switched(node)
                    place = self._best({fresh[0]: layouts[fresh.pop(0)]}, profile)
                if place is None:
                    return found
                gpu, start = place
                layouts[gpu] = layouts[gpu].holding((profile, start))
                slices.append((gpu, profile, start))
            found.append(slices)
        return found

    def outlook(self, node: int, wish: MigRequest, whole: Sequence[int]) -> MigCost | None:
        """Cost of one more replica on a node; None if it does not fit there."""
        # Nodes with equal layouts give equal results, whatever the indices of their GPUs.
        spare = min(len(whole), sum(count for _, count in wish)) if self._may_switch(node) else 0
        alike = (tuple(sorted(map(hash, self._layouts[node].values()))), self._model.get(node), spare, wish)
        if alike not in self._outlooks:
            self._outlooks[alike] = self._look(node, wish, whole)
        return self._outlooks[alike]

    def _look(self, node: int, wish: MigRequest, whole: Sequence[int]) -> MigCost | None:
        found = self.find(node, wish, whole)
        if not found:
            return None
        before = self._layouts[node]
        after = {gpu: before.get(gpu, self._switched(node)) for gpu, _, _ in found[0]}
        points = -(self._switch_price or 0) * len(after.keys() - before.keys())
        lost = sum(addable_slices(layout, self._wanted) for layout in after.values())
        for gpu, profile, start in found[0]:
            points -= self._create_price * ((profile, start) not in after[gpu].existing)
            after[gpu] = after[gpu].holding((profile, start))
        lost -= sum(addable_slices(layout, self._wanted) for layout in after.values())
        return MigCost(points, lost, switches=not after.keys() <= before.keys())

    def in_mig_mode(self, node: int, gpu: int) -> bool:
        """True if the GPU is in MIG mode, or switched to it by the plan."""
        return gpu in self._layouts[node]

    def offers(self, node: int) -> bool:
        """True if the node has GPUs in MIG mode, or GPUs that may be switched to it."""
        return bool(self._layouts[node]) or self._may_switch(node)

    def fits(self, node: int, slices: Iterable[Slice], whole: Sequence[int]) -> bool:
        """True if exactly these instances may be used."""
        layouts = dict(self._layouts[node])
        for gpu, profile, start in slices:
            if gpu not in layouts:
                if gpu not in whole or not self._may_switch(node):
                    return False
                layouts[gpu] = self._switched(node)
            place = (profile, start)
            if place in layouts[gpu].used or not self._may_hold(layouts[gpu], place):
                return False
            layouts[gpu] = layouts[gpu].holding(place)
            if not is_legal(layouts[gpu]):
                return False
        return True

    def charge(self, node: int, slices: Iterable[Slice], replicas: int) -> list[int]:
        """Take instances, or give them back with -1; returns the GPUs that this switches on or off."""
        turned = []
        for gpu, profile, start in slices:
            if gpu not in self._layouts[node]:
                self._switch_on(node, gpu)
                turned.append(gpu)
            layout, place = self._layouts[node][gpu], (profile, start)
            if place not in layout.existing:
                self.points -= replicas * self._create_price
            used = layout.used | {place} if replicas > 0 else layout.used - {place}
            self._layouts[node][gpu] = replace(layout, used=used, reserved=layout.reserved - {place})
            if self._switch_off(node, gpu):
                turned.append(gpu)
        return turned

    def reserve(self, node: int, gpu: int, places: Iterable[InstancePlace]) -> bool:
        """Keep instances for jobs placed later, as far as legal; True if that switches MIG mode on."""
        turned = gpu not in self._layouts[node]
        if turned:
            self._switch_on(node, gpu)
        for place in sorted(places):
            layout = self._layouts[node][gpu]
            more = replace(layout, reserved=layout.reserved | {place})
            if place not in layout.used and self._may_hold(layout, place) and is_legal(more):
                self._layouts[node][gpu] = more
        return turned

    def release(self, node: int, gpu: int) -> bool:
        """Keep no instances any longer; True if that switches MIG mode off again."""
        self._layouts[node][gpu] = replace(self._layouts[node][gpu], reserved=frozenset())
        return self._switch_off(node, gpu)

    def _switched(self, node: int) -> MigLayout:
        return MigLayout(self._model[node], frozenset(), fresh=True)

    def _switch_on(self, node: int, gpu: int) -> None:
        self._layouts[node][gpu] = self._switched(node)
        self.points -= self._switch_price or 0

    def _switch_off(self, node: int, gpu: int) -> bool:
        layout = self._layouts[node][gpu]
        if not layout.fresh or layout.used or layout.reserved:
            return False
        del self._layouts[node][gpu]
        self.points += self._switch_price or 0
        return True

    def _may_switch(self, node: int) -> bool:
        model = self._model.get(node)
        return self._switch_price is not None and model is not None and mig_geometry(model) is not None

    def _may_hold(self, layout: MigLayout, place: InstancePlace) -> bool:
        return self._may_create or layout.fresh or place in layout.existing

    def _best(self, layouts: dict[int, MigLayout], profile: str) -> tuple[int, int] | None:
        """(GPU, start): a reserved instance, then the cheapest, then the one that leaves most useful room."""
        ways = []
        for gpu, layout in sorted(layouts.items()):
            spot = best_instance_start(
                layout, profile, self._wanted, may_create=self._may_create or layout.fresh
            )
            if spot is not None:
                kept = (profile, spot.start) in layout.reserved
                ways.append((not kept, self._create_price * spot.created, spot, gpu))
        if not ways:
            return None
        _, _, spot, gpu = min(ways)
        return gpu, spot.start
