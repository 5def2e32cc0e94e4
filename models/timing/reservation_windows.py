"""Windows: spans in which nodes are closed to jobs: reservations, maintenance, nodes held for a job."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from gpuplan.models.calendar import Reservation, ReservationKind, Span
from gpuplan.models.queue import queue_and_above
from gpuplan.models.timing.starvation import NodeHold, hold_for_starving_job
from gpuplan.models.timing.time_slots import TimeSlots
from gpuplan.models.units import MILLI
from gpuplan.models.value.disruption_cost import disruption_points, lost_seconds

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from gpuplan.models.job import Job
    from gpuplan.models.placement import Replica
    from gpuplan.models.policy.policy import Policy
    from gpuplan.models.snapshot import Snapshot
    from gpuplan.models.timing.durations import Durations


_NOT_TO_BE_MOVED: Final = 10**12
"""More points than the loss of all preemptible jobs on a node can reach."""


@dataclass(frozen=True, slots=True)
class ReservationWindow:
    """One span of one reservation, with the nodes that it closes."""

    reservation: Reservation
    """The reservation; for nodes held for a job, a synthetic one that no cluster contains."""
    begins: int
    """Seconds after the snapshot; negative if it has begun."""
    ends: int
    nodes: frozenset[str]
    job: str | None = None
    """The starving job that the nodes are held for; None for a reservation."""
    beside: tuple[str, ...] = ()
    """Jobs that have a place there beside it."""

    def overlaps(self, start: int, seconds: int) -> bool:
        """True if a job with this start and duration overlaps the window."""
        return start < self.ends and start + seconds > self.begins


class ReservationWindows:
    """The windows of one snapshot, as far ahead as any job can last."""

    def __init__(self, snapshot: Snapshot, policy: Policy, durations: Durations) -> None:
        self._snapshot = snapshot
        self._policy = policy
        self._durations = durations
        self._parents = snapshot.parent_queues
        self.slots = TimeSlots.of(policy.horizon, snapshot.taken_at)
        self._by_node: dict[str, list[ReservationWindow]] = defaultdict(list)
        self.all: tuple[ReservationWindow, ...] = ()
        """By reservation and time: first those of named nodes, last those of nodes held for a job."""
        self._holders: list[tuple[Reservation, frozenset[str]]] = []
        """Synthetic reservations of held nodes, with the jobs that may use them."""
        self.node_hold: NodeHold | None = None
        """Nodes held for a starving job; nodes with reservations are never held."""
        if snapshot.cluster.reservations:
            self.all = tuple(self._windows())
        self.node_hold = hold_for_starving_job(snapshot, policy, durations, self._by_node.keys())
        if self.node_hold is not None:
            self.all += tuple(self._holding(self.node_hold))

    def of(self, node: str) -> tuple[ReservationWindow, ...]:
        """The windows of a node."""
        return tuple(self._by_node.get(node, ()))

    def owns(self, job: Job, reservation: Reservation) -> bool:
        """
        True if a job may use the reserved nodes.

        Nodes held for a job are also open to jobs that have a place beside it, and to higher priorities.
        """
        if self.node_hold is not None:
            for held, names in self._holders:
                if reservation is held:
                    return job.name in names or job.priority > self.node_hold.job.priority
        if reservation.kind is ReservationKind.MAINTENANCE:
            return False
        if job.user in reservation.users:
            return True
        if reservation.job_labels and reservation.job_labels.items() <= job.labels.items():
            return True
        return any(name in reservation.queues for name in queue_and_above(job.queue, self._parents))

    def blocking_window(self, job: Job, node: str, start: int, seconds: int) -> ReservationWindow | None:
        """The first window that a job with this start and duration on a node would violate."""
        return self._in_the_way(job, node, start, seconds)

    def _in_the_way(
        self, job: Job, node: str, start: int, seconds: int, *, reserved: bool = False
    ) -> ReservationWindow | None:
        """The same; with `reserved` only reservations count, not nodes held for a job."""
        met = (
            window
            for window in self._by_node.get(node, ())
            if window.overlaps(start, seconds)
            and not self.owns(job, window.reservation)
            and not (reserved and window.job is not None)
        )
        return min(met, key=lambda window: (window.begins, window.reservation.name), default=None)

    def forced_leave_window(self, job: Job) -> ReservationWindow | None:
        """
        The window for which a running job must leave now: it opens before the next slot begins, or with it.

        For windows that open later a later plan can act, but a plan of the instant at which one opens is too
        late. No job must leave for a starving job.
        """
        if job.running is None or not self.all:
            return None
        left = self._durations.remaining(job)
        met = (
            window
            for name in sorted({replica.node for replica in job.running.replicas})
            if (window := self._in_the_way(job, name, 0, left, reserved=True))
            and window.begins <= self.slots.edges[1]
        )
        return min(met, key=lambda window: (window.begins, window.reservation.name), default=None)

    def _windows(self) -> Iterator[ReservationWindow]:
        """Windows of named nodes first: nodes chosen for other reservations avoid them and each other."""
        until = self.slots.end + max(map(self._longest, self._snapshot.jobs), default=0)
        ordered = sorted(self._snapshot.cluster.reservations, key=lambda each: (not each.nodes, each.name))
        for reservation in ordered:
            for span in reservation.spans(self._snapshot.taken_at, until):
                names = reservation.nodes or self._chosen(reservation, span)
                window = ReservationWindow(reservation, *span, frozenset(names))
                for name in sorted(window.nodes):
                    self._by_node[name].append(window)
                yield window

    def _holding(self, held: NodeHold) -> Iterator[ReservationWindow]:
        """A window for all nodes without places beside the job, and one for each other node."""
        alone = held.nodes.difference(held.beside)
        for nodes in (alone, *(frozenset({name}) for name in sorted(held.beside))):
            if nodes:
                names = frozenset[str]().union(*(held.beside.get(name, ()) for name in nodes))
                reservation = Reservation.model_construct(
                    name=held.job.name, nodes=tuple(sorted(nodes)), duration=held.ends
                )
                self._holders.append((reservation, names | {held.job.name}))
                window = ReservationWindow(
                    reservation, held.begins, held.ends, nodes, held.job.name, tuple(sorted(names))
                )
                for name in sorted(nodes):
                    self._by_node[name].append(window)
                yield window

    def _longest(self, job: Job) -> int:
        """Upper bound on the seconds of a job, restarted or migrated, on the slowest of its GPU models."""
        slowest = min(map(job.speed_milli, job.gpu_models), default=MILLI)
        seconds = max(self._durations.seconds(job, None), self._durations.remaining(job))
        # Speeds are rounded down to thousandths.
        stretch = -(-MILLI // max(1, slowest))
        return (seconds + lost_seconds(self._policy, job, self._snapshot.taken_at)) * stretch

    def _chosen(self, reservation: Reservation, span: Span) -> Iterable[str]:
        """
        The matching nodes of a reservation with `count`, by usability and cost to other jobs.

        Last come nodes that accept no jobs, before them nodes closed to the owners by another window. The
        rest is ordered by the loss of other jobs that run, or are promised to run, into the span. Of equal
        nodes those come first on which jobs of the owners run: a reservation in use keeps these.
        """
        begins, ends = span
        lost, in_use = self._lost(reservation, span)
        matching = [
            (
                not node.schedulable and (node.ready or node.ready_at is None),
                any(window.overlaps(begins, ends - begins) for window in self._by_node.get(node.name, ())),
                lost.get(node.name, 0),
                node.name not in in_use,
                node.name,
            )
            for node in self._snapshot.cluster.nodes
            if reservation.gpu_model in (None, node.gpu_model)
            and reservation.node_selector.items() <= node.labels.items()
        ]
        return [name for *_, name in sorted(matching)[: reservation.count]]

    def _lost(self, reservation: Reservation, span: Span) -> tuple[dict[str, int], set[str]]:
        """
        Loss of other jobs on each node in a span, in points, and the nodes on which jobs of the owners run.

        The loss is far more if a job may not be preempted.
        """
        begins, ends = span
        lost: dict[str, int] = defaultdict(int)
        in_use = set[str]()
        for job in self._snapshot.jobs:
            if self.owns(job, reservation):
                if job.running and self._durations.remaining(job) > begins:
                    in_use |= {replica.node for replica in job.running.replicas}
                continue
            replicas: tuple[Replica, ...] = ()
            price = 1
            if job.running and self._durations.remaining(job) > begins:
                replicas = job.running.replicas
                price += disruption_points(self._policy, job, self._snapshot.taken_at)
                price += 0 if job.preemptible else _NOT_TO_BE_MOVED
            elif job.promise and not job.running:
                start = int((job.promise.start - self._snapshot.taken_at).total_seconds())
                if start < ends and start + self._durations.seconds(job, None) > begins:
                    replicas = job.promise.replicas
            for name in sorted({replica.node for replica in replicas}):
                lost[name] += price
        return lost, in_use
