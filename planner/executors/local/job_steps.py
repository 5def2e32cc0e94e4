"""Steps of an action on a job of a host: which is next, by the mark of the action and the job's attempt."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Final

from gpuplan.models.plan.actions import ActionKind
from gpuplan.planner.action_marks import MarkStage, kind_of
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
    from gpuplan.planner.executors.local.records import HostMark
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
