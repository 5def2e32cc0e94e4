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
from gpuplan.planner.executors.local.records import Step
from gpuplan.planner.executors.local.runs import RunPhase

if TYPE_CHECKING:
    from gpuplan.planner.executors.local.records import Mark
    from gpuplan.planner.executors.local.runs import Run

_BEGINS: Final = (RunPhase.ABSENT, RunPhase.STARTING)


class Deed(Enum):
    """What an executor does next about a job."""

    NOTHING = auto()
    NOTIFY = auto()
    STOP = auto()
    PLACE = auto()
    LAND = auto()


@dataclass(frozen=True, slots=True)
class NextStep:
    """The next deed, and the progress before it."""

    deed: Deed
    progress: ActionProgress


def next_step(mark: Mark | None, run: Run | None, *, now: float) -> NextStep:
    """The next step of an action; `run` is the attempt that is under way, None if the job waits."""
    if mark is None:
        return NextStep(Deed.NOTHING, NOT_BEGUN)
    if mark.step is Step.LANDED:
        return NextStep(Deed.NOTHING, LANDED)
    if mark.step is Step.FAILED:
        return NextStep(Deed.NOTHING, ActionProgress(ActionPhase.FAILED, mark.reason, retryable=True))
    if mark.kind == ActionKind.START or mark.step is Step.PLACING:
        return _of_placement(run)
    if run is None:
        if mark.kind == ActionKind.MIGRATE:
            return NextStep(Deed.PLACE, ActionProgress(ActionPhase.UNDER_WAY))
        return NextStep(Deed.LAND, LANDED)
    if mark.step is Step.STOPPING:
        # It is asked again: its supervisor may have been killed since.
        return NextStep(Deed.STOP, ActionProgress(ActionPhase.UNDER_WAY, "it ends"))
    if run.phase in _BEGINS:
        return NextStep(Deed.NOTHING, ActionProgress(ActionPhase.UNDER_WAY, "it begins"))
    if mark.step is Step.ASKED:
        return NextStep(Deed.NOTIFY, ActionProgress(ActionPhase.ASKED))
    if now < mark.until:
        left = f"it has {mark.until - now:.0f} s to save its work"
        return NextStep(Deed.NOTHING, ActionProgress(ActionPhase.UNDER_WAY, left))
    return NextStep(Deed.STOP, ActionProgress(ActionPhase.UNDER_WAY))


def _of_placement(run: Run | None) -> NextStep:
    if run is None:
        return NextStep(Deed.PLACE, ActionProgress(ActionPhase.ASKED))
    if run.phase in _BEGINS:
        return NextStep(Deed.NOTHING, ActionProgress(ActionPhase.UNDER_WAY, "it begins"))
    return NextStep(Deed.LAND, LANDED)
