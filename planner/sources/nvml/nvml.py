"""Read this host through NVML: its GPUs with their health, and the processes on them as running jobs."""

from __future__ import annotations

import ctypes
import os
import socket
import time
from collections import Counter
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, Final, TypeAlias

import psutil
import pynvml

from gpuplan.models.cluster import Cluster, Gpu, Node, NodeGpus
from gpuplan.models.errors import PlannerError
from gpuplan.models.health.measurement import BUSY, COOL, Measurement, RowRemap, held_at_least, held_at_most
from gpuplan.models.job import Job
from gpuplan.models.queue import FOREIGN_QUEUE, Queue
from gpuplan.models.snapshot import Snapshot
from gpuplan.models.units import MILLI
from gpuplan.planner.sources.nvml.gpus import (
    UNKNOWN_MODEL,
    GpuReading,
    HealthRules,
    faults,
    read_gpu,
    sample,
    warnings,
)
from gpuplan.planner.sources.nvml.library import GpuGoneError, asked, asked_of_host, opened_nvml
from gpuplan.planner.sources.slurm.values import name_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from gpuplan.planner.sources.nvml.library import Note


_LOOK_SECONDS: Final = 1.0
"""Time between two looks at a watched GPU; NVML's utilization is of the last second at most."""

_LONGEST_GAP: Final = 10 * _LOOK_SECONDS
"""Time between two looks from which what both see is not taken to last; a busy host looks late."""

_LONGEST_FAULT: Final = 253
"""Characters of a fault in a snapshot."""


@dataclass(frozen=True, slots=True)
class Host:
    """What the operating system tells of this host."""

    name: str
    cpus: int
    memory_mib: int
    owner: Callable[[int], Owner | None]
    """User and start of a process, by its id."""
    clock: Callable[[], datetime] = field(default=lambda: datetime.now(UTC))


@dataclass(frozen=True, slots=True)
class HostReading:
    """A snapshot of one host, with what is to be told beside it."""

    snapshot: Snapshot
    findings: tuple[str, ...]
    """One line for each GPU that takes no jobs, or is to be looked at."""
    notes: tuple[str, ...]
    """One line for each fact that is not understood."""


def this_host() -> Host:
    """The host that this process runs on."""
    memory = psutil.virtual_memory().total // 2**20
    return Host(name_of(socket.gethostname()), os.cpu_count() or 1, memory, owner_of)


def read_host(host: Host, *, watch_seconds: float = 0.0) -> HostReading:
    """
    A snapshot of this host; with `watch_seconds` after a look at its GPUs once a second for that time.

    Raises
    ------
    PlannerError
        There is no driver, it does not work, or it has no GPUs.
    """
    notes: set[str] = set()

    def note(subject: str, what: str) -> None:
        notes.add(f"{subject}: {what}")

    with opened_nvml():
        count = asked_of_host(pynvml.nvmlDeviceGetCount, note=note)
        if not count:
            why = "".join(f"\n{each}" for each in sorted(notes))
            raise PlannerError(
                f"NVML finds no GPU on {host.name}.{why}\n"
                "Run this on a host with NVIDIA GPUs; in a container, give it the GPUs."
            )
        gpus = [read_gpu(index, note) for index in range(count)]
        with _xid_events(gpus, note) as told:
            _watch(gpus, told, watch_seconds, note)
    taken_at = host.clock().replace(microsecond=0)
    unhealthy = {
        gpu.index: "; ".join(faults(gpu.vitals, HealthRules(), watched=watch_seconds > 0)) for gpu in gpus
    }
    unhealthy |= _of_other_models(gpus)
    found = {f"GPU {index}: {why}, so no job starts there" for index, why in unhealthy.items() if why}
    for gpu in gpus:
        for warning in warnings(gpu.vitals, HealthRules(), watched_seconds=watch_seconds):
            found.add(f"GPU {gpu.index}: {warning}")
    if any(gpu.unclear for gpu in gpus):
        note(host.name, "what is free on its GPUs is not known, so no job starts there")
    jobs = tuple(foreign_jobs(host.name, gpus, taken_at, note, owner=host.owner))
    snapshot = Snapshot(
        taken_at=taken_at,
        cluster=Cluster(name=host.name, nodes=(_node(host, gpus, unhealthy),)),
        queues=(Queue(name=FOREIGN_QUEUE),) if jobs else (),
        jobs=jobs,
        measured=tuple(_measured(host.name, gpu, round(watch_seconds)) for gpu in gpus if gpu.vitals.samples),
    )
    return HostReading(snapshot.canonical(), tuple(sorted(found)), tuple(sorted(notes)))


