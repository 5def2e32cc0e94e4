"""
Steps of an action on a job of a Slurm cluster: which is next, by the mark of the action and the job's state.

A job is placed by naming its nodes and releasing it. It is stopped by requeueing and holding it, after a
signal and the time that it asked for. To migrate is to stop and to place. A step may be done twice: the mark
of a step is written before it, and a process that goes on after another was killed does the step again.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum, auto
from typing import TYPE_CHECKING, Final

from gpuplan.models.plan.actions import ActionKind
from gpuplan.planner.executors.interface import GONE, LANDED, NOT_BEGUN, ActionPhase, ActionProgress
from gpuplan.planner.sources.slurm.marks import MarkStage
from gpuplan.planner.sources.slurm.values import hosts

if TYPE_CHECKING:
    from gpuplan.planner.executors.slurm.commands import JobRow
    from gpuplan.planner.sources.slurm.marks import Mark

_UNAVAILABLE: Final = "UnavailableNodes"
"""Part of the reason of a job that requires nodes which are down or drained."""

_STOPS: Final = (ActionKind.PREEMPT, ActionKind.RELEASE)
"""Kinds of action after which the job holds nothing."""


class SlurmDeed(Enum):
    """What an executor does next about a job."""

    NOTHING = auto()
    NOTIFY = auto()
    STOP = auto()
    PLACE = auto()
    LAND = auto()
    FAIL = auto()


@dataclass(frozen=True, slots=True)
class NextSlurmStep:
    """The next deed, and the progress before it."""

    deed: SlurmDeed
    progress: ActionProgress


def next_step(
    mark: Mark | None, row: JobRow | None, *, now: float, tried: frozenset[SlurmDeed]
) -> NextSlurmStep:
    """
    The next step of an action.

    `tried` are the deeds of the action that this process did since the mark was written: they are waited for.
    """
    if row is None:
        return NextSlurmStep(SlurmDeed.NOTHING, GONE)
    if mark is None:
        return NextSlurmStep(SlurmDeed.NOTHING, NOT_BEGUN)
    if mark.step is MarkStage.LANDED:
        return NextSlurmStep(SlurmDeed.NOTHING, LANDED)
    if mark.step is MarkStage.FAILED:
        return NextSlurmStep(
            SlurmDeed.NOTHING, ActionProgress(ActionPhase.FAILED, mark.reason, retryable=True)
        )
    if mark.kind == ActionKind.START or mark.step is MarkStage.PLACING:
        return _of_placement(mark, row, tried)
    if mark.step is MarkStage.STOPPING:
        return _of_stop(mark, row, tried)
    return _of_notice(mark, row, now, tried)


def _of_placement(mark: Mark, row: JobRow, tried: frozenset[SlurmDeed]) -> NextSlurmStep:
    """A job that is placed runs soon, or its nodes boot, or it waits for what still holds them."""
    there = set(hosts(mark.nodes))
    if row.configuring:
        return _under_way("its nodes boot")
    if row.pending:
        return _of_wait(there, row, tried)
    if row.running or row.nodes:
        # It runs, or has run and is over.
        return _landed_on(there, row)
    return _failed(f"it is {row.state.lower()}")


def _of_wait(there: set[str], row: JobRow, tried: frozenset[SlurmDeed]) -> NextSlurmStep:
    """A waiting job is placed once, and then waits for its nodes."""
    if row.launch_failed:
        return _failed("Slurm could not launch it")
    if row.held or set(hosts(row.required)) != there:
        # A job that was requeued, or submitted without a hold, is not held: Slurm would start it anywhere.
        if SlurmDeed.PLACE in tried:
            return _failed("it was held again" if row.held else "its nodes were changed")
        return NextSlurmStep(SlurmDeed.PLACE, ActionProgress(ActionPhase.ASKED))
    if _UNAVAILABLE in row.reason:
        return _failed(f"Slurm says {row.reason}")
    return _under_way(f"Slurm says {row.reason}" if row.reason else "")


def _landed_on(there: set[str], row: JobRow) -> NextSlurmStep:
    """A job that Slurm started elsewhere, in the moment before it was placed, is not as planned."""
    if set(hosts(row.nodes)) != there:
        return _failed(f"Slurm started it on {row.nodes}")
    return NextSlurmStep(SlurmDeed.LAND, LANDED)


def _of_notice(mark: Mark, row: JobRow, now: float, tried: frozenset[SlurmDeed]) -> NextSlurmStep:
    """A running job is notified, and stopped when its time is over."""
    if not row.running and not row.configuring:
        return _of_stop(mark, row, tried)
    if mark.step is MarkStage.ASKED:
        return NextSlurmStep(SlurmDeed.NOTIFY, ActionProgress(ActionPhase.ASKED))
    if now < mark.until:
        return _under_way(f"it has {mark.until - now:.0f} s to save its work")
    return NextSlurmStep(SlurmDeed.STOP, ActionProgress(ActionPhase.UNDER_WAY))


def _of_stop(mark: Mark, row: JobRow, tried: frozenset[SlurmDeed]) -> NextSlurmStep:
    """A stopped job leaves its nodes and is held; then it is placed if it migrates."""
    if row.leaving:
        return _under_way("it ends")
    if row.running or row.configuring:
        return (
            _under_way("it ends")
            if SlurmDeed.STOP in tried
            else NextSlurmStep(SlurmDeed.STOP, ActionProgress(ActionPhase.UNDER_WAY))
        )
    stops = mark.kind in _STOPS
    if not row.pending:
        return NextSlurmStep(SlurmDeed.LAND, LANDED) if stops else _failed(f"it is {row.state.lower()}")
    if not row.held:
        return NextSlurmStep(SlurmDeed.STOP, ActionProgress(ActionPhase.UNDER_WAY))
    if stops:
        return NextSlurmStep(SlurmDeed.LAND, LANDED)
    return NextSlurmStep(SlurmDeed.PLACE, ActionProgress(ActionPhase.UNDER_WAY))


def _under_way(reason: str) -> NextSlurmStep:
    return NextSlurmStep(SlurmDeed.NOTHING, ActionProgress(ActionPhase.UNDER_WAY, reason))


def _failed(reason: str) -> NextSlurmStep:
    return NextSlurmStep(SlurmDeed.FAIL, ActionProgress(ActionPhase.FAILED, reason, retryable=True))
