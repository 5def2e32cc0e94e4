"""
Rules about one job: it is known, has enough replicas, and these hold what it requests.

Unchanged running jobs are not checked; for changed ones only the changed part is checked.
"""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

from gpuplan.models.placement import GpuShare, Replica
from gpuplan.models.plan.violation import Rule, Violation
from gpuplan.models.units import MILLI, print_milli
from gpuplan.models.verifier.job_changes import Change
from gpuplan.models.verifier.messages import (
    CORES,
    DISK,
    MEMORY,
    amounts_by_unit,
    format_amount,
    format_count,
    truncated_names,
)

if TYPE_CHECKING:
    from collections.abc import Iterator

    from gpuplan.models.job import ResourceRequest
    from gpuplan.models.verifier.context import Context


def assignment(case: Context) -> Iterator[Violation]:
    """
    Each placement names a job of the snapshot, once, in slot 0.

    A held job does not start, and neither does a job that has failed more often than it may be tried again.
    """
    for name, times in case.placement_counts.items():
        subject = f"job {name}"
        if name not in case.jobs:
            yield Violation(Rule.ASSIGNMENT, subject, "no such job in the snapshot", "a job of the snapshot")
        if times > 1:
            yield Violation(Rule.ASSIGNMENT, subject, format_count(times, "placement"), "1 placement")
    for job, _ in case.with_change(Change.STARTED):
        if job.held:
            yield Violation(Rule.ASSIGNMENT, f"job {job.name}", "a held job that starts", "a held job waits")
        if job.retry is not None and job.failures > (most := job.retry.retries):
            found = f"a start after {format_count(job.failures, 'failure')}"
            yield Violation(Rule.ASSIGNMENT, f"job {job.name}", found, f"at most {most} retries")
    for placement in case.placements:
        if placement.slot:
            yield Violation(Rule.ASSIGNMENT, f"job {placement.job}", f"slot {placement.slot}", "slot 0")


def gang(case: Context) -> Iterator[Violation]:
    """The number of replicas is within the gang's range, and all with GPUs are on one GPU model."""
    for job, occupant in case.changed:
        replicas = occupant.placement.replicas
        count, least, most = len(replicas), job.gang.minimum, job.gang.maximum
        if not least <= count <= most:
            allowed = f"{least} to {most} replicas" if job.gang.elastic else format_count(most, "replica")
            yield Violation(Rule.GANG, f"job {job.name}", format_count(count, "replica"), allowed)
        models = case.gpu_models(replicas)
        if len(models) > 1:
            yield Violation(
                Rule.GANG, f"job {job.name}", f"GPU models {truncated_names(models)}", "1 GPU model"
            )


def request(case: Context) -> Iterator[Violation]:
    """Each new replica holds exactly the request, with whole GPUs on distinct indices."""
    for job, occupant in case.arrivals:
        wanted_gpus, wanted = _requested_gpus(job.request), _requested_amounts(job.request)
        for number in occupant.new:
            replica = occupant.placement.replicas[number]
            held_gpus, held = _held_gpus(replica), amounts_by_unit(replica)
            faults = [(_in_words(held_gpus), _in_words(wanted_gpus))] if held_gpus != wanted_gpus else []
            faults += [(f"gpu {index} more than once", "each GPU once") for index in _repeated(replica)]
            if held != wanted:
                faults += [
                    (format_amount(held.get(unit, 0), unit), format_amount(wanted.get(unit, 0), unit))
                    for unit in held.keys() | wanted.keys()
                    if held.get(unit, 0) != wanted.get(unit, 0)
                ]
            for found, allowed in faults:
                yield Violation(Rule.REQUEST, f"job {job.name} replica {number}", found, allowed)


def _repeated(replica: Replica) -> set[int]:
    """GPUs that the replica lists twice; MIG instances do not count, since one GPU can have several."""
    indices = [held.index for held in replica.gpus if isinstance(held, GpuShare)]
    if len(indices) == len(set(indices)):
        return set()
    return {index for index in indices if indices.count(index) > 1}


def _held_gpus(replica: Replica) -> list[str]:
    """Parts of GPUs by kind, with the words and order of `_requested_gpus`."""
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
    return ", ".join(format_count(count, kind) for kind, count in Counter(kinds).items()) or "no GPU"


def _requested_amounts(request: ResourceRequest) -> dict[str, int]:
    return {
        CORES: request.cpu_milli,
        MEMORY: request.memory_mib,
        DISK: request.disk_mib,
        **request.resources,
    }
