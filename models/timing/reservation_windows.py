"""Windows: when nodes are closed to jobs that do not own them: reserved, in maintenance, held for a job."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from gpuplan.models.calendar import Reservation, ReservationKind
from gpuplan.models.timing.starvation import hold
from gpuplan.models.timing.time_slots import Slots
from gpuplan.models.units import MILLI
from gpuplan.models.value.disruption_cost import disruption_points, lost_seconds

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from gpuplan.models.calendar import Span
    from gpuplan.models.job import Job
    from gpuplan.models.placement import Replica
    from gpuplan.models.policy.policy import Policy
    from gpuplan.models.snapshot import Snapshot
    from gpuplan.models.timing.durations import Durations
    from gpuplan.models.timing.starvation import Hold


_NOT_TO_BE_MOVED: Final = 10**12
"""More points than all that may be stopped on a node can lose."""


@dataclass(frozen=True, slots=True)
class Window:
    """One span of one reservation, with the nodes that it closes."""

    reservation: Reservation
    """Where nodes are held for a job, one that is in no cluster."""
    begins: int
    """Seconds after the snapshot; negative if it is open."""
    ends: int
    nodes: frozenset[str]
    job: str | None = None
    """The job that starves for which the nodes are held; None of a reservation."""

    def meets(self, start: int, seconds: int) -> bool:
        """True if who starts then for so long is there within the window."""
        return start < self.ends and start + seconds > self.begins


class Windows:
    """The windows of one snapshot, as far ahead as any job could reach."""

    def __init__(self, snapshot: Snapshot, policy: Policy, durations: Durations) -> None:
        self._snapshot = snapshot
        self._policy = policy
        self._durations = durations
        self._parents = {queue.name: queue.parent for queue in snapshot.queues}
        self.slots = Slots.of(policy.horizon, snapshot.taken_at)
        self._by_node: dict[str, list[Window]] = defaultdict(list)
        self.all: tuple[Window, ...] = ()
        """By reservation and time, those of named nodes in front, and last that of nodes held for a job."""
        self._held: Reservation | None = None
        self.hold: Hold | None = None
        """Nodes held for a job that starves; those of reservations are left alone."""
        if snapshot.cluster.reservations:
            self.all = tuple(self._windows())
        self.hold = hold(snapshot, policy, durations, self._by_node.keys())
        if self.hold is not None:
            self.all += (self._holding(self.hold),)

    def of(self, node: str) -> tuple[Window, ...]:
        """The windows of a node."""
        return tuple(self._by_node.get(node, ()))

    def owns(self, job: Job, reservation: Reservation) -> bool:
        """
        True if a job may use the reserved nodes.

        Those held for a job, jobs of higher priority may use as well.
        """
        if self.hold is not None and reservation is self._held:
            return job.name == self.hold.job.name or job.priority > self.hold.job.priority
        if reservation.kind is ReservationKind.MAINTENANCE:
            return False
        if job.user in reservation.users:
            return True
        queue: str | None = job.queue
        while queue is not None:
            if queue in reservation.queues:
                return True
            queue = self._parents.get(queue)
        return False

    def bars(self, job: Job, node: str, start: int, seconds: int) -> Window | None:
        """The first window in the way of a job that starts on a node then, for so long."""
        return self._in_the_way(job, node, start, seconds)

    def _in_the_way(
        self, job: Job, node: str, start: int, seconds: int, *, reserved: bool = False
    ) -> Window | None:
        """The same; with `reserved` of reservations alone, not of what is held for a job."""
        met = (
            window
            for window in self._by_node.get(node, ())
            if window.meets(start, seconds)
            and not self.owns(job, window.reservation)
            and not (reserved and window.job is not None)
        )
        return min(met, key=lambda window: (window.begins, window.reservation.name), default=None)

    def expels(self, job: Job) -> Window | None:
        """
        The window for which a running job has to leave now: it opens before the next slot begins.

        In later slots there will be time for that. Nobody leaves for a job that starves.
        """
        if job.running is None or not self.all:
            return None
        left = self._durations.remaining(job)
        met = (
            window
            for name in sorted({replica.node for replica in job.running.replicas})
            if (window := self._in_the_way(job, name, 0, left, reserved=True))
            and window.begins < self.slots.edges[1]
        )
        return min(met, key=lambda window: (window.begins, window.reservation.name), default=None)

    def _windows(self) -> Iterator[Window]:
        """Those of named nodes first: what is chosen for the others keeps clear of them and of each other."""
        until = self.slots.end + max(map(self._longest, self._snapshot.jobs), default=0)
        ordered = sorted(self._snapshot.cluster.reservations, key=lambda each: (not each.nodes, each.name))
        for reservation in ordered:
            for span in reservation.spans(self._snapshot.taken_at, until):
                names = reservation.nodes or self._chosen(reservation, span)
                window = Window(reservation, *span, frozenset(names))
                for name in sorted(window.nodes):
                    self._by_node[name].append(window)
                yield window

    def _holding(self, held: Hold) -> Window:
        nodes = tuple(sorted(held.nodes))
        self._held = Reservation.model_construct(name=held.job.name, nodes=nodes, duration=held.ends)
        window = Window(self._held, held.begins, held.ends, held.nodes, held.job.name)
        for name in sorted(held.nodes):
            self._by_node[name].append(window)
        return window

    def _longest(self, job: Job) -> int:
        """Seconds that a job can take at most, begun anew or moved, on the slowest of its GPU models."""
        slowest = min(map(job.speed_milli, job.gpu_models), default=MILLI)
        seconds = max(self._durations.seconds(job, None), self._durations.remaining(job))
        # Speeds are rounded down to thousandths.
        stretch = -(-MILLI // max(1, slowest))
        return (seconds + lost_seconds(self._policy, job, self._snapshot.taken_at)) * stretch

    def _chosen(self, reservation: Reservation, span: Span) -> Iterable[str]:
        """
        So many matching nodes, those in front that can serve and that cost others least.

        Nodes that take no jobs come last, before them those that are closed to the owners for another reason,
        then those on which others run, or are promised to run, into the span, by what these lose.
        """
        begins, ends = span
        lost = self._lost(reservation, span)
        matching = [
            (
                not node.schedulable and (node.ready or node.ready_at is None),
                any(window.meets(begins, ends - begins) for window in self._by_node.get(node.name, ())),
                lost.get(node.name, 0),
                node.name,
            )
            for node in self._snapshot.cluster.nodes
            if reservation.gpu_model in (None, node.gpu_model)
            and reservation.node_selector.items() <= node.labels.items()
        ]
        return [name for *_, name in sorted(matching)[: reservation.count]]

    def _lost(self, reservation: Reservation, span: Span) -> dict[str, int]:
        """What others lose who are on a node in a span: points, and far more where somebody may not leave."""
        begins, ends = span
        lost: dict[str, int] = defaultdict(int)
        for job in self._snapshot.jobs:
            if self.owns(job, reservation):
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
        return lost
