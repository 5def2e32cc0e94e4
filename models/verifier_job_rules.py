"""
Rules about one job at a time: may it start, does it stay, and does each replica stand where it may.

Running jobs are what they are: apart from assignment and eviction only started jobs are judged here.
"""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Final

from planner.models.cluster import Level
from planner.models.mig import mig_geometry
from planner.models.placement import GpuShare
from planner.models.units import MILLI, print_milli
from planner.models.verifier_case import holding
from planner.models.verifier_words import (
    CORES,
    DISK,
    MEMORY,
    amounts,
    counted,
    in_words,
    listed,
    replica_in_words,
)
from planner.models.violation import Rule, Violation

if TYPE_CHECKING:
    from collections.abc import Iterator

    from planner.models.cluster import Node, NodeGpus
    from planner.models.job import Job, ResourceRequest
    from planner.models.placement import MigSlice, Replica
    from planner.models.verifier_case import Case

_LEVEL_WORDS: Final = {
    Level.NODE: "node",
    Level.NVLINK_ISLAND: "NVLink island",
    Level.RACK: "rack",
    Level.ZONE: "zone",
    Level.REGION: "region",
}


def assignment(case: Case) -> Iterator[Violation]:
    """Each placement names a job of the snapshot, once, in slot 0; a held job is not started."""
    for name, times in Counter(placement.job for placement in case.placements).items():
        subject = f"job {name}"
        if name not in case.jobs:
            yield Violation(Rule.ASSIGNMENT, subject, "no such job in the snapshot", "a job of the snapshot")
        if times > 1:
            yield Violation(Rule.ASSIGNMENT, subject, counted(times, "placement"), "1 placement")
    for job, _ in case.started:
        if job.held:
            yield Violation(Rule.ASSIGNMENT, f"job {job.name}", "a held job that starts", "a held job waits")
    for placement in case.placements:
        if placement.slot:
            yield Violation(Rule.ASSIGNMENT, f"job {placement.job}", f"slot {placement.slot}", "slot 0")


def eviction(case: Case) -> Iterator[Violation]:
    """Each running job is placed with exactly the replicas it runs with."""
    placed = {placement.job: placement.replicas for placement in case.placements}
    for job in case.snapshot.jobs:
        if job.running is None or job.name in case.kept:
            continue
        before, after = job.running.replicas, placed.get(job.name, ())
        if not after:
            found, allowed = "stopped", "runs on"
        elif len(after) != len(before):
            found, allowed = counted(len(after), "replica"), counted(len(before), "replica")
        else:
            found = replica_in_words(next(_unmatched(after, before)))
            allowed = replica_in_words(next(_unmatched(before, after)))
        yield Violation(Rule.EVICTION, f"job {job.name}", found, allowed)


def _unmatched(some: tuple[Replica, ...], others: tuple[Replica, ...]) -> Iterator[Replica]:
    """Replicas that hold what none of the others, each matched once, holds."""
    unused = Counter(map(holding, others))
    for replica in some:
        if unused[holding(replica)]:
            unused[holding(replica)] -= 1
        else:
            yield replica


def gang(case: Case) -> Iterator[Violation]:
    """The number of replicas is within the gang's range, and all that use GPUs are on one GPU model."""
    for job, placement in case.started:
        count, least, most = len(placement.replicas), job.gang.minimum, job.gang.maximum
        if not least <= count <= most:
            allowed = f"{least} to {most} replicas" if job.gang.elastic else counted(most, "replica")
            yield Violation(Rule.GANG, f"job {job.name}", counted(count, "replica"), allowed)
        models = case.gpu_models(placement)
        if len(models) > 1:
            yield Violation(Rule.GANG, f"job {job.name}", f"GPU models {listed(models)}", "1 GPU model")


def request(case: Case) -> Iterator[Violation]:
    """Each replica holds exactly the request, whole GPUs on distinct indices."""
    for job, placement in case.started:
        wanted_gpus, wanted = _requested_gpus(job.request), _requested_amounts(job.request)
        for number, replica in enumerate(placement.replicas):
            held_gpus, held = _held_gpus(replica), amounts(replica)
            faults = [(_in_words(held_gpus), _in_words(wanted_gpus))] if held_gpus != wanted_gpus else []
            faults += [(f"gpu {index} more than once", "each GPU once") for index in _repeated(replica)]
            if held != wanted:
                faults += [
                    (in_words(held.get(unit, 0), unit), in_words(wanted.get(unit, 0), unit))
                    for unit in held.keys() | wanted.keys()
                    if held.get(unit, 0) != wanted.get(unit, 0)
                ]
            for found, allowed in faults:
                yield Violation(Rule.REQUEST, f"job {job.name} replica {number}", found, allowed)


def _repeated(replica: Replica) -> set[int]:
    """GPUs the replica lists twice; MIG instances do not count, since one GPU has several."""
    indices = [held.index for held in replica.gpus if isinstance(held, GpuShare)]
    if len(indices) == len(set(indices)):
        return set()
    return {index for index in indices if indices.count(index) > 1}


