"""
Consistency of running jobs: every replica is on an existing node and GPU, and nothing is held twice.

A place that no longer exists is damage. Two jobs on the same place, and a gang beyond its maximum, are
errors. Running jobs on nodes for which they are no longer eligible are valid input.
"""

from __future__ import annotations

from collections import defaultdict
from typing import TYPE_CHECKING, TypeAlias

from gpuplan.models.eligibility.free_resources import free_resources_by_node
from gpuplan.models.errors import truncated_names
from gpuplan.models.mig import is_profile
from gpuplan.models.placement import GpuShare, MigSlice, Replica
from gpuplan.models.units import MILLI, print_milli
from gpuplan.models.validation.base import (
    NODES,
    Damage,
    DamageKind,
    Inconsistency,
    Location,
    SnapshotView,
    gpu_indices,
)

if TYPE_CHECKING:
    from collections.abc import Iterator

    from gpuplan.models.cluster import Gpu
    from gpuplan.models.job import Job

_Spot: TypeAlias = tuple[int, int]
"""(index of a running job, index of its replica): thousands are checked, few are reported."""
_Held: TypeAlias = tuple[str, int, int | None]
"""(node, GPU index, first slice); None for shares. All usage that starts at one slice is one MIG instance."""


def gangs_are_complete(view: SnapshotView) -> Iterator[Inconsistency]:
    """The number of replicas of a running job is within its gang's range; fewer are a loss, more an error."""
    for location, job, running in view.running():
        found, gang = len(running.replicas), job.gang
        if not gang.minimum <= found <= gang.maximum:
            expected = f"{gang.minimum} to {gang.maximum}" if gang.elastic else f"{gang.maximum}"
            cause = f"{found} of at least {gang.minimum} replicas are left"
            yield Inconsistency(
                (*location, "replicas"),
                f"job '{job.name}' runs with {found} {'replica' if found == 1 else 'replicas'}; "
                f"expected {expected}, as its `replicas` say.",
                damage=Damage(DamageKind.REPLICAS_LOST, cause) if found < gang.minimum else None,
            )


def groups_are_whole(view: SnapshotView) -> Iterator[Inconsistency]:
    """
    All jobs of a `co_start` group run, or none of them has started; a group started by half is a loss.

    A job that was submitted after the start of its group starts alone, and one that ran before was stopped
    since: neither is missing. Of a group with a running job that is not preemptible nothing is released.
    """
    if "co_start" not in view.snapshot.stated:
        return
    running: dict[str, list[tuple[Location, Job]]] = defaultdict(list)
    waiting: dict[str, list[Job]] = defaultdict(list)
    for location, job, _ in view.running():
        if job.co_start:
            running[job.co_start].append((location, job))
    for job in view.snapshot.waiting:
        ran = job.has_run or job.failures or job.preemptions
        if job.co_start and not (ran or job.withheld):
            waiting[job.co_start].append(job)
    for name, members in running.items():
        began = min(job.running.started_at for _, job in members if job.running)
        missing = truncated_names(sorted(job.name for job in waiting[name] if job.submitted_at <= began))
        if not missing or not all(job.preemptible for _, job in members):
            continue
        for location, job in members:
            yield Inconsistency(
                (*location, "replicas"),
                f"job '{job.name}' runs without {missing} of its group '{name}'; "
                "expected all of them to run, or none.",
                damage=Damage(DamageKind.GROUP_PART_STARTED, f"{missing} of its group did not start"),
            )


def placements_are_valid(view: SnapshotView) -> Iterator[Inconsistency]:
    """Each replica is on a ready node of the snapshot, and on healthy GPUs of it."""
    for spot, job, replica in _replicas(view):
        node = view.nodes.get(replica.node)
        if node is None:
            yield Inconsistency(
                (*_location(spot), "node"),
                f"job '{job.name}' runs on node '{replica.node}', which the cluster does not have."
                f"{view.near.hint(replica.node, view.nodes)}",
                damage=Damage(DamageKind.NODE_GONE, f"node {replica.node} is gone"),
            )
            continue
        if not node.ready:
            yield Inconsistency(
                (*_location(spot), "node"),
                f"job '{job.name}' runs on node '{node.name}', which is not ready; expected a ready one.",
                damage=Damage(DamageKind.NODE_DOWN, f"node {node.name} is down"),
            )
            continue
        for number, held in enumerate(replica.gpus):
            if held.index >= node.gpu_count:
                yield Inconsistency(
                    (*_location(spot), "gpus", number, "index"),
                    f"job '{job.name}' runs on gpu {held.index} of node '{node.name}'; "
                    f"expected {gpu_indices(node.gpu_count)}.",
                    damage=Damage(DamageKind.GPU_GONE, f"gpu {held.index} of node {node.name} is gone"),
                )
            elif node.gpus and node.gpus.details and not (gpu := node.gpus.by_index[held.index]).healthy:
                why = f": {gpu.fault}" if gpu.fault else ""
                yield Inconsistency(
                    (*_location(spot), "gpus", number, "index"),
                    f"job '{job.name}' runs on gpu {held.index} of node '{node.name}', which is unhealthy"
                    f"{why}; expected a healthy one.",
                    damage=Damage(
                        DamageKind.GPU_UNHEALTHY, f"gpu {held.index} of node {node.name} is unhealthy{why}"
                    ),
                )


