"""Projected schedule of a plan: expected start, end and placement of each of its jobs."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass
from datetime import timedelta
from functools import cached_property
from typing import TYPE_CHECKING

from gpuplan.models.plan.replica_identity import unmatched
from gpuplan.models.timing.durations import Durations
from gpuplan.models.timing.reservation_windows import ReservationWindows
from gpuplan.models.timing.time_slots import TimeSlots

if TYPE_CHECKING:
    from collections.abc import Sequence
    from datetime import datetime

    from gpuplan.models.cluster import Node
    from gpuplan.models.job import Job
    from gpuplan.models.placement import Replica
    from gpuplan.models.plan.solution import DesiredState, LaterStart
    from gpuplan.models.policy.policy import Policy
    from gpuplan.models.snapshot import Snapshot


@dataclass(frozen=True, slots=True)
class JobInterval:
    """A job in its placement from `slot` until before `until`; `until` = H means to the end or beyond."""

    job: Job
    replicas: tuple[Replica, ...]
    start: int
    """Seconds after the snapshot; 0 for all jobs that run once the plan is applied."""
    seconds: int
    """Expected time from its start to its end."""
    slot: int
    until: int

    @property
    def end(self) -> int:
        """Expected end in seconds after the snapshot."""
        return self.start + self.seconds


@dataclass(frozen=True)
class ProjectedSchedule:
    """Projection of a target over time; all seconds count from the snapshot."""

    snapshot: Snapshot
    policy: Policy
    target: DesiredState

    @cached_property
    def durations(self) -> Durations:
        """Expected durations of the jobs."""
        return Durations(self.snapshot, self.policy)

    @cached_property
    def slots(self) -> TimeSlots:
        """The slots of the policy's horizon."""
        return TimeSlots.of(self.policy.horizon, self.snapshot.taken_at)

    @cached_property
    def windows(self) -> ReservationWindows:
        """Reservation windows, in which nodes are closed."""
        return ReservationWindows(self.snapshot, self.policy, self.durations)

    @cached_property
    def nodes(self) -> dict[str, Node]:
        """Nodes by name, including nodes that the plan adds."""
        return self.snapshot.cluster.node_by_name | {node.name: node for node in self.target.added}

    @cached_property
    def planned(self) -> dict[str, LaterStart]:
        """Later starts by job."""
        return {each.job: each for each in self.target.planned}

    @cached_property
    def stays(self) -> dict[str, JobInterval]:
        """Stays of all jobs that run, start now or start later, by name."""
        jobs = self.snapshot.job_by_name
        found = {}
        for placement in self.target.placements:
            if (job := jobs.get(placement.job)) is not None:
                found[job.name] = self._stay(job, placement.replicas, 0)
        for planned in self.target.planned:
            if (job := jobs.get(planned.job)) is not None:
                found[job.name] = self._stay(job, planned.replicas, planned.slot)
        return found

    @cached_property
    def on_node(self) -> dict[str, list[JobInterval]]:
        """Stays on each node at any time, sorted by job."""
        found: dict[str, list[JobInterval]] = defaultdict(list)
        for _, stay in sorted(self.stays.items()):
            for name in sorted({replica.node for replica in stay.replicas}):
                found[name].append(stay)
        return found

    def instant_at(self, second: int) -> datetime:
        """Return the instant `second` seconds after the snapshot."""
        return self.snapshot.taken_at + timedelta(seconds=second)

    def second(self, moment: datetime) -> int:
        """Return the seconds from the snapshot to an instant, negative before the snapshot."""
        return int((moment - self.snapshot.taken_at).total_seconds())

    def begin(self, slot: int) -> datetime:
        """Return the begin of a slot."""
        return self.instant_at(self.slots.edges[slot])

    def gpu_model(self, job: Job, replicas: Sequence[Replica]) -> str | None:
        """Return the slowest GPU model among the replicas of a job; None without GPUs."""
        if not job.request.needs_gpu:
            return None
        nodes = (self.nodes.get(replica.node) for replica in replicas if replica.gpus)
        models = {node.gpu_model for node in nodes if node and node.gpu_model}
        return min(sorted(models), key=job.speed_milli, default=None)

    def shortest_run_seconds(self, job: Job) -> int:
        """
        Return seconds from the job's next start to its end, on its fastest eligible GPU model in the cluster.

        For a running job, that is a start after it is stopped now.
        """
        seconds = self.durations.again if job.running else self.durations.seconds
        models = sorted({model for node in self.nodes.values() if (model := node.gpu_model)})
        usable = [model for model in models if not job.gpu_models or model in job.gpu_models]
        if not job.request.needs_gpu or not usable:
            return seconds(job, None)
        return min(seconds(job, model) for model in usable)

    def _stay(self, job: Job, replicas: tuple[Replica, ...], slot: int) -> JobInterval:
        start = self.slots.edges[min(slot, self.slots.count)]
        seconds = self._seconds(job, replicas, later=slot > 0)
        until = self.slots.until(slot, seconds) if slot < self.slots.count else self.slots.count
        return JobInterval(job, replicas, start, seconds, slot, until)

    def _seconds(self, job: Job, replicas: tuple[Replica, ...], *, later: bool) -> int:
        """Expected time of a stay: what is left of a starting or running job."""
        model = self.gpu_model(job, replicas)
        if job.running is None:
            return self.durations.seconds(job, model)
        if later:
            return self.durations.again(job, model)
        before, after = job.running.replicas, replicas
        if not unmatched(before, after) or not unmatched(after, before):
            return self.durations.remaining(job)
        return self.durations.restart_seconds_now(job, model)  # it is moved
