"""
MIG profiles and the legal positions of their instances on a GPU.

Legality depends on positions, not on sums: {3g, 3g, 1g} adds up to 7 compute slices and is illegal, since
each 3g takes 4 of 8 memory slices. Sources: NVIDIA MIG User Guide ("Supported MIG Profiles") and `nvidia-smi
mig -lgip/-lgipp` transcripts; docs/formulation.md lists what is unconfirmed.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import cache
from typing import TYPE_CHECKING, Final

from gpuplan.models.units import MILLI

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from gpuplan.models.cluster import MigInstance

MEDIA_EXTENSIONS: Final = "+me"
"""Suffix of profiles with media extensions."""
_PROFILE = re.compile(r"(\d+)g\.\d+gb(\+me)?")


@dataclass(frozen=True, slots=True)
class MigProfile:
    """A type of MIG instance on one GPU model."""

    name: str
    compute_slices: int
    memory_slices: int
    most: int
    """Maximum number of instances of this profile on one GPU."""
    starts: tuple[int, ...]
    """Memory slices at which an instance may start."""


@dataclass(frozen=True, slots=True)
class MigGeometry:
    """All profiles of one GPU model."""

    memory_slices: int
    profiles: dict[str, MigProfile]

    def faults(self, instances: Iterable[MigInstance]) -> Iterator[str]:
        """
        Reasons why a set of instances cannot exist on one GPU; empty if it is legal.

        It is legal if every instance is at an allowed start, no memory slice is used twice, no profile
        exceeds its maximum, and at most one instance has media extensions.
        """
        owner: dict[int, str] = {}
        count: dict[str, int] = {}
        for instance in sorted(instances, key=lambda instance: (instance.start, instance.profile)):
            profile = self.profiles.get(instance.profile)
            label = f"{instance.profile} at slice {instance.start}"
            if profile is None:
                yield f"{label}: this GPU model offers {', '.join(sorted(self.profiles))}"
                continue
            count[profile.name] = count.get(profile.name, 0) + 1
            if instance.start not in profile.starts:
                yield f"{label}: may start at {', '.join(map(str, profile.starts))}"
                continue
            for memory_slice in range(instance.start, instance.start + profile.memory_slices):
                if memory_slice in owner:
                    yield f"{label}: memory slice {memory_slice} belongs to {owner[memory_slice]}"
                    break
                owner[memory_slice] = label
        for name, found in sorted(count.items()):
            if found > self.profiles[name].most:
                yield f"{found} x {name}: at most {self.profiles[name].most} fit one GPU"
        media = sum(found for name, found in count.items() if name.endswith(MEDIA_EXTENSIONS))
        if media > 1:
            yield f"{media} instances with media extensions: at most 1 per GPU"


def profile_milli(name: str) -> int:
    """
    Thousandths of a GPU that a profile counts for in weights and quotas: its compute slices out of 7.

    GPUs with 4 slices (A30) count in sevenths too, because the profile name does not tell the GPU model.

    Raises
    ------
    ValueError
        The name is not of the form `3g.40gb` or `1g.10gb+me`.
    """
    match = _PROFILE.fullmatch(name)
    if match is None:
        raise ValueError(f"expected a MIG profile such as 3g.40gb, found {name!r}")
    return min(MILLI, int(match[1]) * MILLI // 7)


def is_profile(name: str) -> bool:
    """True if a name is of the form `3g.40gb` or `1g.10gb+me`."""
    return _PROFILE.fullmatch(name) is not None


def _seven_slices(memory: tuple[int, int, int, int]) -> MigGeometry:
    """Geometry of A100, H100, H200, B200, GB200: memory in GB of the 1g, 2g (and double 1g), 3g/4g and 7g."""
    one, two, four, whole = memory
    return _geometry(
        8,
        MigProfile(f"1g.{one}gb", 1, 1, 7, (0, 1, 2, 3, 4, 5, 6)),
        MigProfile(f"1g.{one}gb{MEDIA_EXTENSIONS}", 1, 1, 1, (0, 1, 2, 3, 4, 5, 6)),
        MigProfile(f"1g.{two}gb", 1, 2, 4, (0, 2, 4, 6)),
        MigProfile(f"2g.{two}gb", 2, 2, 3, (0, 2, 4)),
        MigProfile(f"3g.{four}gb", 3, 4, 2, (0, 4)),
        MigProfile(f"4g.{four}gb", 4, 4, 1, (0,)),
        MigProfile(f"7g.{whole}gb", 7, 8, 1, (0,)),
    )


def _geometry(memory_slices: int, *profiles: MigProfile) -> MigGeometry:
    return MigGeometry(memory_slices, {profile.name: profile for profile in profiles})


_A30: Final = _geometry(
    4,
    MigProfile("1g.6gb", 1, 1, 4, (0, 1, 2, 3)),
    MigProfile("1g.6gb+me", 1, 1, 1, (0, 1, 2, 3)),
    MigProfile("2g.12gb", 2, 2, 2, (0, 2)),
    MigProfile("2g.12gb+me", 2, 2, 1, (0, 2)),
    MigProfile("4g.24gb", 4, 4, 1, (0,)),
)
_A100_40, _80 = _seven_slices((5, 10, 20, 40)), _seven_slices((10, 20, 40, 80))
_H200, _B200, _GB200 = (
    _seven_slices((18, 35, 71, 141)),
    _seven_slices((23, 45, 90, 180)),
    _seven_slices((23, 47, 93, 186)),
)
_H100_94, _GH200 = _seven_slices((12, 24, 47, 94)), _seven_slices((12, 24, 48, 96))

# First the short name, then the names that GPU feature discovery reports in `nvidia.com/gpu.product`.
_GEOMETRY_BY_MODEL: Final = {
    "A30-24GB": _A30, "A30": _A30, "NVIDIA-A30": _A30,
    "A100-40GB": _A100_40, "NVIDIA-A100-SXM4-40GB": _A100_40, "NVIDIA-A100-PCIE-40GB": _A100_40,
    "A100-80GB": _80, "NVIDIA-A100-SXM4-80GB": _80, "NVIDIA-A100-80GB-PCIe": _80,
    "H100-80GB": _80, "H100-80GB-SXM5": _80, "H100-80GB-PCIe": _80,
    "NVIDIA-H100-80GB-HBM3": _80, "NVIDIA-H100-PCIe": _80,
    "H100-94GB-NVL": _H100_94, "NVIDIA-H100-NVL": _H100_94,
    "H100-96GB-GH200": _GH200, "NVIDIA-GH200-480GB": _GH200,
    "H200-141GB": _H200, "NVIDIA-H200": _H200, "NVIDIA-H200-NVL": _H200,
    "B200-180GB": _B200, "NVIDIA-B200": _B200,
    "GB200-186GB": _GB200, "NVIDIA-GB200": _GB200,
}  # fmt: skip


@cache
def mig_geometry(gpu_model: str) -> MigGeometry | None:
    """MIG geometry of a GPU model; None if it has no MIG or is unknown."""
    return _GEOMETRY_BY_MODEL.get(gpu_model)
