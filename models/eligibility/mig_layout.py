"""MIG layout of a GPU after given instances of it are in use."""

from __future__ import annotations

from typing import TYPE_CHECKING

from gpuplan.models.mig import MEDIA_EXTENSIONS

if TYPE_CHECKING:
    from collections.abc import Collection

    from gpuplan.models.cluster import Gpu, MigInstance
    from gpuplan.models.mig import MigGeometry
    from gpuplan.models.placement import MigSlice


def layout_after(
    gpu: Gpu, geometry: MigGeometry | None, used: Collection[MigInstance]
) -> tuple[MigInstance, ...] | None:
    """
    The used instances and the idle ones that can coexist with them, by start; None means that MIG mode stays
    off.

    Idle instances that conflict with used ones are destroyed: those with overlapping memory slices, and one
    with media extensions if a used instance has them, since a GPU has media extensions only once.
    """
    if gpu.mig is None and not used:
        return None
    in_use = set(used)
    taken = {piece for instance in in_use for piece in memory_slices(instance, geometry)}
    media = any(instance.profile.endswith(MEDIA_EXTENSIONS) for instance in in_use)
    stay = {
        instance
        for instance in gpu.mig or ()
        if instance in in_use
        or (
            taken.isdisjoint(memory_slices(instance, geometry))
            and not (media and instance.profile.endswith(MEDIA_EXTENSIONS))
        )
    }
    return tuple(sorted(in_use | stay, key=lambda instance: (instance.start, instance.profile)))


def memory_slices(instance: MigInstance | MigSlice, geometry: MigGeometry | None) -> range:
    """Memory slices of an instance; only the first one if its profile is unknown."""
    profile = geometry.profiles.get(instance.profile) if geometry else None
    return range(instance.start, instance.start + (profile.memory_slices if profile else 1))
