"""
Consistency of what runs: every replica on a node and GPU that exist, and nothing held twice.

Only what makes a snapshot impossible is told here. Running jobs that take more CPU than a node offers, or
stand where they could not start today, are facts that planning can live with.
"""

from __future__ import annotations

from collections import defaultdict
from typing import TYPE_CHECKING

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
    for location, job, replica in _replicas(view):
        node = view.nodes.get(replica.node)
        if node is None:
            yield Inconsistency(
                (*location, "node"),
                f"job '{job.name}' runs on node '{replica.node}', which the cluster does not have."
                f"{view.near.hint(replica.node, view.nodes)}",
            )
            continue
        for number, held in enumerate(replica.gpus):
            if held.index >= node.gpu_count:
                yield Inconsistency(
                    (*location, "gpus", number, "index"),
                    f"job '{job.name}' runs on gpu {held.index} of node '{node.name}'; "
                    f"expected {gpu_indices(node.gpu_count)}.",
                )


def mig_use_fits_the_layout(view: View) -> Iterator[Inconsistency]:
    """A replica holds MIG instances that are there, and nothing else of a GPU in MIG mode."""
    for location, job, replica in _replicas(view):
        node = view.nodes.get(replica.node)
        for number, held in enumerate(replica.gpus):
            if node is None or node.gpus is None or held.index >= node.gpu_count:
                continue
            fault = _misuse(held, node.gpus.by_index[held.index])
            if fault:
                yield Inconsistency(
                    (*location, "gpus", number),
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
    # Shares have start None; what is held at one start of one GPU is one MIG instance.
    holders: dict[tuple[str, int, int | None], list[tuple[Location, str, int]]] = defaultdict(list)
    for location, job, replica in _replicas(view):
        for number, held in enumerate(replica.gpus):
            here = (*location, "gpus", number)
            if isinstance(held, GpuShare):
                holders[replica.node, held.index, None].append((here, job.name, held.milli))
            else:
                holders[replica.node, held.index, held.start].append((here, job.name, MILLI))
    for (node, index, start), using in holders.items():
        total = sum(milli for _, _, milli in using)
        if total > MILLI:
            location, job_name, _ = using[-1]
            names = listed({name for _, name, _ in using})
            what = f"gpu {index} of node '{node}'"
            if start is not None:
                what = f"the MIG instance at slice {start} of {what}"
            yield Inconsistency(
                location,
                f"job '{job_name}' holds {what}, which is then held {print_milli(total)} times; "
                f"expected at most once. Held by {names}.",
                contradicts=using[0][0],
            )


def _replicas(view: View) -> Iterator[tuple[Location, Job, Replica]]:
    for location, job, running in view.running():
        for number, replica in enumerate(running.replicas):
            yield (*location, "replicas", number), job, replica
