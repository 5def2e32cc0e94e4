"""
Processes on GPUs as jobs that gpuplan did not start: they hold their places and are never disturbed.

Of a process only its id, its user and its start are read.
"""

from __future__ import annotations

from datetime import UTC, datetime
from typing import TYPE_CHECKING, TypeAlias

import psutil

from gpuplan.models.job import Job
from gpuplan.models.queue import FOREIGN_QUEUE
from gpuplan.models.units import MILLI
from gpuplan.planner.sources.slurm.values import name_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from gpuplan.planner.sources.nvml.gpus import GpuReading
    from gpuplan.planner.sources.nvml.library import Note

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