def _node(host: Host, gpus: list[GpuReading], unhealthy: dict[int, str]) -> Node:
    model = _model(gpus)
    alike = [gpu for gpu in gpus if gpu.model == model]
    groups = nvlink_groups(gpus)
    details = tuple(
        Gpu(
            index=gpu.index,
            uuid=gpu.uuid,
            healthy=not unhealthy[gpu.index],
            fault=unhealthy[gpu.index][:_LONGEST_FAULT],
            mig=None if gpu.instances is None else tuple(gpu.instances.values()),
            numa=gpu.numa,
            nvlink=groups.get(gpu.index),
        )
        for gpu in gpus
    )
    cliques = {gpu.clique for gpu in gpus}
    return Node(
        name=host.name,
        gpus=NodeGpus(
            model=model,
            count=len(gpus),
            memory_mib=min((gpu.memory_mib for gpu in alike if gpu.memory_mib), default=0),
            watts=max((gpu.watts for gpu in alike), default=0),
            details=details,
        ),
        cpu_milli=host.cpus,
        memory_mib=host.memory_mib,
        nvlink_island=cliques.pop() if len(cliques) == 1 else "",
        cordoned=any(gpu.unclear for gpu in gpus),
    )


def _measured(host: str, gpu: GpuReading, seconds: int) -> Measurement:
    """What a GPU was seen to do at all looks."""
    vitals = gpu.vitals
    rates = [(each.at, each.utilization) for each in vitals.samples if each.utilization is not None]
    heat = [(each.at, each.temperature) for each in vitals.samples if each.temperature is not None]
    memory = [each.memory_mib for each in vitals.samples if each.memory_mib is not None]
    failed = RowRemap.FAILED if vitals.rows_failed else None
    return Measurement(
        node=host,
        index=gpu.index,
        utilization=round(sum(rate for _, rate in rates) / len(rates)) if rates else None,
        memory_mib=max(memory, default=None),
        period=seconds,
        temperature=max((degrees for _, degrees in heat), default=None),
        hot=held_at_least(heat, COOL, gap=_LONGEST_GAP),
        idle=held_at_most(rates, BUSY, gap=_LONGEST_GAP),
        xids=dict.fromkeys(sorted(vitals.xids), 0),
        uncorrectable=vitals.uncorrectable,
        row_remap=failed or (RowRemap.PENDING if vitals.rows_pending else None),
    )


def _model(gpus: list[GpuReading]) -> str:
    """The model of most GPUs, of several the first by name."""
    counts = Counter(gpu.model for gpu in gpus if gpu.model != UNKNOWN_MODEL)
    return min(counts, key=lambda model: (-counts[model], model)) if counts else UNKNOWN_MODEL


def _of_other_models(gpus: list[GpuReading]) -> dict[int, str]:
    """GPUs of other models than most of the host, since a node has one model."""
    most = _model(gpus)
    return {
        gpu.index: f"its model is {gpu.model} on a host of {most}"
        for gpu in gpus
        if gpu.model not in (most, UNKNOWN_MODEL)
    }


def nvlink_groups(gpus: Iterable[GpuReading]) -> dict[int, int]:
    """
    NVLink group of each GPU that has active links, numbered from 0 by the lowest index.

    GPUs are in one group if links join them, over other GPUs or over switches.
    """
    linked = [gpu for gpu in gpus if gpu.links]
    groups: list[set[int]] = []
    ends: list[set[str]] = []
    for gpu in linked:
        reached = set(gpu.links) | {gpu.bus}
        touched = [at for at, known in enumerate(ends) if known & reached]
        members = {gpu.index}.union(*(groups[at] for at in touched))
        reached = reached.union(*(ends[at] for at in touched))
        groups = [*(each for at, each in enumerate(groups) if at not in touched), members]
        ends = [*(each for at, each in enumerate(ends) if at not in touched), reached]
    ordered = sorted(groups, key=min)
    return {index: number for number, members in enumerate(ordered) for index in members}


# Health over time: XID errors are told as events, while a reading listens.


@contextmanager
def _xid_events(gpus: list[GpuReading], note: Note) -> Iterator[Any]:
    """A set of NVML events with the XID errors of all GPUs; None if there are no events here."""
    events = asked_of_host(pynvml.nvmlEventSetCreate, note=note)
    for gpu in gpus if events is not None else ():
        if gpu.vitals.gone:
            continue
        try:
            asked(
                pynvml.nvmlDeviceRegisterEvents,
                *(gpu.handle, pynvml.nvmlEventTypeXidCriticalError, events),
                subject=f"GPU {gpu.index}",
                note=note,
            )
        except GpuGoneError as error:
            gpu.vitals.gone = str(error)
    try:
        yield events
    finally:
        if events is not None:
            pynvml.nvmlEventSetFree(events)


def _watch(gpus: list[GpuReading], events: Any, seconds: float, note: Note) -> None:
    """Look at the GPUs once a second until the time is over; at last take the events that have come."""
    end = time.monotonic() + seconds
    while (left := end - time.monotonic()) > 0:
        _take_events(gpus, events, min(left, _LOOK_SECONDS))
        for gpu in gpus:
            if not gpu.vitals.gone:
                try:
                    gpu.vitals.samples.append(sample(gpu, note))
                except GpuGoneError as error:
                    gpu.vitals.gone = str(error)
    _take_events(gpus, events, 0.0)


