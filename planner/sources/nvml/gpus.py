"""
One GPU as NVML tells it: identity, memory, MIG layout, links, and its vitals with the rules that judge them.

Rules of health say which GPUs take no more jobs, and which are to be looked at. They need no history, and
hold under every policy. Source: "GPU Memory Error Management" (row remapping), part of the deployment and
management documentation of NVIDIA's data centre GPUs.
"""

from __future__ import annotations

import ctypes
import time
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

import pynvml

from gpuplan.models.cluster import MigInstance
from gpuplan.models.health.measurement import FATAL_XIDS
from gpuplan.models.mig import MEDIA_EXTENSIONS, mig_geometry
from gpuplan.planner.sources.nvml.library import GpuGoneError, asked

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from gpuplan.models.mig import MigGeometry
    from gpuplan.planner.sources.nvml.library import Note


@dataclass(frozen=True, slots=True)
class HealthRules:
    """What makes a GPU unhealthy."""

    fatal_xids: Mapping[int, str] = field(default_factory=lambda: FATAL_XIDS)
    """XIDs that exclude a GPU, with their names (NVIDIA's catalogue of XID errors)."""
    most_uncorrectable: int = 0
    """Uncorrectable ECC errors since the last reset that a GPU may have: each spoils a program's memory."""
    degrees_below_slowdown: int = 0
    """
    A GPU is too hot at its own slowdown threshold less this, in °C: there the hardware lowers its clocks.
    """
    most_idle_utilization: int = 0
    """Utilization in percent up to which a GPU does nothing."""


@dataclass(frozen=True, slots=True)
class Sample:
    """What one look at a GPU shows; None is unknown."""

    temperature: int | None
    """In °C."""
    slowed_by_heat: bool
    """The hardware says that it lowers the clocks because of its temperature."""
    utilization: int | None
    """Percent of the time in which a kernel ran; unknown in MIG mode."""
    memory_mib: int | None
    """Memory in use."""
    processes: frozenset[int]
    """Pids of the processes that compute on it."""
    at: float = 0.0
    """Time of the look, in seconds of a monotonic clock."""


@dataclass(slots=True)
class Vitals:
    """What is known of the health of one GPU."""

    gone: str = ""
    """Why it does not answer; empty if it does."""
    uncorrectable: int = 0
    rows_pending: bool = False
    rows_failed: bool = False
    slowdown: int | None = None
    """Slowdown threshold in °C; None if the GPU does not tell it."""
    xids: set[int] = field(default_factory=set)
    samples: list[Sample] = field(default_factory=list)
    """In the order of time; several if the GPU was watched."""


def faults(vitals: Vitals, rules: HealthRules, *, watched: bool) -> Iterator[str]:
    """
    What makes a GPU unhealthy, in words that stay the same from one reading to the next.

    Heat counts if it lasts as long as the GPU was watched.
    """
    if vitals.gone:
        yield f"it does not answer ({vitals.gone})"
    for xid in sorted(vitals.xids & rules.fatal_xids.keys()):
        yield f"XID {xid} ({rules.fatal_xids[xid]})"
    if vitals.uncorrectable > rules.most_uncorrectable:
        yield "uncorrectable ECC errors since its last reset"
    if vitals.rows_failed:
        yield "row remapping failed"
    if vitals.rows_pending:
        yield "row remapping waits for a reset"
    if watched and _hot_samples(vitals, rules) == len(vitals.samples) > 0:
        yield "it is too hot"


def warnings(vitals: Vitals, rules: HealthRules, *, watched_seconds: float) -> Iterator[str]:
    """What is to be looked at, and excludes no job."""
    hot = _hot_samples(vitals, rules)
    if hot and (not watched_seconds or hot < len(vitals.samples)):
        hottest = max((each.temperature or 0 for each in vitals.samples), default=0)
        limit = "" if vitals.slowdown is None else f"; it slows down at {vitals.slowdown} °C"
        yield f"it is hot: {hottest} °C{limit}"
    for xid in sorted(vitals.xids - rules.fatal_xids.keys()):
        yield f"XID {xid}, which is an error of a program"
    stayed = frozenset.intersection(*(each.processes for each in vitals.samples)) if vitals.samples else ()
    if watched_seconds and stayed and all(_is_idle(each, rules) for each in vitals.samples):
        pids = ", ".join(map(str, sorted(stayed)))
        yield f"it did nothing for {watched_seconds:g} s, and belongs to a process ({pids})"


