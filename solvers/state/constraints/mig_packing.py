"""
Where one more MIG instance fits on a GPU, and what it costs there.

A layout is an immutable value, and what may be added to it is cached: a cluster has few different layouts.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import lru_cache
from typing import TYPE_CHECKING, TypeAlias

from gpuplan.models.cluster import MigInstance
from gpuplan.models.mig import mig_geometry

if TYPE_CHECKING:
    from gpuplan.models.mig import MigGeometry

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
