"""
Steps of an action on a job of a host: which is next, by the mark of the action and the job's attempt, and
whether the job may have its places.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Final

from gpuplan.models.plan.actions import ActionKind
from gpuplan.planner.action_marks import MarkStage, kind_of, plan_of
from gpuplan.planner.executors.admission import placement_refusal
from gpuplan.planner.executors.interface import LANDED, ActionPhase, ActionProgress
from gpuplan.planner.executors.job_steps import (
    NO_STEP,
    Deed,
    NextStep,
    failed,
    notice_step,
    settled_step,
    under_way,
    waiting,
)
from gpuplan.planner.executors.local.runs import RunPhase

if TYPE_CHECKING:
    from collections.abc import Mapping

    from gpuplan.models.placement import Replica
    from gpuplan.models.snapshot import Snapshot
    from gpuplan.planner.executors.local.records import HostMark, Record
    from gpuplan.planner.executors.local.runs import Run


_BEGINS: Final = (RunPhase.ABSENT, RunPhase.STARTING)


def next_step(mark: HostMark | None, run: Run | None, *, now: float, grace: float = math.inf) -> NextStep:
    """
    The next step of an action; `run` is the attempt that is under way, None if the job waits.

    `grace` is the time in seconds that the job asked for before it is stopped.
    """
    if mark is None:
        return NO_STEP
    if over := settled_step(mark):
        return over
    if mark.step is MarkStage.ABORTING:
        return NextStep(Deed.FAIL, failed(mark.reason)) if run is None else under_way(Deed.STOP, "it ends")
    if kind_of(mark.key) == ActionKind.START or mark.step is MarkStage.PLACING:
        return _of_placement(run)
    if run is None:
        if kind_of(mark.key) == ActionKind.MIGRATE:
            return under_way(Deed.PLACE)
        return NextStep(Deed.LAND, LANDED)
    if mark.step is MarkStage.STOPPING:
        # It is asked again: its supervisor may have been killed since.
        return under_way(Deed.STOP, "it ends")
    if run.phase in _BEGINS:
        return waiting("it begins")
    return notice_step(mark, now, grace)


def _of_placement(run: Run | None) -> NextStep:
    if run is None:
        return NextStep(Deed.PLACE, ActionProgress(ActionPhase.ASKED))
    if run.phase in _BEGINS:
        return waiting("it begins")
    return NextStep(Deed.LAND, LANDED)


def refusal(record: Record, mark: HostMark, host: Snapshot, known: Mapping[str, Record]) -> str | None:
    """
    Why a job cannot have the places of its mark now; None if it can.

    `known` are the jobs of the queue. Places that another plan reserved are free: of all applies, one at a
    time uses a host.
    """
    if mark.replica is None:
        return "it has no places"
    others = [each for job in host.jobs if job.name != record.job.name for each in job.running_replicas]
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