def _hot_samples(vitals: Vitals, rules: HealthRules) -> int:
    limit = None if vitals.slowdown is None else vitals.slowdown - rules.degrees_below_slowdown
    return sum(
        each.slowed_by_heat
        or (limit is not None and each.temperature is not None and each.temperature >= limit)
        for each in vitals.samples
    )


def _is_idle(sample: Sample, rules: HealthRules) -> bool:
    return sample.utilization is not None and sample.utilization <= rules.most_idle_utilization


SWITCH: Final = "switch"
"""The other end of an NVLink that leads to an NVSwitch: all GPUs of a host that have one are joined."""

UNKNOWN_MODEL: Final = "gpu"
"""Model of GPUs that do not tell it; that of Slurm's GRES without a type."""

_MIB: Final = 2**20
_HIDDEN_MIB: Final = 1024
"""Memory in use from which a GPU has a process, visible or not; a screen or a driver takes less."""
_NUMA_WORDS: Final = 1
"""64-bit words for the set of NUMA nodes: a snapshot has up to 64 of them."""


@dataclass(frozen=True, slots=True)
class GpuProcess:
    """A process that computes on a GPU."""

    pid: int
    instance: int | None
    """Id of the GPU instance that it is on; None on a GPU without MIG."""


@dataclass(slots=True)
class GpuReading:
    """What NVML tells of one GPU."""

    index: int
    handle: Any = None
    """NVML's handle; None if the GPU does not give one."""
    uuid: str = ""
    bus: str = ""
    model: str = UNKNOWN_MODEL
    memory_mib: int = 0
    watts: int = 0
    instances: dict[int, MigInstance] | None = None
    """MIG instances by NVML's id; None if MIG mode is off, or if the layout is not understood."""
    unclear: bool = False
    """Its MIG layout cannot be expressed, or its processes cannot be read: what is free is not known."""
    numa: int | None = None
    links: frozenset[str] = frozenset()
    """PCI bus ids of the GPUs at the other ends of its NVLinks, or `SWITCH`."""
    clique: str = ""
    """Fabric of NVLink beyond the host: UUID of the fabric and number of the clique."""
    processes: tuple[GpuProcess, ...] = ()
    hidden: bool = False
    """Memory is in use and no process is visible, as from within a container."""
    vitals: Vitals = field(default_factory=Vitals)


def read_gpu(index: int, note: Note) -> GpuReading:
    """One GPU; if it does not answer, with what it told before."""
    found = GpuReading(index)

    def ask(call: Callable[..., Any], *arguments: Any, beyond: bool = False) -> Any:
        return asked(call, *arguments, subject=f"GPU {index}", note=note, beyond=beyond)

    try:
        found.handle = ask(pynvml.nvmlDeviceGetHandleByIndex, index)
        if found.handle is None:
            found.vitals.gone = "the driver refuses access to it"
            return found
        found.model = _model(ask(pynvml.nvmlDeviceGetName, found.handle))
        _read_identity(found, ask)
        _read_layout(found, ask, note)
        _read_places(found, ask)
        _read_vitals(found, ask)
        found.vitals.samples.append(sample(found, note))
        _read_hidden(found, note)
    except GpuGoneError as error:
        found.vitals.gone = str(error)
    return found


