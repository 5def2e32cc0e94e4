"""
Notices: nodes that are lost or serviced at a time, recorded as a maintenance window and answered at once.

The answer is greedy's plan: nothing starts on the nodes that would not end in time. Jobs that would not end
there in time leave, by migration or with a checkpoint, once the window opens within a slot's length.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, timedelta
from enum import StrEnum
from typing import TYPE_CHECKING, Final
from zlib import crc32

from gpuplan.models.calendar import Reservation, ReservationKind
from gpuplan.models.errors import PlannerError, truncated_names
from gpuplan.models.timing.durations import Durations, DurationSource
from gpuplan.models.timing.reservation_windows import ReservationWindows
from gpuplan.models.timing.time_slots import TimeSlots
from gpuplan.models.units import LARGEST_COUNT, MILLI, print_seconds, print_timestamp
from gpuplan.planner.analysis.stay_reasons import FIXED, STAYS, StayReasons
from gpuplan.planner.epoch import plan_epoch
from gpuplan.planner.text_format import join_jobs

if TYPE_CHECKING:
    from collections.abc import Iterator

    from gpuplan.models.job import Job
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
        """The window that it is recorded as; its name is that of all notices of this kind for these nodes."""
        nodes, more = sorted(self.nodes), ""
        if len(nodes) > 1:
            more = f"-and-{len(nodes) - 1}-more-{crc32(','.join(nodes).encode()):08x}"
        ends = self.until or self.at + _GONE_FOR
        return Reservation(
            name=f"{self.kind}-{nodes[0]}{more}",
            kind=ReservationKind.MAINTENANCE,
            nodes=tuple(nodes),
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
        found.append("expected the end of a maintenance, found none. Give `--until`.")
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
    rules = with_price_of_loss(snapshot, in_time(policy, notice, snapshot.taken_at), notice)
    return plan_epoch(snapshot, rules, seed=seed, created_at=created_at)


def in_time(policy: Policy, notice: Notice, now: datetime) -> Policy:
    """
    The policy with which a notice is answered: greedy alone, within 30 s and half of the time that is left.

    Jobs leave for a window by the last plan before it opens. So with one slot, which ends with the current
    hour by default, the slot is made long enough to contain an opening that is a slot's length away, or
    less; a later answer empties the nodes for other windows. Several slots stay.
    """
    left = _left(notice, now)
    limit = max(1_000, min(policy.budget.time_limit_ms, _MOST_MILLISECONDS, left * 500))
    budget, horizon = policy.budget.model_copy(update={"time_limit_ms": limit}), policy.horizon
    if horizon.slots == 1 and left <= horizon.length:
        while TimeSlots.of(horizon, now).end < left:
            horizon = horizon.model_copy(update={"length": 2 * horizon.length})
    return policy.model_copy(update={"solvers": (), "budget": budget, "horizon": horizon})


def with_price_of_loss(snapshot: Snapshot, policy: Policy, notice: Notice) -> Policy:
    """
    The policy with prices at which every job leaves nodes that are lost, since what stays there is lost too.

    `prices.drain` is the highest that there is, and the prices of obligations are so low that those of no
    job there reach it. Nodes of earlier spot notices are lost too. Under these prices jobs would leave other
    nodes as well. So the prices stay if other jobs have to leave other nodes.
    """
    if not notice.drains:
        return policy
    draining = {node.name for node in snapshot.cluster.nodes if node.drain}
    lost = set(notice.nodes)
    for window in snapshot.cluster.reservations:
        if window.name.startswith(NoticeKind.SPOT):
            lost |= draining.intersection(window.nodes)
    windows, gpu_milli = ReservationWindows(snapshot, policy, Durations(snapshot, policy)), MILLI
    for job in snapshot.jobs:
        if job.placement is None:
            continue
        if job.placement.nodes & lost:
            gpu_milli = max(gpu_milli, job.placement.quota_milli)
        elif job.preemptible and (job.placement.nodes & draining or windows.forced_leave_window(job)):
            return policy
    most = LARGEST_COUNT * MILLI // (4 * gpu_milli)
    prices = policy.prices.model_copy(
        update={
            "drain": LARGEST_COUNT,
            "guarantee": min(most, policy.prices.guarantee),
            "nominal": min(most, policy.prices.nominal),
        }
    )
    return policy.model_copy(update={"prices": prices})


def left_behind(plan: Plan, notice: Notice) -> Iterator[str]:
    """What no plan saves: jobs that stay on the nodes beyond the time, and checkpoints that take too long."""
    left, reasons = _left(notice, plan.epoch), StayReasons(plan)
    stay, usual = set(_beyond(plan, notice)), plan.policy.disruption.checkpoint
    later, placed = _leave_later(plan, notice), {each.job: each.nodes for each in plan.placements}
    for job in _running_there(plan, notice):
        needed = usual if job.checkpoint_duration is None else job.checkpoint_duration
        if job.name in stay:
            if job.preemptible and later:
                continue
            why = reasons.of_window(job)
            when = print_timestamp(notice.at)
            yield f"job {job.name} is still on the nodes at {when}: {_WHY.get(why, why)}."
        elif needed > left and not placed.get(job.name, set()) & set(notice.nodes):
            yield (
                f"job {job.name} needs {print_seconds(needed)} to save its state, and {print_seconds(left)} "
                "are left: it may lose the work since its last checkpoint."
            )


def leaving_later(plan: Plan, notice: Notice) -> str:
    """Which jobs run on for now, and when the same notice empties the nodes; empty if there are none."""
    jobs = plan.snapshot.job_by_name
    names = [name for name in _beyond(plan, notice) if jobs[name].preemptible]
    if not names or not _leave_later(plan, notice):
        return ""
    length = timedelta(seconds=plan.policy.horizon.length)
    since = print_timestamp(notice.at - length if plan.policy.horizon.slots == 1 else _slot_of(plan, notice))
    verb = "runs" if len(names) == 1 else "run"
    return (
        f"{join_jobs(names)} {verb} on for now, and may still run at {print_timestamp(notice.at)}. "
        f"Give the notice again from {since} on: that plan stops or moves what still runs there."
    )


_WHY: Final = {FIXED: "it is not preemptible", STAYS: "it stays"}


def _left(notice: Notice, now: datetime) -> int:
    return max(0, int((notice.at - now).total_seconds()))


def _leave_later(plan: Plan, notice: Notice) -> bool:
    """True if the window opens in no slot that this plan empties nodes for."""
    left = _left(notice, plan.epoch)
    return not notice.drains and TimeSlots.of(plan.policy.horizon, plan.epoch).edges[1] < left


def _slot_of(plan: Plan, notice: Notice) -> datetime:
    """Begin of the slot in which the window opens, or at the end of which it does."""
    length = plan.policy.horizon.length
    return notice.at - timedelta(seconds=int(notice.at.timestamp()) % length or length)


def _running_there(plan: Plan, notice: Notice) -> Iterator[Job]:
    lost = set(notice.nodes)
    yield from (job for job in plan.snapshot.jobs if job.placement and job.placement.nodes & lost)


def _beyond(plan: Plan, notice: Notice) -> Iterator[str]:
    """Jobs that the plan leaves on the nodes and that end after the time, or at an unknown time."""
    lost, durations = set(notice.nodes), Durations(plan.snapshot, plan.policy)
    there, left = {each.job for each in plan.placements if each.nodes & lost}, _left(notice, plan.epoch)
    for job in _running_there(plan, notice):
        unknown = durations.expected(job).source is DurationSource.DEFAULT
        if job.name in there and (unknown or durations.remaining(job) > left):
            yield job.name
