"""Time-related reasons of waiting jobs: prerequisites, reservation windows, promises, co-start groups."""

from __future__ import annotations

from collections import defaultdict
from typing import TYPE_CHECKING

from gpuplan.models.eligibility.node_eligibility import ineligibility
from gpuplan.models.units import MILLI
from gpuplan.planner.analysis.projected_schedule import JobInterval, Prerequisites, ProjectedSchedule
from gpuplan.planner.analysis.quota_headroom import QuotaHeadroom, usage_by_queue
from gpuplan.planner.waiting import time_messages

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from gpuplan.models.cluster import Node
    from gpuplan.models.job import Job
    from gpuplan.models.plan.reason import Reason
    from gpuplan.models.policy.policy import Policy
    from gpuplan.models.timing.reservation_windows import ReservationWindow
    from gpuplan.planner.analysis.allocations import Usage
    from gpuplan.planner.analysis.job_changes import PlanChanges


class TimeBlockers:
    """Finds time-related reasons for one target."""

    def __init__(self, changes: PlanChanges, policy: Policy) -> None:
        snapshot = changes.snapshot
        self.future = ProjectedSchedule(snapshot, policy, changes.target)
        self._prerequisites = Prerequisites(self.future)
        self.holds = FutureHolds(self.future, changes.allocations_after.usage)
        self._closing = bool(self.future.windows.all)
        self._groups: dict[str, list[str]] = defaultdict(list)
        self._runs_already: set[str] = set()
        for job in snapshot.jobs if "co_start" in snapshot.stated else ():
            if job.co_start and job.running:
                self._runs_already.add(job.co_start)
            elif job.co_start and not job.withheld:
                self._groups[job.co_start].append(job.name)

    @property
    def by_name(self) -> bool:
        """True if a kind may depend on the name of a plain job."""
        return bool(self._closing or self.future.planned)

    def kind(self, job: Job) -> tuple[object, ...] | None:
        """Everything about a job that time-related reasons depend on; None if they cannot affect it."""
        if job.depends_on or job.begins_at or job.hard_deadline or job.co_start:
            return (job.name,)
        if job.datasets and self._prerequisites.data(job):
            return (job.name,)
        if not self._closing and not self.future.planned:
            return None
        planned = self.future.planned.get(job.name)
        promised = planned.promised if planned else None
        # The duration matters only before a window, or for a job without a later start.
        timely = self._closing or planned is None
        work = self.future.durations.work(job) if timely else None
        hold = self.future.windows.node_hold
        starves = hold and (job.priority, job.name == hold.job.name)
        return promised, work, job.user if self._closing else None, starves

    def begins(self, job: Job) -> int:
        """Earliest start in seconds from now, by the job's begin time and its datasets."""
        return self._prerequisites.begins(job)

    def never(self, job: Job, second: int = 0) -> Reason | None:
        """Why the job can never start at or after `second`; None if it can."""
        if job.depends_on and (state := self._prerequisites.dependencies(job)).is_unsatisfiable:
            return time_messages.never_satisfied(state)
        if job.hard_deadline and job.deadline is not None:
            seconds = self.future.shortest_run_seconds(job)
            begins, deadline = max(self.begins(job), second), self.future.second(job.deadline)
            if begins + seconds > deadline:
                return time_messages.deadline_impossible(
                    begins=begins, seconds=seconds, deadline=deadline, future=self.future
                )
        return None

    def not_yet_reason(self, job: Job, second: int = 0) -> Reason | None:
        """What must happen before the job may start at `second`; None if nothing. Call it after `never`."""
        if job.depends_on and (state := self._prerequisites.dependencies(job)).needed:
            return time_messages.unmet_dependencies(state, self.future)
        if self.begins(job) <= second:
            return None
        now = self.future.snapshot.taken_at
        moment, data = self._prerequisites.not_before(job), self._prerequisites.data(job)
        if data is not None and (moment is None or data[1] > moment):
            return time_messages.data_to_come(*data, now)
        if moment is not None and moment == job.retry_at:
            return time_messages.backing_off(moment, now, job.failures)
        return time_messages.not_before(moment, now) if moment is not None else None

    def closed(self, job: Job, nodes: Iterable[Node], second: int = 0) -> dict[str, ReservationWindow]:
        """Nodes by name with the window that would close them before a job started at `second` ends."""
        if not self._closing:
            return {}
        found = {}
        for node in nodes:
            model = node.gpu_model if job.request.needs_gpu else None
            seconds = self.future.durations.seconds(job, model)
            if (window := self.future.windows.blocking_window(job, node.name, second, seconds)) is not None:
                found[node.name] = window
        return found

    def closed_reason(self, job: Job, closed: Mapping[str, ReservationWindow], *, every: bool) -> Reason:
        """Reason of closed nodes: the window that ends last, and the number of other windows."""
        names = {each.reservation.name for each in closed.values()}
        window = max(closed.values(), key=lambda each: (each.ends, each.reservation.name))
        seconds = self.future.durations.seconds(job, None)
        return time_messages.window_closed(
            window, self.future, every=every, seconds=seconds, others=len(names) - 1
        )

    def opening(self, job: Job) -> Reason | None:
        """Reason that matching nodes exist but are not ready yet; None if there are no such nodes."""
        now = self.future.snapshot.taken_at
        found = [
            (node.ready_at, node.name)
            for node in self.future.snapshot.cluster.nodes
            if not node.ready
            and node.ready_at is not None
            and node.ready_at > now
            and ineligibility(job, node.model_copy(update={"ready": True})) is None
        ]
        return time_messages.not_ready(*min(found), now) if found else None

    def later(self, job: Job) -> Reason | None:
        """Reason that the plan has a later start for a job that would fit now; None without a later start."""
        planned = self.future.planned.get(job.name)
        return None if planned is None else time_messages.later_start_planned(promised=planned.promised)

    def promised_away(self, job: Job, matching: Iterable[Node]) -> Reason | None:
        """Reason that capacity or quota is free now but promised to other jobs before the job would end."""
        if not self.future.planned:
            return None
        nodes = list(matching)
        models = tuple(sorted({node.gpu_model for node in nodes if node.gpu_model}))
        needed = job.request.total_gpu_milli
        until = self.future.slots.until(0, self.future.shortest_run_seconds(job))
        for slot in range(1, until):
            asked = job.request.quota.times(job.gang.minimum)
            found = self.holds.room(slot).now(job.queue, asked, models).shortage
            if found is not None:
                return time_messages.quota_promised(found, self.future, slot)
        if needed and self.holds.places(nodes, needed, until) < job.gang.minimum:
            return time_messages.room_promised(self.holds.promised(nodes, until), self.future)
        return None

    def co_start_jobs(self, job: Job) -> tuple[str, ...]:
        """Names of other waiting jobs that have to start together with the job, sorted."""
        if job.co_start is None or job.co_start in self._runs_already:
            return ()
        return tuple(sorted(name for name in self._groups[job.co_start] if name != job.name))


