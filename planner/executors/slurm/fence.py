"""
A fence: a reservation of the nodes that a plan frees, so that only the jobs of the plan start there.

Without it Slurm's own scheduler starts other jobs on what a preemption frees, before the job that it is for
is released. The fence is for whole nodes and ends by itself, so that a killed apply keeps no nodes. Jobs of
the plan that start on its nodes use the reservation until they run: man page of scontrol, RESERVATIONS.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from gpuplan.planner.executors.slurm.commands import call, update
from gpuplan.planner.sources.slurm.values import hosts

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Mapping

    from gpuplan.planner.executors.slurm.commands import JobRow

PREFIX: Final = "gpuplan-"
"""Beginning of the names of fences; readers of Slurm leave these reservations out."""

_MINUTES: Final = 15
"""Time until a fence ends by itself, from its last change on."""

_FLAGS: Final = "IGNORE_JOBS,FLEX,OVERLAP"
"""Jobs there stay, those of the plan may outlast the fence, and other reservations may be there too."""


class Fence:
    """The fence of one plan."""

    def __init__(self, plan: str) -> None:
        """A fence of the plan with this uid; one that an earlier apply made is joined."""
        self.name = f"{PREFIX}{plan}"
        self._nodes: set[str] = set()
        self._users: set[str] = set()
        fields = _fences().get(self.name)
        self._exists = fields is not None
        if fields:
            self._nodes, self._users = (
                set(hosts(fields.get("Nodes"))),
                set(fields.get("Users", "").split(",")),
            )

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

    def _change(self, nodes: set[str], users: set[str]) -> None:
        if nodes <= self._nodes and users <= self._users:
            return
        self._nodes |= nodes
        self._users |= users
        parts = [f"Nodes={','.join(sorted(self._nodes))}", f"Users={','.join(sorted(self._users))}"]
        if self._exists:
            call(
                "scontrol", "update", f"ReservationName={self.name}", *parts, f"EndTime=now+{_MINUTES}minutes"
            )
        else:
            begins = ("StartTime=now", f"Duration={_MINUTES}", f"Flags={_FLAGS}")
            call("scontrol", "create", "reservation", f"ReservationName={self.name}", *parts, *begins)
            self._exists = True


def remove_fences(jobs: Mapping[str, JobRow]) -> None:
    """Remove the fences that no pending job needs, and take running jobs out of them."""
    for name in _fences():
        inside = [row for row in jobs.values() if row.reservation == name]
        for row in inside:
            if row.running:
                update("JobId", row.id, ReservationName="")
        if not any(row.pending or row.configuring for row in inside):
            call("scontrol", "delete", f"ReservationName={name}")


def fenced_nodes() -> frozenset[str]:
    """Slurm's names of the nodes behind fences."""
    return frozenset(node for fields in _fences().values() for node in hosts(fields.get("Nodes")))


def _fences() -> dict[str, dict[str, str]]:
    """Fields of the fences that there are, by name."""
    found = {}
    for line in call("scontrol", "--oneliner", "show", "reservation").splitlines():
        fields = dict(part.split("=", 1) for part in line.split() if "=" in part)
        if (name := fields.get("ReservationName", "")).startswith(PREFIX):
            found[name] = fields
    return found