def sample(gpu: GpuReading, note: Note) -> Sample:
    """
    One look at a GPU; its processes are those of the last look.

    Raises
    ------
    GpuGoneError
        The GPU does not answer any more.
    """

    def ask(call: Callable[..., Any], *arguments: Any) -> Any:
        return asked(call, *arguments, subject=f"GPU {gpu.index}", note=note)

    memory = ask(pynvml.nvmlDeviceGetMemoryInfo, gpu.handle, pynvml.nvmlMemory_v2)
    rates = ask(pynvml.nvmlDeviceGetUtilizationRates, gpu.handle)
    reasons = ask(pynvml.nvmlDeviceGetCurrentClocksEventReasons, gpu.handle) or 0
    running = ask(pynvml.nvmlDeviceGetComputeRunningProcesses_v3, gpu.handle)
    if running is None and not gpu.unclear:
        gpu.unclear = True
        note(f"GPU {gpu.index}", "its processes cannot be read")
    gpu.processes = tuple(GpuProcess(each.pid, _set(each.gpuInstanceId)) for each in running or ())
    return Sample(
        temperature=ask(pynvml.nvmlDeviceGetTemperature, gpu.handle, pynvml.NVML_TEMPERATURE_GPU),
        slowed_by_heat=bool(reasons & pynvml.nvmlClocksEventReasonHwThermalSlowdown),
        utilization=None if rates is None else rates.gpu,
        memory_mib=None if memory is None else int(memory.used) // _MIB,
        processes=frozenset(each.pid for each in gpu.processes),
        at=time.monotonic(),
    )


def _read_hidden(found: GpuReading, note: Note) -> None:
    used = found.vitals.samples[-1].memory_mib or 0
    if used >= _HIDDEN_MIB and not found.processes and not found.instances:
        found.hidden = True
        note(f"GPU {found.index}", f"{used:,} MiB are in use, and no process is visible here")


def _set(number: int | None) -> int | None:
    """A number that NVML may leave unset, which is all bits."""
    return None if number is None or number == 0xFFFFFFFF else number


def _model(name: str | None) -> str:
    """A product name as GPU feature discovery writes it in `nvidia.com/gpu.product`."""
    plain = "-".join((name or "").split())
    # Drivers before 470 leave the vendor out.
    return f"NVIDIA-{plain}" if mig_geometry(f"NVIDIA-{plain}") else plain or UNKNOWN_MODEL


def _read_identity(found: GpuReading, ask: Callable[..., Any]) -> None:
    found.uuid = ask(pynvml.nvmlDeviceGetUUID, found.handle) or ""
    pci = ask(pynvml.nvmlDeviceGetPciInfo_v3, found.handle)
    found.bus = "" if pci is None else _bus(pci)
    memory = ask(pynvml.nvmlDeviceGetMemoryInfo, found.handle)
    found.memory_mib = 0 if memory is None else int(memory.total) // _MIB
    limit = ask(pynvml.nvmlDeviceGetEnforcedPowerLimit, found.handle)
    found.watts = 0 if limit is None else round(limit / 1000)


def _bus(pci: Any) -> str:
    text = pci.busId
    return (text.decode() if isinstance(text, bytes) else str(text)).upper()


# MIG layout: NVML lists the instances of one profile at a time.


def _read_layout(found: GpuReading, ask: Callable[..., Any], note: Note) -> None:
    modes = ask(pynvml.nvmlDeviceGetMigMode, found.handle)
    if modes is None:
        return
    if modes[0] != modes[1]:
        note(f"GPU {found.index}", "its MIG mode changes with its next reset")
    if modes[0] != pynvml.NVML_DEVICE_MIG_ENABLE:
        return
    geometry = mig_geometry(found.model)
    instances: dict[int, MigInstance] = {}
    for which in range(pynvml.NVML_GPU_INSTANCE_PROFILE_COUNT):
        profile = ask(pynvml.nvmlDeviceGetGpuInstanceProfileInfo, found.handle, which, beyond=True)
        if profile is None:
            continue
        listed = _instances(found, profile, ask)
        if listed is None:
            found.unclear = True
            note(f"GPU {found.index}", "its MIG instances cannot be read; run this as root")
            return
        for each in listed:
            name = profile_name(geometry, profile, each.placement)
            if name is None:
                found.unclear = True
                text = f"{_text(profile.name)} at slice {each.placement.start}"
                note(f"GPU {found.index}", f"MIG instance {text} is not known of model {found.model}")
                return
            instances[each.id] = MigInstance(profile=name, start=each.placement.start)
    if geometry is None:
        found.unclear = True
        note(
            f"GPU {found.index}", f"it is in MIG mode, and the profiles of model {found.model} are not known"
        )
        return
    found.instances = dict(sorted(instances.items(), key=lambda item: item[1].start))