def _held_gpus(replica: Replica) -> list[str]:
    """Parts of GPUs by kind, in the same words and order as `_requested_gpus`."""
    return sorted(
        _share_kind(held.milli) if isinstance(held, GpuShare) else f"{held.profile} instance"
        for held in replica.gpus
    )


def _requested_gpus(request: ResourceRequest) -> list[str]:
    shares = [_share_kind(request.gpu_milli)] if request.gpu_milli else []
    instances = [f"{profile} instance" for profile, count in request.mig.items() for _ in range(count)]
    return sorted([_share_kind(MILLI)] * request.gpus + shares + instances)


def _share_kind(milli: int) -> str:
    return "whole GPU" if milli == MILLI else f"{print_milli(milli)} GPU share"


def _in_words(kinds: list[str]) -> str:
    return ", ".join(counted(count, kind) for kind, count in Counter(kinds).items()) or "no GPU"


def _requested_amounts(request: ResourceRequest) -> dict[str, int]:
    return {
        CORES: request.cpu_milli,
        MEMORY: request.memory_mib,
        DISK: request.disk_mib,
        **request.resources,
    }


def selection(case: Case) -> Iterator[Violation]:
    """Each node exists, takes new jobs and suits the job; each GPU exists, is healthy and large enough."""
    for job, placement in case.started:
        for name in sorted({replica.node for replica in placement.replicas}):
            subject = f"job {job.name} on node {name}"
            if node := case.nodes.get(name):
                for found, allowed in _node_faults(job, node):
                    yield Violation(Rule.SELECTION, subject, found, allowed)
            else:
                yield Violation(Rule.SELECTION, subject, "no such node", "a node of the snapshot")
        for replica in placement.replicas:
            if node := case.nodes.get(replica.node):
                for held in replica.gpus:
                    subject = f"job {job.name} on node {node.name} gpu {held.index}"
                    for found, allowed in _gpu_faults(job, node.gpus, held):
                        yield Violation(Rule.SELECTION, subject, found, allowed)


def _node_faults(job: Job, node: Node) -> Iterator[tuple[str, str]]:
    """What on the node keeps the job away, and what would be allowed."""
    if not node.ready:
        yield "not ready", "a ready node"
    if node.cordoned:
        yield "cordoned", "a node that is not cordoned"
    for key, value in job.node_selector.items():
        if key not in node.labels:
            yield f"no label {key}", f"label {key}={value}"
        elif node.labels[key] != value:
            yield f"label {key}={node.labels[key]}", f"label {key}={value}"
    for taint in node.taints:
        if not job.tolerates(taint):
            yield f"taint {taint.key}={taint.value}:{taint.effect}", "tolerated taints"


def _gpu_faults(job: Job, gpus: NodeGpus | None, held: GpuShare | MigSlice) -> Iterator[tuple[str, str]]:
    """What about one GPU keeps the job away, and what would be allowed."""
    if gpus is None or held.index >= gpus.count:
        yield "no such GPU", f"one of the node's {counted(gpus.count if gpus else 0, 'GPU')}"
        return
    if not gpus.by_index[held.index].healthy:
        yield "unhealthy", "a healthy GPU"
    if job.gpu_models and gpus.model not in job.gpu_models:
        yield f"GPU model {gpus.model}", f"GPU model {listed(job.gpu_models)}"
    if (found := _gpu_memory_mib(gpus, held)) < (needed := job.request.gpu_memory_mib):
        yield f"{found} MiB of GPU memory", f"at least {needed} MiB"


def _gpu_memory_mib(gpus: NodeGpus, held: GpuShare | MigSlice) -> int:
    """Memory that comes with a part of a GPU: in proportion to the share, or to the memory slices."""
    if isinstance(held, GpuShare):
        return gpus.memory_mib * held.milli // MILLI
    geometry = mig_geometry(gpus.model)
    if geometry is None or held.profile not in geometry.profiles:
        return 0
    return gpus.memory_mib * geometry.profiles[held.profile].memory_slices // geometry.memory_slices


def locality(case: Case) -> Iterator[Violation]:
    """Replicas on several nodes are in one domain of the required level."""
    for job, placement in case.started:
        level = job.locality.required
        names = {replica.node for replica in placement.replicas} & case.nodes.keys()
        if level is None or len(names) <= 1:
            continue
        domains = {case.nodes[name].domain(level) for name in names}
        word = _LEVEL_WORDS[level]
        if None in domains:
            outside = listed(name for name in names if case.nodes[name].domain(level) is None)
            yield Violation(Rule.LOCALITY, f"job {job.name}", f"nodes in no {word}: {outside}", f"1 {word}")
        elif len(domains) > 1:
            yield Violation(Rule.LOCALITY, f"job {job.name}", counted(len(domains), word), f"1 {word}")
