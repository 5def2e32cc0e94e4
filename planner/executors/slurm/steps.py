"""
Steps of an action on a job of a Slurm cluster, by its mark and the job's state; actions on nodes; notices.

A job is placed by naming its nodes and releasing it. It is stopped by requeueing and holding it, after a
signal and the time that it asked for. To migrate is to stop and to place. Promises are texts in the marks of
the jobs that wait for their start.

An action on a node, which is drained and emptied, or powered up or down, is one request, marked in the node's
Comment; the state of the node says how far it went.
"""

from __future__ import annotations

import math
from dataclasses import replace
from typing import TYPE_CHECKING, Final

from gpuplan.models.plan.actions import ActionKind
from gpuplan.models.units import print_timestamp
from gpuplan.planner.action_marks import MarkStage, kind_of, plan_of
from gpuplan.planner.executors.interface import GONE, LANDED, NOT_BEGUN, ActionPhase, ActionProgress
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
from gpuplan.planner.executors.slurm.commands import call, nodes_table, reservations_table, update
from gpuplan.planner.sources.slurm.cluster.reservations import NOTICE_PREFIX
from gpuplan.planner.sources.slurm.slurm import NODE_STATES
from gpuplan.planner.sources.slurm.values import hosts, name_of

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from gpuplan.models.placement import Promise
    from gpuplan.planner.executors.slurm.commands import JobRow, NodeRow
    from gpuplan.planner.notices import Notice
    from gpuplan.planner.sources.slurm.managed import Mark


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


# Actions on nodes.

_OFF: Final = frozenset({"POWERED_DOWN", "POWERING_DOWN", "POWER_DOWN"})
_BOOTS: Final = frozenset({"POWERING_UP", "POWER_UP", "REBOOT_ISSUED"})
_BUSY: Final = frozenset({"ALLOCATED", "MIXED", "COMPLETING", "ALLOC", "MIX", "COMP", "DRAINING", "DRNG"})
_BROKEN: Final = frozenset({"DOWN", "FAIL", "FAILING", "MAINT", "NOT_RESPONDING"})
_OURS: Final = "gpuplan "
"""Beginning of the reason with which gpuplan drains a node."""
_DRAIN: Final = frozenset({"DRAIN", "DRAINING", "DRAINED", "DRNG"})


def is_drained(row: NodeRow) -> bool:
    """True if no job may start on a node, or all have left it."""
    return bool(row.states & _DRAIN)


def request_node(row: NodeRow, mark: Mark) -> None:
    """Ask for what an action does to a node, and mark it, all in one request."""
    comment = {"Comment": str(row.marks.with_mark(mark))}
    match _asked(mark):
        case "DRAIN" as state if not is_drained(row):
            update("NodeName", row.name, State=state, Reason=f"{_OURS}{plan_of(mark.key)}", **comment)
        case "RESUME" as state if is_drained(row) and row.reason.startswith(_OURS):
            update("NodeName", row.name, State=state, **comment)
        case "POWER_UP" | "POWER_DOWN" as state:
            update("NodeName", row.name, State=state, **comment)
        case _:  # a node that its operators drain stays theirs; a drain changes nothing
            update("NodeName", row.name, **comment)


def progress_of_node(mark: Mark | None, row: NodeRow | None) -> ActionProgress:
    """How far an action on a node went."""
    if row is None:
        return GONE
    if mark is None:
        return NOT_BEGUN
    states = {state.rstrip("*~#!%$@^-") for state in row.states}
    match _asked(mark):
        case "":
            return ActionProgress(ActionPhase.UNDER_WAY, "jobs are on it") if states & _BUSY else LANDED
        case "POWER_UP":
            return _of_power_up(states, row.reason)
        case "POWER_DOWN":
            done = "POWERED_DOWN" in states and "POWER_UP" not in states
            return LANDED if done else ActionProgress(ActionPhase.UNDER_WAY, "it is powered down")
        case _:
            return LANDED


def _asked(mark: Mark) -> str:
    """State of a node that its action asks for; empty if the node is only looked at."""
    return NODE_STATES[ActionKind(kind_of(mark.key))]


def unavailable(rows: Mapping[str, NodeRow], names: Iterable[str]) -> str:
    """The first of some nodes that takes no jobs now, and why; empty if all do. One that boots takes them."""
    for name in names:
        if (row := rows.get(name)) is None:
            return f"node {name} is not on the cluster"
        states = {state.rstrip("*~#!%$@^-") for state in row.states}
        if broken := sorted(states & (_DRAIN | _BROKEN)):
            return f"node {name} is {broken[0].lower()}" + (f": {row.reason}" if row.reason else "")
    return ""


def _of_power_up(states: set[str], reason: str) -> ActionProgress:
    if "DOWN" in states and not states & _BOOTS:
        # Slurm says why it gives a node up; 24.11 shows one that boots as DOWN for a moment, without reason.
        if reason:
            return ActionProgress(ActionPhase.FAILED, f"it is down: {reason}", retryable=True)
        return ActionProgress(ActionPhase.UNDER_WAY, "it is down")
    if states & (_OFF | _BOOTS | {"NOT_RESPONDING"}):
        return ActionProgress(ActionPhase.UNDER_WAY, "it boots")
    return LANDED


# Notices about nodes. One is a maintenance reservation, which Slurm's own scheduler respects too: one
# object that survives this process and ends by itself, and that snapshots have as a maintenance window
# (`sources/slurm/cluster/reservations.py`). Nodes that do not come back are drained as well.


def announce(notice: Notice) -> None:
    """
    Record a notice durably, in place of an earlier one of its name; may be done twice.

    Raises
    ------
    ExecutionError
        This user is no operator of Slurm.
    UnreachableError
        There was no answer: it may be recorded or not.
    """
    window = notice.reservation
    name, begins = f"{NOTICE_PREFIX}{window.name}", int(notice.at.timestamp())
    rows = {name_of(row.name): row for row in nodes_table().values()}
    fields = {
        "StartTime": f"uts{begins}",
        "EndTime": f"uts{begins + window.duration}",
        "Nodes": ",".join(rows[node].name for node in notice.nodes),
    }
    if name in reservations_table():
        update("ReservationName", name, **fields)
    else:
        flags = ("Users=root", "Flags=MAINT,IGNORE_JOBS,OVERLAP")
        begin = (f"{field}={value}" for field, value in fields.items())
        call("scontrol", "create", "reservation", f"ReservationName={name}", *begin, *flags)
    for node in notice.nodes if notice.drains else ():
        # A node that its operators drain keeps their reason. This one is not that of a plan, which a rollback
        # would take back.
        if not is_drained(rows[node]):
            reason = f"{notice.kind} {print_timestamp(notice.at)}"
            update("NodeName", rows[node].name, State="DRAIN", Reason=reason)
