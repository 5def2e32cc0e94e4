"""How much of the GPUs was used, as measured, in all and by queue."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass
from typing import TYPE_CHECKING

from gpuplan.models.placement import GpuShare
from gpuplan.models.units import MILLI

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from gpuplan.models.health.measurement import Measurement
    from gpuplan.models.snapshot import Snapshot


@dataclass(frozen=True, slots=True)
class MeasuredUse:
    """Use of some GPUs; what is unknown of a GPU is left out of the average."""

    gpu_milli: int
    """GPUs that were measured, in thousandths: a job's share of a GPU counts as such."""
    utilization: float | None
    """Part of the time in which they computed, from 0 to 1, on average; None if unknown of all."""
    memory: float | None
    """Most memory in use on each, as a part of what they have together, from 0 to 1; None if unknown."""
    period: int
    """Shortest time in seconds for which one of them was watched."""


def measured_use(snapshot: Snapshot) -> MeasuredUse | None:
    """Use of all measured GPUs; None without measurements."""
    known = _known(snapshot)
    return _use(((each, MILLI) for each in known.values()), snapshot)


def measured_use_by_queue(snapshot: Snapshot) -> dict[str, MeasuredUse]:
    """Use of the measured GPUs that the running jobs of each queue hold, as wholes or in shares, by name."""
    known = _known(snapshot)
    parts: dict[str, list[tuple[Measurement, int]]] = defaultdict(list)
    for job in snapshot.jobs if known else ():
        for replica in job.running.replicas if job.running else ():
            for part in replica.gpus:
                seen = known.get((replica.node, part.index))
                if seen is not None and isinstance(part, GpuShare):
                    parts[job.queue].append((seen, part.milli))
    uses = {name: _use(found, snapshot) for name, found in sorted(parts.items())}
    return {name: use for name, use in uses.items() if use is not None}


def _known(snapshot: Snapshot) -> Mapping[tuple[str, int], Measurement]:
    """Measurements of GPUs that are there."""
    nodes = snapshot.cluster.node_by_name
    return {
        (each.node, each.index): each
        for each in snapshot.measured
        if each.node in nodes and each.index < nodes[each.node].gpu_count
    }


def _use(parts: Iterable[tuple[Measurement, int]], snapshot: Snapshot) -> MeasuredUse | None:
    nodes = snapshot.cluster.node_by_name
    total = busy = watched = used = there = 0
    period: int | None = None
    for seen, milli in parts:
        total += milli
        period = seen.period if period is None else min(period, seen.period)
        if seen.utilization is not None:
            busy += milli * seen.utilization
            watched += milli
        gpus = nodes[seen.node].gpus
        if seen.memory_mib is not None and gpus is not None and gpus.memory_mib:
            used += milli * min(seen.memory_mib, gpus.memory_mib)
            there += milli * gpus.memory_mib
    if period is None or not total:
        return None
    utilization = busy / (100 * watched) if watched else None
    return MeasuredUse(total, utilization, used / there if there else None, period)
