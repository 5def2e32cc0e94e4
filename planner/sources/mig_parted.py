"""
Configuration files of nvidia-mig-parted: MIG layouts of hosts, as counts of profiles for each GPU.

Format: README of NVIDIA's mig-parted, `version: v1`. It has counts and no places: the driver chooses them
when the file is applied.
"""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Annotated, Final, Literal, TypeAlias

import yaml
from pydantic import Field

from gpuplan.models.base import Noun
from gpuplan.models.cluster import Gpu, MigInstance, Node
from gpuplan.models.errors import BadInputError, InputProblem, truncated_names
from gpuplan.models.mig import MigGeometry, mig_geometry
from gpuplan.models.units import AtLeastOne, Label, Name
from gpuplan.planner.sources.files import load_noun

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    Layout: TypeAlias = Counter[str] | None
    """Instances of each profile on one GPU; None if MIG mode is off."""

_ALL: Final = "all"
_Index: TypeAlias = Annotated[int, Field(strict=True, ge=0, le=127)]


class MigDevices(Noun):
    """The layout of some GPUs of a host."""

    devices: Literal["all"] | _Index | tuple[_Index, ...]
    """Indices of the GPUs, or `all`."""
    mig_enabled: bool = Field(alias="mig-enabled")
    """True: MIG mode is on."""
    mig_devices: dict[Name, AtLeastOne] = Field(default_factory=dict, alias="mig-devices")
    """Number of instances of each profile."""
    device_filter: Label | tuple[Label, ...] = Field(default="", alias="device-filter")
    """PCI ids of the GPU models that this is for; empty means all."""


class MigPartedFile(Noun):
    """Configurations by name."""

    version: Literal["v1"]
    """Version of the format."""
    mig_configs: dict[Name, tuple[MigDevices, ...]] = Field(alias="mig-configs")
    """Layouts of the GPUs of a host, by the name of a configuration."""


def read_mig_parted(path: str, nodes: Mapping[str, Node]) -> dict[str, dict[int, Layout]]:
    """
    Layouts by node and GPU index, from a file with one configuration for each node, named after it.

    GPUs that a configuration does not name have no entry.

    Raises
    ------
    BadInputError
        With every problem: of the format, configurations of no node, GPUs that a node does not have or that
        are given twice, and layouts that no GPU of the model can have.
    """
    file = load_noun(path, MigPartedFile)
    problems: list[InputProblem] = []
    found: dict[str, dict[int, Layout]] = {}
    for name, entries in sorted(file.mig_configs.items()):
        node = nodes.get(name)
        if node is None or node.gpus is None:
            known = truncated_names(node.name for node in nodes.values() if node.gpus)
            text = f"configuration '{name}' is of no node with GPUs; expected one of: {known}."
            problems.append(InputProblem(path, text))
            continue
        layouts = found[name] = {}
        for entry in entries:
            faults = _faults(entry, node, layouts)
            problems += [InputProblem(path, f"configuration '{name}' {fault}") for fault in faults]
            for index in _indices(entry, node):
                layouts[index] = Counter(entry.mig_devices) if entry.mig_enabled else None
    if problems:
        raise BadInputError(tuple(problems))
    return found


def _indices(entry: MigDevices, node: Node) -> tuple[int, ...]:
    if entry.devices == _ALL:
        return tuple(range(node.gpu_count))
    return entry.devices if isinstance(entry.devices, tuple) else (int(entry.devices),)


def _faults(entry: MigDevices, node: Node, given: Mapping[int, Layout]) -> Iterator[str]:
    indices, count = _indices(entry, node), node.gpu_count
    if entry.device_filter:
        yield "has a device-filter, which gpuplan does not read; expected one configuration for each node."
    if far := [index for index in indices if index >= count]:
        yield f"names GPU {far[0]}; expected one of the {count} of the node, 0 to {count - 1}."
    if twice := [index for index in indices if index in given or indices.count(index) > 1]:
        yield f"names GPU {twice[0]} twice; expected each GPU once."
    if not entry.mig_enabled:
        if entry.mig_devices:
            yield "has mig-devices although mig-enabled is false; expected none."
        return
    model = node.gpu_model or ""
    geometry = mig_geometry(model)
    if geometry is None:
        yield f"turns MIG mode on; expected it off on GPU model '{model}', which is not known to have MIG."
    elif strange := sorted(entry.mig_devices.keys() - geometry.profiles.keys()):
        offers = ", ".join(sorted(geometry.profiles))
        yield f"has profile '{strange[0]}'; expected those of GPU model '{model}': {offers}."
    elif not has_places(geometry, entry.mig_devices):
        what = layout_text(Counter(entry.mig_devices))
        yield f"has {what} on one GPU; expected what fits on one of model '{model}'."


def has_places(geometry: MigGeometry, counts: Mapping[str, int]) -> bool:
    """True if one GPU can have all these instances at some places."""
    if any(count > geometry.profiles[name].most for name, count in counts.items()):
        return False
    # The largest first, since they have the fewest places.
    wanted = sorted(
        (name for name, count in counts.items() for _ in range(count)),
        key=lambda name: -geometry.profiles[name].memory_slices,
    )
    if sum(geometry.profiles[name].memory_slices for name in wanted) > geometry.memory_slices:
        return False

    def placed(instances: tuple[MigInstance, ...]) -> bool:
        if any(geometry.faults(instances)):
            return False
        if len(instances) == len(wanted):
            return True
        profile = geometry.profiles[wanted[len(instances)]]
        return any(
            placed((*instances, MigInstance(profile=profile.name, start=start))) for start in profile.starts
        )

    return placed(())


def layouts_of(node: Node, in_mig_mode: Iterable[Gpu] | None = None) -> dict[int, Layout]:
    """
    Layouts of a node's GPUs by index.

    `in_mig_mode` are its GPUs in MIG mode at another time, such as after a plan.
    """
    gpus = node.gpus.details if in_mig_mode is None and node.gpus else in_mig_mode or ()
    layouts = {gpu.index: gpu.mig for gpu in gpus}
    return {
        index: None if (mig := layouts.get(index)) is None else Counter(each.profile for each in mig)
        for index in range(node.gpu_count)
    }


def mig_parted_text(layouts: Mapping[str, Mapping[int, Layout]]) -> str:
    """A file with one configuration for each node; GPUs of equal layouts share an entry."""
    configs = {name: list(_entries(gpus)) for name, gpus in sorted(layouts.items())}
    return yaml.safe_dump({"version": "v1", "mig-configs": configs}, sort_keys=False, default_flow_style=None)


def _entries(gpus: Mapping[int, Layout]) -> Iterator[dict[str, object]]:
    alike: dict[tuple[tuple[str, int], ...] | None, list[int]] = {}
    for index, layout in sorted(gpus.items()):
        alike.setdefault(None if layout is None else tuple(sorted(layout.items())), []).append(index)
    for key, indices in alike.items():
        entry: dict[str, object] = {"devices": indices, "mig-enabled": key is not None}
        yield entry if key is None else entry | {"mig-devices": dict(key)}


def layout_text(layout: Layout) -> str:
    """A layout in words: `2 × 1g.10gb + 3g.40gb`, `no instances`, `MIG off`."""
    if layout is None:
        return "MIG off"
    parts = (name if count == 1 else f"{count} × {name}" for name, count in sorted(layout.items()) if count)
    return " + ".join(parts) or "no instances"
