"""Places of a host that a start may have now, and those that are reserved for the start of a group."""

from __future__ import annotations

from typing import TYPE_CHECKING

from gpuplan.planner.action_marks import MarkStage, plan_of
from gpuplan.planner.executors.admission import placement_refusal

if TYPE_CHECKING:
    from collections.abc import Mapping

    from gpuplan.models.placement import Replica
    from gpuplan.models.snapshot import Snapshot
    from gpuplan.planner.executors.local.records import HostMark, Record


def refusal(record: Record, mark: HostMark, host: Snapshot, known: Mapping[str, Record]) -> str | None:
    """
    Why a job cannot have the places of its mark now; None if it can.

    `known` are the jobs of the queue. Places that another plan reserved are free: of all applies, one at a
    time uses a host.
    """
    if mark.replica is None:
        return "it has no places"
    others = [
        each
        for job in host.jobs
        if job.running and job.name != record.job.name
        for each in job.running.replicas
    ]
    plan = plan_of(mark.key)
    others += [
        reserved
        for other in known.values()
        if other.number != record.number
        for each in other.marks
        if (reserved := _reserved_by(each, plan)) is not None
    ]
    nodes = host.cluster.node_by_name
    return placement_refusal(
        record.job, (mark.replica,), nodes=nodes, held=dict.fromkeys(nodes, others), cluster=host.cluster
    )


def _reserved_by(mark: HostMark, plan: str) -> Replica | None:
    if mark.step is not MarkStage.RESERVED or plan_of(mark.key) != plan:
        return None
    return mark.replica
