"""
A fence: a reservation of the nodes that a plan frees, so that only the jobs of the plan start there.

Without it Slurm's own scheduler starts other jobs on what a preemption frees, before the job that it is for
is released. The fence is for whole nodes and ends by itself, so that a killed apply keeps no nodes. Jobs of
the plan that start on its nodes use the reservation until they run: man page of scontrol, RESERVATIONS.
"""

from __future__ import annotations

import logging
import time
from typing import TYPE_CHECKING, Final

from gpuplan.models.errors import PlannerError
from gpuplan.planner.action_marks import plan_of
from gpuplan.planner.executors.interface import ExecutionError
from gpuplan.planner.executors.slurm.commands import call, jobs_table, reservations_table, update
from gpuplan.planner.sources.slurm.values import hosts

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Mapping

    from gpuplan.planner.executors.slurm.commands import JobRow

_LOG: Final = logging.getLogger(__name__)

PREFIX: Final = "gpuplan-"
"""Beginning of the names of fences; readers of Slurm leave these reservations out."""

_MINUTES: Final = 15
"""Time until a fence ends by itself, from its last change on."""
_KEPT_EVERY: Final = 5 * 60.0
"""Seconds after which the end of a fence that is in use is moved."""

_FLAGS: Final = "IGNORE_JOBS,FLEX,OVERLAP,NO_HOLD_JOBS_AFTER_END"
"""
Jobs there stay, those of the plan may outlast the fence and wait without it, and other reservations may be
there too.
"""


class Fence:
    """The fence of one plan."""

    def __init__(self, plan: str, *, now: Callable[[], float] = time.monotonic) -> None:
        """A fence of the plan with this uid; one that an earlier apply made is joined."""
        self.name = f"{PREFIX}{plan}"
        self._now = now
        self._changed = now()
        self._nodes: frozenset[str] = frozenset()
        self._users: frozenset[str] = frozenset()
        fields = _fences().get(self.name, {})
        self._exists = bool(fields)
        # One that has ended stays while jobs use it, and keeps no other job away.
        if fields.get("State") == "ACTIVE":
            self._nodes = frozenset(hosts(fields.get("Nodes")))
            self._users = frozenset(fields.get("Users", "").split(","))

    def enclose(self, nodes: Iterable[str]) -> None:
        """Let only jobs of the plan start on these nodes."""
        self._change({*nodes}, {"root"})

    def admit(self, user: str, nodes: Collection[str]) -> bool:
        """
        Let a user's job start on these nodes, with those that are not enclosed yet.

        False if none of them is enclosed: then the job needs no reservation.
        """
        if self._nodes.isdisjoint(nodes):
            return False
        self._change({*nodes}, {user})
        return True

    def keep(self) -> None:
        """Move the end of the fence away if it comes closer."""
        if self._nodes and self._now() - self._changed >= _KEPT_EVERY:
            self._set(self._nodes, self._users)

    def _change(self, nodes: set[str], users: set[str]) -> None:
        if not nodes <= self._nodes or not users <= self._users:
            self._set(self._nodes | nodes, self._users | users)

    def _set(self, nodes: frozenset[str], users: frozenset[str]) -> None:
        name = f"ReservationName={self.name}"
        parts = (f"Nodes={','.join(sorted(nodes))}", f"Users={','.join(sorted(users))}")
        # A creation that had no answer may have been done.
        self._exists = self._exists or self.name in _fences()
        if self._exists:
            try:
                call("scontrol", "update", name, *parts, f"EndTime=now+{_MINUTES}minutes")
            except ExecutionError:
                # It may have ended, or an operator has removed it.
                self._exists = self.name in _fences()
                if self._exists:
                    raise
        if not self._exists:
            begins = ("StartTime=now", f"Duration={_MINUTES}", f"Flags={_FLAGS}")
            call("scontrol", "create", "reservation", name, *parts, *begins)
        # Only now: a change that did not arrive is made again.
        self._exists, self._nodes, self._users, self._changed = True, nodes, users, self._now()


class Fences:
    """The fences of one process, and those that killed applies of other plans left."""

    def __init__(self) -> None:
        """None so far."""
        self._own: dict[str, Fence] = {}
        self._others = False
        """True if fences of other plans may be there."""

    def of(self, key: str) -> Fence:
        """The fence of the plan of an action's key."""
        plan = plan_of(key)
        if plan not in self._own:
            self._own[plan] = Fence(plan)
            self._others = True
        return self._own[plan]

    def keep(self) -> None:
        """Keep the fences of this process; others go once no job waits behind them."""
        for fence in self._own.values():
            fence.keep()
        if self._others:
            self._others = remove_fences(jobs_table(), kept=[fence.name for fence in self._own.values()])

    def leave(self, *, removed: bool) -> None:
        """Forget the fences, and remove those that no job waits for; one that stays ends by itself."""
        self._own.clear()
        if not removed:
            return
        try:
            # One may be left by an apply that was killed as its last step was done.
            if _fences():
                remove_fences(jobs_table())
        except PlannerError as error:
            _LOG.warning("phase=apply fence=left reason=%s", error)


def remove_fences(jobs: Mapping[str, JobRow], *, kept: Collection[str] = ()) -> bool:
    """
    Remove the fences that no pending job needs, and take running jobs out of them; True if some are left.

    Those of the names `kept` stay and do not count.
    """
    left = False
    for name in _fences().keys() - set(kept):
        inside = [row for row in jobs.values() if row.reservation == name]
        if any((row.pending and not row.held) or row.configuring for row in inside):
            left = True
            continue
        for row in inside:
            if row.pending or row.running:
                update("JobId", row.id, ReservationName="")
        call("scontrol", "delete", f"ReservationName={name}")
    return left


def fenced_nodes() -> frozenset[str]:
    """Slurm's names of the nodes behind fences that no operator has reserved as well."""
    fenced: set[str] = set()
    reserved: set[str] = set()
    for name, fields in reservations_table().items():
        if fields.get("State") == "ACTIVE":
            (fenced if name.startswith(PREFIX) else reserved).update(hosts(fields.get("Nodes")))
    return frozenset(fenced - reserved)


def _fences() -> dict[str, dict[str, str]]:
    return {name: fields for name, fields in reservations_table().items() if name.startswith(PREFIX)}
