"""
Steps of an action on a job of a host: which is next, by the mark of the action and the job's attempt.

As for Slurm: a step may be done twice, since its mark is written before it.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum, auto
from typing import TYPE_CHECKING, Final

from gpuplan.models.plan.actions import ActionKind
from gpuplan.planner.executors.interface import LANDED, NOT_BEGUN, ActionPhase, ActionProgress
from gpuplan.planner.executors.local.records import HostStage
from gpuplan.planner.executors.local.runs import RunPhase

if TYPE_CHECKING:
    from gpuplan.planner.executors.local.records import HostMark
    from gpuplan.planner.executors.local.runs import Run

_BEGINS: Final = (RunPhase.ABSENT, RunPhase.STARTING)


class HostDeed(Enum):
    """What an executor does next about a job."""

    NOTHING = auto()
    NOTIFY = auto()
    STOP = auto()
    PLACE = auto()
    LAND = auto()


@dataclass(frozen=True, slots=True)
class NextHostStep:
    """The next deed, and the progress before it."""

    deed: HostDeed
    progress: ActionProgress


def next_step(mark: HostMark | None, run: Run | None, *, now: float) -> NextHostStep:
    """The next step of an action; `run` is the attempt that is under way, None if the job waits."""
    if mark is None:
        return NextHostStep(HostDeed.NOTHING, NOT_BEGUN)
    if mark.step is HostStage.LANDED:
        return NextHostStep(HostDeed.NOTHING, LANDED)
    if mark.step is HostStage.FAILED:
        return NextHostStep(HostDeed.NOTHING, ActionProgress(ActionPhase.FAILED, mark.reason, retryable=True))
    if mark.kind == ActionKind.START or mark.step is HostStage.PLACING:
        return _of_placement(run)
    if run is None:
        if mark.kind == ActionKind.MIGRATE:
            return NextHostStep(HostDeed.PLACE, ActionProgress(ActionPhase.UNDER_WAY))
        return NextHostStep(HostDeed.LAND, LANDED)
    if mark.step is HostStage.STOPPING:
        # It is asked again: its supervisor may have been killed since.
        return NextHostStep(HostDeed.STOP, ActionProgress(ActionPhase.UNDER_WAY, "it ends"))
    if run.phase in _BEGINS:
        return NextHostStep(HostDeed.NOTHING, ActionProgress(ActionPhase.UNDER_WAY, "it begins"))
    if mark.step is HostStage.ASKED:
        return NextHostStep(HostDeed.NOTIFY, ActionProgress(ActionPhase.ASKED))
    if now < mark.until:
        left = f"it has {mark.until - now:.0f} s to save its work"
        return NextHostStep(HostDeed.NOTHING, ActionProgress(ActionPhase.UNDER_WAY, left))
    return NextHostStep(HostDeed.STOP, ActionProgress(ActionPhase.UNDER_WAY))


def _of_placement(run: Run | None) -> NextHostStep:
    if run is None:
        return NextHostStep(HostDeed.PLACE, ActionProgress(ActionPhase.ASKED))
    if run.phase in _BEGINS:
        return NextHostStep(HostDeed.NOTHING, ActionProgress(ActionPhase.UNDER_WAY, "it begins"))
    return NextHostStep(HostDeed.LAND, LANDED)
