"""
Notices: nodes that are lost or serviced at a time, recorded as a maintenance window and answered at once.

The answer is greedy's plan: jobs leave the nodes before the window opens, by migration or with a checkpoint,
and nothing starts there that would not end in time.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, timedelta
from enum import StrEnum
from typing import TYPE_CHECKING, Final

from gpuplan.models.calendar import Reservation, ReservationKind
from gpuplan.models.errors import PlannerError, truncated_names
from gpuplan.models.placement import node_names
from gpuplan.models.timing.time_slots import TimeSlots
from gpuplan.models.units import print_seconds, print_timestamp
from gpuplan.planner.epoch import plan_epoch

if TYPE_CHECKING:
    from collections.abc import Iterator

    from gpuplan.models.plan.plan import Plan
    from gpuplan.models.policy.policy import Policy
    from gpuplan.models.snapshot import Snapshot

_GONE_FOR: Final = timedelta(days=1)
"""Length of the window of a node that does not come back; by then snapshots no longer have it."""

_MOST_MILLISECONDS: Final = 30_000
"""Longest search for an answer: a notice of a spot node leaves two minutes in all."""


class NoticeKind(StrEnum):
    """What happens to the nodes."""

    SPOT = "spot-notice"
    """They are taken away and do not come back."""
    MAINTENANCE = "maintenance"
    """They are serviced for a time."""


@dataclass(frozen=True, slots=True)
class Notice:
    """Nodes on which nothing may run from a time on."""

    kind: NoticeKind
    nodes: tuple[str, ...]
    at: datetime
    until: datetime | None = None
    """End of a maintenance; None for a spot notice."""

    @property
    def drains(self) -> bool:
        """True if nothing more may start on the nodes, however short it is."""
        return self.kind is NoticeKind.SPOT

    @property
    def reservation(self) -> Reservation:
        """The window that it is recorded as; a later notice for the same nodes has the same name."""
        more = f"-and-{len(self.nodes) - 1}-more" if len(self.nodes) > 1 else ""
        ends = self.until or self.at + _GONE_FOR
        return Reservation(
            name=f"{self.kind}-{self.nodes[0]}{more}",
            kind=ReservationKind.MAINTENANCE,
            nodes=self.nodes,
            start=self.at,
            duration=int((ends - self.at).total_seconds()),
        )


def require_sensible(notice: Notice, snapshot: Snapshot) -> None:
    """
    Check a notice against a cluster.

    Raises
    ------
    PlannerError
        Lists all that is wrong: unknown nodes, a time that is past, an end that is missing or too early.
    """
    now, found = snapshot.taken_at, []
    if unknown := [name for name in notice.nodes if name not in snapshot.cluster.node_by_name]:
        known = truncated_names(snapshot.cluster.node_by_name)
        found.append(f"no node has the name {', '.join(unknown)}; known: {known}.")
    if notice.at < now:
        found.append(f"expected a time from {print_timestamp(now)} on, found {print_timestamp(notice.at)}.")
    if notice.drains and notice.until is not None:
        found.append("expected no end of a spot notice: the nodes do not come back.")
    if not notice.drains and notice.until is None:
        found.append("expected the end of a maintenance, found none.")
    if notice.until is not None and notice.until <= notice.at:
        found.append(
            f"expected an end after {print_timestamp(notice.at)}, found {print_timestamp(notice.until)}."
        )
    if found:
        raise PlannerError("the notice cannot be recorded:\n" + "\n".join(f"  {each}" for each in found))


def with_notice(snapshot: Snapshot, notice: Notice) -> Snapshot:
    """The snapshot with the window of a notice, in place of an earlier one of the same name."""
    window, cluster = notice.reservation, snapshot.cluster
    others = (each for each in cluster.reservations if each.name != window.name)
    nodes = tuple(
        node.model_copy(update={"drain": True}) if notice.drains and node.name in notice.nodes else node
        for node in cluster.nodes
    )
    update = {"reservations": (*others, window), "nodes": nodes}
    return snapshot.model_copy(update={"cluster": cluster.model_copy(update=update)}).canonical()


def answer(snapshot: Snapshot, policy: Policy, notice: Notice, *, seed: int, created_at: datetime) -> Plan:
    """Greedy's plan of a snapshot that has the window of a notice."""
    rules = in_time(policy, notice, snapshot.taken_at)
    return plan_epoch(snapshot, rules, seed=seed, created_at=created_at)


def in_time(policy: Policy, notice: Notice, now: datetime) -> Policy:
    """
    The policy with which a notice is answered: greedy alone, within 30 s and half of the time that is left.

    Jobs leave for a window by the last plan before it opens. So with one slot, which ends with the
    current hour by default, the slot is made long enough to contain the opening; several slots stay.
    """
    left = max(0, int((notice.at - now).total_seconds()))
    limit = max(1_000, min(policy.budget.time_limit_ms, _MOST_MILLISECONDS, left * 500))
    budget, horizon = policy.budget.model_copy(update={"time_limit_ms": limit}), policy.horizon
    while horizon.slots == 1 and TimeSlots.of(horizon, now).end <= left:
        horizon = horizon.model_copy(update={"length": 2 * horizon.length})
    return policy.model_copy(update={"solvers": (), "budget": budget, "horizon": horizon})


def left_behind(plan: Plan, notice: Notice) -> Iterator[str]:
    """What the plan does not save: jobs that stay on the nodes, and checkpoints that take too long."""
    left = int((notice.at - plan.epoch).total_seconds())
    lost, usual = set(notice.nodes), plan.policy.disruption.checkpoint
    stay = {each.job for each in plan.placements if each.nodes & lost}
    for job in plan.snapshot.jobs:
        if job.running is None or not node_names(job.running.replicas) & lost:
            continue
        needed = usual if job.checkpoint_duration is None else job.checkpoint_duration
        if job.name in stay:
            why = "it stays" if job.preemptible else "it is not preemptible"
            yield f"job {job.name} is still on the nodes at {print_timestamp(notice.at)}: {why}."
        elif needed > left:
            yield (
                f"job {job.name} needs {print_seconds(needed)} to save its state, and {print_seconds(left)} "
                "are left: it may lose the work since its last checkpoint."
            )
