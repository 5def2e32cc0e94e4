"""
Steps of an action on a job: what an executor does next, and the answers that need no look at the job.

A step may be done twice, since its mark is written before it: a process that goes on after another was killed
does the step again.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum, auto
from typing import TYPE_CHECKING, Final

from gpuplan.planner.action_marks import MarkStage
from gpuplan.planner.executors.interface import LANDED, NOT_BEGUN, RESERVED, ActionPhase, ActionProgress

if TYPE_CHECKING:
    from gpuplan.planner.action_marks import ActionMark


class Deed(Enum):
    """What an executor does next about a job."""

    NOTHING = auto()
    NOTIFY = auto()
    STOP = auto()
    PLACE = auto()
    LAND = auto()
    FAIL = auto()


@dataclass(frozen=True, slots=True)
class NextStep:
    """The next deed, and the progress before it."""

    deed: Deed
    progress: ActionProgress


NO_STEP: Final = NextStep(Deed.NOTHING, NOT_BEGUN)
"""That of an action without a mark."""


def settled_step(mark: ActionMark) -> NextStep | None:
    """The step of an action that is done, given up or reserved; None of one that is under way."""
    if mark.step is MarkStage.LANDED:
        return NextStep(Deed.NOTHING, LANDED)
    if mark.step is MarkStage.FAILED:
        return NextStep(Deed.NOTHING, failed(mark.reason))
    if mark.step is MarkStage.RESERVED:
        return NextStep(Deed.NOTHING, RESERVED)
    return None


def notice_step(mark: ActionMark, now: float, grace: float) -> NextStep:
    """
    The step of an action on a job that runs: it is notified, and stopped when its time is over.

    `grace` is the time in seconds that a notified job has.
    """
    # More than all of the time is left if the clock was put back: only a second notice ends that wait.
    if mark.step is MarkStage.ASKED or mark.until - now > grace + 1:
        return NextStep(Deed.NOTIFY, ActionProgress(ActionPhase.ASKED))
    if now < mark.until:
        left = mark.until - now
        reason = f"it has {left:.0f} s to save its work"
        return NextStep(Deed.NOTHING, ActionProgress(ActionPhase.UNDER_WAY, reason, due_in=left))
    return under_way(Deed.STOP)


def under_way(deed: Deed, reason: str = "") -> NextStep:
    """A deed of an action that is under way."""
    return NextStep(deed, ActionProgress(ActionPhase.UNDER_WAY, reason))


def waiting(reason: str = "") -> NextStep:
    """Nothing to do, as the action waits for something."""
    return under_way(Deed.NOTHING, reason)


def failed(reason: str) -> ActionProgress:
    """The progress of an action that the cluster gave up."""
    return ActionProgress(ActionPhase.FAILED, reason, retryable=True)