# Quota and GPUs that are free now but held in later slots.


class FutureHolds:
    """Holdings of one plan in later slots; a job counts in the whole slot in which it ends."""

    def __init__(self, future: ProjectedSchedule, now: Usage | None = None) -> None:
        """Hold the usage of the queues in slot 0, if it is known already."""
        self._future = future
        self._usage = {} if now is None else {0: now}
        self._rooms: dict[int, QuotaHeadroom] = {}
        self._free: dict[tuple[str, int], int] = {}

    def usage(self, slot: int) -> Usage:
        """Usage of the jobs directly in each queue in a slot, as `usage_by_queue`."""
        if slot not in self._usage:
            future = self._future
            there = (stay.placement for stay in future.stays.values() if stay.slot <= slot < stay.until)
            self._usage[slot] = usage_by_queue(future.snapshot, there, added=future.target.added)
        return self._usage[slot]

    def room(self, slot: int) -> QuotaHeadroom:
        """Return usage and limits of the queues in a slot."""
        if slot not in self._rooms:
            self._rooms[slot] = QuotaHeadroom(self._future.snapshot.queues, self.usage(slot))
        return self._rooms[slot]

    def places(self, nodes: Iterable[Node], need: int, until: int) -> int:
        """Upper bound on replicas that fit on nodes up to a slot; each needs `need` thousandths of GPUs."""
        return sum(self._free_until(node, until) // need for node in nodes)

    def promised(self, nodes: Iterable[Node], until: int) -> list[JobInterval]:
        """Return the promised starts on nodes before a slot, earliest first."""
        found = {
            stay.job.name: stay
            for node in nodes
            for stay in self._future.on_node.get(node.name, ())
            if 0 < stay.slot < until and self._future.planned[stay.job.name].promised
        }
        return sorted(found.values(), key=lambda stay: (stay.slot, stay.job.name))

    def _free_until(self, node: Node, until: int) -> int:
        """Thousandths of a node's GPUs that are free in every slot before `until`."""
        if node.gpus is None:
            return 0
        if (node.name, until) not in self._free:
            held = [0] * until
            for stay in self._future.on_node.get(node.name, ()):
                milli = sum(each.quota_milli for each in stay.replicas if each.node == node.name)
                for slot in range(stay.slot, min(stay.until, until)):
                    held[slot] += milli
            offered = MILLI * sum(gpu.healthy for gpu in node.gpus.by_index.values())
            self._free[node.name, until] = max(0, offered - max(held))
        return self._free[node.name, until]