def _take_events(gpus: list[GpuReading], events: Any, seconds: float) -> None:
    """Wait for this time, and give each XID to its GPU."""
    by_address = {_address(gpu.handle): gpu for gpu in gpus if gpu.handle is not None}
    end = time.monotonic() + seconds
    while True:
        left = max(0.0, end - time.monotonic())
        if events is None:
            time.sleep(left)
            return
        try:
            event = pynvml.nvmlEventSetWait_v2(events, int(left * 1000))
        except pynvml.NVMLError:  # the time is over
            time.sleep(max(0.0, end - time.monotonic()))
            return
        if (gpu := by_address.get(_address(event.device))) is not None:
            gpu.vitals.xids.add(event.eventData)


def _address(handle: Any) -> int | None:
    """Number behind a handle of NVML."""
    return ctypes.cast(handle, ctypes.c_void_p).value


# Processes on GPUs as jobs that gpuplan did not start: they hold their places and are never disturbed.
#
# Of a process only its id, its user and its start are read.


Owner: TypeAlias = tuple[str, datetime]
"""User and start of a process."""

_Place: TypeAlias = tuple[int, int | None]
"""(GPU index, id of a GPU instance or None for the whole GPU)."""


def owner_of(pid: int) -> Owner | None:
    """User and start of a process; None if it has ended, or is not visible here."""
    try:
        process = psutil.Process(pid)
        return process.username(), datetime.fromtimestamp(process.create_time(), tz=UTC)
    except psutil.Error:
        return None


def foreign_jobs(
    host: str,
    gpus: Iterable[GpuReading],
    taken_at: datetime,
    note: Note,
    *,
    owner: Callable[[int], Owner | None],
) -> Iterator[Job]:
    """
    One running job for all processes that share GPUs or MIG instances, named after the lowest pid.

    It holds whole GPUs or whole instances: what a process leaves of them is not known to be free. A GPU with
    memory in use and no visible process is held by a job of its own.
    """
    readings = {gpu.index: gpu for gpu in gpus}
    users: dict[_Place, set[int]] = {}
    for gpu in readings.values():
        for each in gpu.processes:
            known = gpu.instances is not None and each.instance in gpu.instances
            if gpu.instances is not None and not known:
                note(f"GPU {gpu.index}", f"process {each.pid} is on no MIG instance that is known")
                continue
            users.setdefault((gpu.index, each.instance if known else None), set()).add(each.pid)
    for sliced in (False, True):
        there = {place: pids for place, pids in users.items() if (place[1] is not None) is sliced}
        for places, pids in _shared(there):
            name = f"{host}/pid-{min(pids)}{'-mig' if sliced else ''}"
            yield _job(name, _held(places, readings), _owner(pids, taken_at, note, owner))
    for gpu in readings.values():
        if gpu.hidden:
            yield _job(
                f"{host}/gpu-{gpu.index}", [{"index": gpu.index, "milli": MILLI}], ("unknown", taken_at)
            )


def _shared(users: dict[_Place, set[int]]) -> list[tuple[list[_Place], set[int]]]:
    """Places with the processes on them; places that a process has in common are together."""
    groups: list[tuple[list[_Place], set[int]]] = []
    for place, pids in sorted(users.items(), key=lambda item: (item[0][0], item[0][1] or 0)):
        together = [group for group in groups if group[1] & pids]
        groups = [group for group in groups if not group[1] & pids]
        places = [each for group in together for each in group[0]]
        groups.append(([*places, place], pids.union(*(group[1] for group in together))))
    return groups


def _held(places: list[_Place], readings: dict[int, GpuReading]) -> list[dict[str, object]]:
    held: list[dict[str, object]] = []
    for index, instance in sorted(places, key=lambda place: (place[0], place[1] or 0)):
        instances = readings[index].instances
        if instance is None or instances is None:
            held.append({"index": index, "milli": MILLI})
        else:
            held.append({"index": index, **instances[instance].model_dump()})
    return held


def _owner(
    pids: set[int], taken_at: datetime, note: Note, owner: Callable[[int], Owner | None]
) -> tuple[str, datetime]:
    """User of the lowest visible pid, and the earliest start."""
    found = {pid: known for pid in sorted(pids) if (known := owner(pid))}
    for pid in sorted(pids - found.keys()):
        note(f"process {pid}", "its user and its start are not visible here")
    if not found:
        return "unknown", taken_at
    if len(users := sorted({user for user, _ in found.values()})) > 1:
        note(f"process {min(found)}", f"it shares its GPUs with processes of other users: {', '.join(users)}")
    return found[min(found)][0], min(taken_at, *(start for _, start in found.values()))


def _job(name: str, held: list[dict[str, object]], owner: tuple[str, datetime]) -> Job:
    user, started_at = owner
    profiles = [str(each["profile"]) for each in held if "profile" in each]
    whole = len(held) - len(profiles)
    request = {"mig": {each: profiles.count(each) for each in profiles}} if profiles else {"gpus": whole}
    return Job.model_validate(
        {
            "name": name,
            "queue": FOREIGN_QUEUE,
            "user": name_of(user),
            "request": request,
            "preemptible": False,
            "submitted_at": started_at,
            "running": {
                "started_at": started_at,
                "replicas": [{"node": name.partition("/")[0], "gpus": held}],
            },
        }
    )
