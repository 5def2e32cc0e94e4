"""
Consistency of what runs: every replica on a node and GPU that exist, and nothing held twice.

Only what makes a snapshot impossible is told here. Running jobs that take more CPU than a node offers, or
stand where they could not start today, are facts that planning can live with.
"""

from __future__ import annotations

from collections import defaultdict
from typing import TYPE_CHECKING, TypeAlias

from planner.models.inconsistency import Inconsistency, gpu_indices
from planner.models.near_miss import listed
from planner.models.placement import GpuShare
from planner.models.units import MILLI, print_milli

if TYPE_CHECKING:
    from collections.abc import Iterator

    from planner.models.cluster import Gpu
    from planner.models.inconsistency import Location, View
    from planner.models.job import Job
    from planner.models.placement import MigSlice, Replica

_Spot: TypeAlias = tuple[int, int]
"""Numbers of a running job and of one of its replicas: thousands are looked at, few are told of."""
_Held: TypeAlias = tuple[str, int, int | None]
"""(node, GPU index, first slice); shares have None, and what is held at one slice is one MIG instance."""


def gangs_are_complete(view: View) -> Iterator[Inconsistency]:
    """A running job has as many replicas as its gang allows."""
    for location, job, running in view.running():
        found, gang = len(running.replicas), job.gang
        if not gang.minimum <= found <= gang.maximum:
            expected = f"{gang.minimum} to {gang.maximum}" if gang.elastic else f"{gang.maximum}"
            yield Inconsistency(
                (*location, "replicas"),
                f"job '{job.name}' runs with {found} {'replica' if found == 1 else 'replicas'}; "
                f"expected {expected}, as its `replicas` say.",
            )


def places_exist(view: View) -> Iterator[Inconsistency]:
    """A replica is on a node of the snapshot and on GPUs which that node has."""
    for spot, job, replica in _replicas(view):
        node = view.nodes.get(replica.node)
        if node is None:
            yield Inconsistency(
                (*_location(spot), "node"),
                f"job '{job.name}' runs on node '{replica.node}', which the cluster does not have."
                f"{view.near.hint(replica.node, view.nodes)}",
            )
            continue
        for number, held in enumerate(replica.gpus):
            if held.index >= node.gpu_count:
                yield Inconsistency(
                    (*_location(spot), "gpus", number, "index"),
                    f"job '{job.name}' runs on gpu {held.index} of node '{node.name}'; "
                    f"expected {gpu_indices(node.gpu_count)}.",
                )


def mig_use_fits_the_layout(view: View) -> Iterator[Inconsistency]:
    """A replica holds MIG instances that are there, and nothing else of a GPU in MIG mode."""
    for spot, job, replica in _replicas(view):
        node = view.nodes.get(replica.node)
        if node is None or (gpus := node.gpus) is None:
            continue
        for number, held in enumerate(replica.gpus):
            if held.index >= gpus.count:
                continue
            if not gpus.details and isinstance(held, GpuShare):
                continue  # without details MIG mode is off, as on most nodes
            fault = _misuse(held, gpus.by_index[held.index])
            if fault:
                yield Inconsistency(
                    (*_location(spot), "gpus", number),
                    f"job '{job.name}' runs on {_part(held)} of node '{node.name}', {fault}.",
                )


def _misuse(held: GpuShare | MigSlice, gpu: Gpu) -> str | None:
    """What the GPU's layout says against a job holding this part of it."""
    if isinstance(held, GpuShare):
        return None if gpu.mig is None else "which is in MIG mode; expected one of its instances"
    if gpu.mig is None:
        return "which is not in MIG mode; expected `mig` among the details of that GPU"
    if (held.profile, held.start) in {(instance.profile, instance.start) for instance in gpu.mig}:
        return None
    present = listed(f"{instance.profile} at slice {instance.start}" for instance in gpu.mig)
    return f"which that GPU does not have; expected one of its instances: {present or 'it has none'}"


def _part(held: GpuShare | MigSlice) -> str:
    if isinstance(held, GpuShare):
        return f"gpu {held.index}"
    return f"MIG instance {held.profile} at slice {held.start} of gpu {held.index}"


def gpus_are_held_once(view: View) -> Iterator[Inconsistency]:
    """No GPU is held beyond the whole, and no MIG instance by two."""
    totals: dict[_Held, int] = defaultdict(int)
    for _, _, replica in _replicas(view):
        for held in replica.gpus:
            totals[_key(replica, held)] += _milli(held)
    overfull = {key: total for key, total in totals.items() if total > MILLI}
    if not overfull:
        return
    holders: dict[_Held, list[tuple[Location, str]]] = defaultdict(list)
    for spot, job, replica in _replicas(view):
        for number, held in enumerate(replica.gpus):
            if (key := _key(replica, held)) in overfull:
                holders[key].append(((*_location(spot), "gpus", number), job.name))
    for key, using in holders.items():
        node, index, start = key
        location, job_name = using[-1]
        names = listed({name for _, name in using})
        what = f"gpu {index} of node '{node}'"
        if start is not None:
            what = f"the MIG instance at slice {start} of {what}"
        yield Inconsistency(
            location,
            f"job '{job_name}' holds {what}, which is then held {print_milli(overfull[key])} times; "
            f"expected at most once. Held by {names}.",
            contradicts=using[0][0],
        )


def _key(replica: Replica, held: GpuShare | MigSlice) -> _Held:
    return replica.node, held.index, None if isinstance(held, GpuShare) else held.start


def _milli(held: GpuShare | MigSlice) -> int:
    return held.milli if isinstance(held, GpuShare) else MILLI


def _replicas(view: View) -> Iterator[tuple[_Spot, Job, Replica]]:
    for index, job in enumerate(view.snapshot.jobs):
        for number, replica in enumerate(job.running.replicas if job.running else ()):
            yield (index, number), job, replica


def _location(spot: _Spot) -> Location:
    index, number = spot
    return "jobs", index, "running", "replicas", number