def profiles_in_use_are_valid(view: SnapshotView) -> Iterator[Inconsistency]:
    """Each MIG slice that a replica holds has a valid profile name, on any node."""
    for spot, job, replica in _replicas(view):
        for number, held in enumerate(replica.gpus):
            if isinstance(held, MigSlice) and not is_profile(held.profile):
                yield Inconsistency(
                    (*_location(spot), "gpus", number, "profile"),
                    f"job '{job.name}' runs on MIG profile '{held.profile}', which is not a MIG profile; "
                    "expected one such as 3g.40gb.",
                )


def mig_use_fits_the_layout(view: SnapshotView) -> Iterator[Inconsistency]:
    """A replica holds existing MIG instances, and nothing else on a GPU in MIG mode."""
    for spot, job, replica in _replicas(view):
        node = view.nodes.get(replica.node)
        if node is None or not node.ready or (gpus := node.gpus) is None:
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
                    damage=Damage(DamageKind.MIG_CHANGED, _change(held, node.name)),
                )


def _misuse(held: GpuShare | MigSlice, gpu: Gpu) -> str | None:
    """Conflict between the GPU's layout and the part of it that a job holds; None if there is none."""
    if isinstance(held, GpuShare):
        return None if gpu.mig is None else "which is in MIG mode; expected one of its instances"
    if gpu.mig is None:
        return "which is not in MIG mode; expected `mig` among the details of that GPU"
    if (held.profile, held.start) in {(instance.profile, instance.start) for instance in gpu.mig}:
        return None
    present = truncated_names(f"{instance.profile} at slice {instance.start}" for instance in gpu.mig)
    return f"which that GPU does not have; expected one of its instances: {present or 'it has none'}"


def _part(held: GpuShare | MigSlice) -> str:
    if isinstance(held, GpuShare):
        return f"gpu {held.index}"
    return f"MIG instance {held.profile} at slice {held.start} of gpu {held.index}"


def _change(held: GpuShare | MigSlice, node: str) -> str:
    if isinstance(held, GpuShare):
        return f"gpu {held.index} of node {node} is in MIG mode"
    return f"{_part(held)} of node {node} is gone"


def node_capacity_is_kept(view: SnapshotView) -> Iterator[Inconsistency]:
    """The replicas on a node hold no more CPU, memory, disk and other resources than it has."""
    nodes, jobs = view.snapshot.cluster.nodes, view.jobs.values()
    placements = [job.placement for job in jobs if job.placement]
    free = free_resources_by_node(nodes, placements, snapshot=view.snapshot)
    for index, node in enumerate(nodes):
        left = free[node.name]
        amounts = {"CPU": left.cpu_milli, "memory": left.memory_mib, "disk": left.disk_mib}
        if short := [name for name, amount in (amounts | left.resources).items() if amount < 0]:
            yield Inconsistency(
                (*NODES, index),
                f"node '{node.name}' offers less {truncated_names(short)} than its jobs hold; "
                "expected enough for all of them.",
                damage=Damage(
                    DamageKind.NODE_OVERFULL, f"its jobs hold more {truncated_names(short)} than it offers"
                ),
            )


def gpus_are_held_once(view: SnapshotView) -> Iterator[Inconsistency]:
    """No GPU is held more than once in total, and no MIG instance by two replicas."""
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
        names = truncated_names({name for _, name in using})
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


def _replicas(view: SnapshotView) -> Iterator[tuple[_Spot, Job, Replica]]:
    for index, job in enumerate(view.snapshot.jobs):
        for number, replica in enumerate(job.running_replicas):
            yield (index, number), job, replica


def _location(spot: _Spot) -> Location:
    index, number = spot
    return "jobs", index, "running", "replicas", number
