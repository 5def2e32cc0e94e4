"""
Steps of an action on a job of a Slurm cluster: which is next, by the mark of the action and the job's state.

A job is placed by naming its nodes and releasing it. It is stopped by requeueing and holding it, after a
signal and the time that it asked for. To migrate is to stop and to place. Promises are texts in the marks of
the jobs that wait for their start.
"""

from __future__ import annotations

import math
from dataclasses import replace
from typing import TYPE_CHECKING, Final

from gpuplan.models.plan.actions import ActionKind
from gpuplan.planner.action_marks import MarkStage, kind_of
from gpuplan.planner.executors.interface import GONE, LANDED, ActionPhase, ActionProgress
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
from gpuplan.planner.executors.slurm.commands import update
from gpuplan.planner.sources.slurm.values import hosts

if TYPE_CHECKING:
    from collections.abc import Mapping

    from gpuplan.models.placement import Promise
    from gpuplan.planner.executors.slurm.commands import JobRow
    from gpuplan.planner.sources.slurm.marks import Mark


_UNAVAILABLE: Final = "UnavailableNodes"
"""Part of the reason of a job that requires nodes which are down or drained."""

STOPS: Final = (ActionKind.PREEMPT, ActionKind.RELEASE)
"""Kinds of action after which the job holds nothing."""


def next_step(
    mark: Mark | None, row: JobRow | None, *, now: float, tried: frozenset[Deed], grace: float = math.inf
) -> NextStep:
    """
    The next step of an action.

    `tried` are the deeds of the action that this process did since the mark was written: they are waited for.
    `grace` is the time in seconds that the job asked for before it is stopped, if that is known.
    """
    if row is None:
        return NextStep(Deed.NOTHING, GONE)
    if mark is None:
        return NO_STEP
    if over := settled_step(mark):
        return over
    if mark.step is MarkStage.ABORTING:
        return _of_abort(mark, row, tried)
    if kind_of(mark.key) == ActionKind.START or mark.step is MarkStage.PLACING:
        return _of_placement(mark, row, tried)
    if mark.step is MarkStage.STOPPING:
        return _of_stop(mark, row, tried)
    return _of_notice(mark, row, now, tried, grace)


def _of_placement(mark: Mark, row: JobRow, tried: frozenset[Deed]) -> NextStep:
    """A job that is placed runs soon, or its nodes boot, or it waits for what still holds them."""
    there = set(hosts(mark.nodes))
    if row.configuring:
        return waiting("its nodes boot")
    if row.pending:
        return _of_wait(there, row, tried)
    if row.running or row.nodes:
        # It runs, or has run and is over.
        return _landed_on(there, row)
    return _failed(f"it is {row.state.lower()}")


def _of_wait(there: set[str], row: JobRow, tried: frozenset[Deed]) -> NextStep:
    """A waiting job is placed once, and then waits for its nodes."""
    if row.launch_failed:
        return _failed("Slurm could not launch it")
    if row.held or set(hosts(row.required)) != there:
        # A job that was requeued, or submitted without a hold, is not held: Slurm would start it anywhere.
        if Deed.PLACE in tried:
            return _failed("it was held again" if row.held else "its nodes were changed")
        return NextStep(Deed.PLACE, ActionProgress(ActionPhase.ASKED))
    if _UNAVAILABLE in row.reason:
        return _failed(f"Slurm says {row.reason}")
    return waiting(f"Slurm says {row.reason}" if row.reason else "")


def _landed_on(there: set[str], row: JobRow) -> NextStep:
    """A job that Slurm started elsewhere, in the moment before it was placed, is not as planned."""
    if set(hosts(row.nodes)) != there:
        return _failed(f"Slurm started it on {row.nodes}")
    return NextStep(Deed.LAND, LANDED)


def _of_notice(mark: Mark, row: JobRow, now: float, tried: frozenset[Deed], grace: float) -> NextStep:
    """A running job is notified, and stopped when its time is over."""
    if not row.running and not row.configuring:
        return _of_stop(mark, row, tried)
    return notice_step(mark, now, grace)


def _of_stop(mark: Mark, row: JobRow, tried: frozenset[Deed]) -> NextStep:
    """A stopped job leaves its nodes and is held; then it is placed if it migrates."""
    if row.leaving:
        return waiting("it ends")
    if row.running or row.configuring:
        return waiting("it ends") if Deed.STOP in tried else under_way(Deed.STOP)
    stops = kind_of(mark.key) in STOPS
    if not row.pending:
        return NextStep(Deed.LAND, LANDED) if stops else _failed(f"it is {row.state.lower()}")
    if not row.held:
        return under_way(Deed.STOP)
    if stops:
        return NextStep(Deed.LAND, LANDED)
    return under_way(Deed.PLACE)


def _of_abort(mark: Mark, row: JobRow, tried: frozenset[Deed]) -> NextStep:
    """A start that is taken back: its job is stopped if it runs, and waits as before, with the reason."""
    stop = _of_stop(mark, row, tried)
    over = stop.deed is Deed.PLACE or stop.progress.phase is ActionPhase.FAILED
    return _failed(mark.reason) if over else stop


def _failed(reason: str) -> NextStep:
    return NextStep(Deed.FAIL, failed(reason))


# Promises of a plan.


def set_promises(rows: Mapping[str, JobRow], promises: Mapping[str, Promise], key: str) -> None:
    """
    Set these promises on jobs that wait, and clear those of the others, all under a key.

    The promises of other jobs go first, and each mark says last that all are there. So a step that was killed
    on the way counts as not begun.
    """
    for name, row in rows.items():
        if row.marks.promise and name not in promises:
            _set(row, "", "")
    texts = {name: _text(promise) for name, promise in promises.items() if name in rows}
    for done in ("", key):
        for name, text in texts.items():
            _set(rows[name], text, done)


def has_promises(jobs: Mapping[str, JobRow], key: str) -> bool:
    """True if the promises were set under this key."""
    return any(row.marks.promise_key == key for row in jobs.values())


def _set(row: JobRow, text: str, key: str) -> None:
    marks = replace(row.marks, promise=text, promise_key=key)
    if marks != row.marks:
        update("JobId", row.id, AdminComment=str(marks))


def _text(promise: Promise) -> str:
    return f"{promise.start.isoformat()}@{','.join(replica.node for replica in promise.replicas)}"
