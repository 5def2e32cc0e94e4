"""
Notices on a Slurm cluster: a maintenance reservation, which Slurm's own scheduler respects too.

It is one object that survives this process and ends by itself, and snapshots have it as a maintenance window
(`sources/slurm/cluster/reservations.py`). Nodes that do not come back are drained as well.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from gpuplan.models.units import print_timestamp
from gpuplan.planner.executors.slurm.commands import call, nodes_table, reservations_table, update
from gpuplan.planner.executors.slurm.node_steps import is_drained
from gpuplan.planner.sources.slurm.cluster.reservations import NOTICE_PREFIX
from gpuplan.planner.sources.slurm.values import name_of

if TYPE_CHECKING:
    from gpuplan.planner.notices import Notice


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