def _instances(found: GpuReading, profile: Any, ask: Callable[..., Any]) -> list[Any] | None:
    """The instances of one profile; None if they cannot be read."""
    handles = (pynvml.c_nvmlGpuInstance_t * profile.instanceCount)()
    count = ctypes.c_uint(profile.instanceCount)
    done = ask(pynvml.nvmlDeviceGetGpuInstances, found.handle, profile.id, handles, ctypes.byref(count))
    if done is None:
        return None
    listed = [ask(pynvml.nvmlGpuInstanceGetInfo, handle) for handle in handles[: count.value]]
    return None if None in listed else listed


def profile_name(geometry: MigGeometry | None, profile: Any, place: Any) -> str | None:
    """
    The snapshot's name of a profile at a place; None if the model has none like it there.

    Profiles are told apart by slices and media extensions: boards of one model differ in the memory of their
    names.
    """
    has_media = _text(profile.name).endswith(MEDIA_EXTENSIONS)
    for known in geometry.profiles.values() if geometry else ():
        alike = (known.compute_slices, known.memory_slices) == (profile.sliceCount, place.size)
        if alike and known.name.endswith(MEDIA_EXTENSIONS) == has_media and place.start in known.starts:
            return known.name
    return None


def _text(value: bytes | str) -> str:
    return value.decode(errors="replace") if isinstance(value, bytes) else value


# Places: the NUMA node, and what NVLink joins the GPU with.


def _read_places(found: GpuReading, ask: Callable[..., Any]) -> None:
    scope = pynvml.NVML_AFFINITY_SCOPE_NODE
    nodes = ask(pynvml.nvmlDeviceGetMemoryAffinity, found.handle, _NUMA_WORDS, scope)
    if nodes is not None and nodes[0]:
        found.numa = (nodes[0] & -nodes[0]).bit_length() - 1  # the lowest one
    found.links = frozenset(_link_ends(found, ask))
    fabric = pynvml.c_nvmlGpuFabricInfoV_t()
    if ask(pynvml.nvmlDeviceGetGpuFabricInfoV, found.handle, ctypes.byref(fabric)) is not None:
        uuid = bytes(fabric.clusterUuid)
        if fabric.state == pynvml.NVML_GPU_FABRIC_STATE_COMPLETED and any(uuid):
            found.clique = f"{_uuid_text(uuid)}.{fabric.cliqueId}"


def _uuid_text(uuid: bytes) -> str:
    digits = uuid.hex()
    return "-".join((digits[:8], digits[8:12], digits[12:16], digits[16:20], digits[20:]))


def _link_ends(found: GpuReading, ask: Callable[..., Any]) -> Iterator[str]:
    for link in range(pynvml.NVML_NVLINK_MAX_LINKS):
        active = ask(pynvml.nvmlDeviceGetNvLinkState, found.handle, link, beyond=True)
        if active is None:
            return
        if not active:
            continue
        kind = ask(pynvml.nvmlDeviceGetNvLinkRemoteDeviceType, found.handle, link)
        if kind == pynvml.NVML_NVLINK_DEVICE_TYPE_SWITCH:
            yield SWITCH
        elif kind == pynvml.NVML_NVLINK_DEVICE_TYPE_GPU:
            remote = ask(pynvml.nvmlDeviceGetNvLinkRemotePciInfo, found.handle, link)
            if remote is not None:
                yield _bus(remote)


def _read_vitals(found: GpuReading, ask: Callable[..., Any]) -> None:
    vitals = found.vitals
    vitals.slowdown = ask(
        pynvml.nvmlDeviceGetTemperatureThreshold, found.handle, pynvml.NVML_TEMPERATURE_THRESHOLD_SLOWDOWN
    )
    vitals.uncorrectable = (
        ask(
            pynvml.nvmlDeviceGetTotalEccErrors,
            found.handle,
            pynvml.NVML_MEMORY_ERROR_TYPE_UNCORRECTED,
            pynvml.NVML_VOLATILE_ECC,
        )
        or 0
    )
    if rows := ask(pynvml.nvmlDeviceGetRemappedRows, found.handle):
        _, _, pending, failed = rows
        vitals.rows_pending, vitals.rows_failed = bool(pending), bool(failed)
