"""
Actions on nodes of a Slurm cluster: drained and emptied, powered up and down; and notices about nodes.

Each action is one request, marked in the node's Comment; the state of the node says how far it went. A notice
is a maintenance reservation, which Slurm's own scheduler respects too: one object that survives this process
and ends by itself, and that snapshots have as a maintenance window
(`sources/slurm/cluster/reservations.py`). Nodes that do not come back are drained as well.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from gpuplan.models.plan.actions import ActionKind
from gpuplan.models.units import print_timestamp
from gpuplan.planner.action_marks import kind_of, plan_of
from gpuplan.planner.executors.interface import GONE, LANDED, NOT_BEGUN, ActionPhase, ActionProgress
from gpuplan.planner.executors.slurm.commands import call, nodes_table, reservations_table, update
from gpuplan.planner.sources.slurm.cluster.reservations import NOTICE_PREFIX
from gpuplan.planner.sources.slurm.slurm import NODE_STATES
from gpuplan.planner.sources.slurm.values import name_of

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from gpuplan.planner.executors.slurm.commands import NodeRow
    from gpuplan.planner.notices import Notice
    from gpuplan.planner.sources.slurm.marks import Mark


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


# Notices.


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
