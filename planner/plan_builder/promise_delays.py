"""Why a promised start is delayed or withdrawn: what blocks the promised places at the promised time."""

from __future__ import annotations

from typing import TYPE_CHECKING

from gpuplan.models.cluster import rack_of
from gpuplan.models.eligibility.free_resources import (
    charged_cpu_memory,
    free_resources_by_node,
    memory_slices,
)
from gpuplan.models.mig import mig_geometry
from gpuplan.models.placement import GpuShare, MigSlice, Placement, quota_of_all
from gpuplan.models.queue import queue_and_below
from gpuplan.models.units import MILLI
from gpuplan.planner.analysis.power_use import PowerUse
from gpuplan.planner.analysis.projected_schedule import JobInterval, Prerequisites
from gpuplan.planner.analysis.quota_headroom import QuotaHeadroom, usage_by_queue
from gpuplan.planner.text_format import format_count, format_duration, format_time, join_jobs
from gpuplan.planner.waiting.time_messages import until_done, window_text

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Sequence

    from gpuplan.models.eligibility.free_resources import FreeResources
    from gpuplan.models.job import Job
    from gpuplan.models.placement import Promise, Replica
    from gpuplan.planner.analysis.projected_schedule import ProjectedSchedule


class PromiseDelays:
    """Texts for the pending jobs of one plan that have a promised start."""

    def __init__(self, future: ProjectedSchedule) -> None:
        self._future = future
        self._prerequisites = Prerequisites(future)
        self._room = PromiseDelayRoom(future)

    def text(self, name: str) -> str:
        """Why the promise of a job is not kept; empty if it is kept or the job starts earlier."""
        job = self._future.snapshot.job_by_name[name]
        promise, planned = job.promise, self._future.planned.get(name)
        if promise is None or job.running is not None:
            return ""
        promised = self._future.second(promise.start)
        if planned is not None and planned.promised and self._future.slots.edges[planned.slot] <= promised:
            return ""
        return self._cause(job, promise) or self._of_its_group(job) or "other promises"

    def _of_its_group(self, job: Job) -> str:
        """What delays another job of its co-start group, which it starts with; empty if nothing does."""
        others = [
            each for each in self._future.snapshot.jobs if job.co_start and each.co_start == job.co_start
        ]
        for other in others:
            waits = other is not job and not other.running
            if waits and other.promise and (cause := self._cause(other, other.promise)):
                return f"it starts together with {other.name}: {cause}"
        return ""

    def _cause(self, job: Job, promise: Promise) -> str:
        """What keeps a job from its promise by itself; empty if nothing is found."""
        planned = self._future.planned.get(job.name)
        start = None if planned is None else self._future.slots.edges[planned.slot]
        promised = self._future.second(promise.start)
        return (
            self._policy(start, promised)
            or self._of_the_job(job, promised)
            or self._of_its_nodes(job, promise)
            or self._of_its_places(job, promise)
            or self._of_quota(job)
            or self._of_others(job, promise)
            or self._of_stopped_jobs(job, promise)
        )

    def _policy(self, start: int | None, promised: int) -> str:
        """A setting of the policy that causes the delay; empty if there is none."""
        horizon = self._future.policy.horizon
        if self._future.slots.count == 1:
            return "the policy plans no later starts"
        rules = horizon.backfill
        if start is not None and promised < start <= promised + rules.max_delay:
            return f"by at most the policy's max_delay of {format_duration(rules.max_delay)}"
        held = sum(each.promised for each in self._future.planned.values())
        if start is not None and start <= promised and rules.depth is not None and held >= rules.depth:
            return f"the policy promises a start to {format_count(rules.depth, 'job')} at a time"
        if promised >= self._future.slots.end:
            return "it is beyond the policy's horizon"
        return ""

    def _of_the_job(self, job: Job, promised: int) -> str:
        """Conditions of the job itself that are met only after the promised start, or never."""
        if job.held:
            return "it is held by its user or an operator"
        if job.withheld:
            return f"it failed {format_count(job.failures, 'time')} and is not tried again"
        now = self._future.snapshot.taken_at
        if job.depends_on:
            state = self._prerequisites.dependencies(job)
            if state.is_unsatisfiable:
                return "its dependencies can no longer be met"
            late = [
                each
                for each in state.decisive
                if each.slot is None or self._future.slots.edges[each.slot] > promised
            ]
            if late:
                return f"waits until {until_done(late)}"
        begins = self._prerequisites.begins(job)
        if job.hard_deadline and job.deadline is not None:
            left = self._future.second(job.deadline) - begins
            if self._future.shortest_run_seconds(job) > left:
                return "it cannot meet its hard deadline any more"
        if begins > max(0, promised):
            return f"may not start before {format_time(self._future.instant_at(begins), now)}"
        return ""

    def _of_its_nodes(self, job: Job, promise: Promise) -> str:
        """Nodes and GPUs of the promise on which no job may start."""
        for replica in promise.replicas:
            node = self._future.nodes.get(replica.node)
            if node is None or replica.node in self._future.target.removed:
                return f"node {replica.node} is gone"
            for closed, text in (
                (not node.ready, "is not ready"),
                (node.cordoned, "is cordoned"),
                (node.drain, "is to be drained"),
            ):
                if closed:
                    return f"node {node.name} {text}"
            gpus = node.gpus.by_index if node.gpus else {}
            healthy = {index for index, gpu in gpus.items() if gpu.healthy}
            # A promise fixes only the number of a node's whole GPUs; their indices are chosen at the start.
            if job.request.gpus and len(healthy) >= len(replica.gpus):
                continue
            if lost := sorted({held.index for held in replica.gpus} - healthy):
                return f"GPU {lost[0]} of node {node.name} is {'unhealthy' if lost[0] in gpus else 'gone'}"
        return ""

    def _of_its_places(self, job: Job, promise: Promise) -> str:
        """Jobs expected to run longer on the promised resources, and windows that close its nodes."""
        future, now = self._future, self._future.snapshot.taken_at
        promised = max(0, future.second(promise.start))
        staying = [
            stay
            for _, stay in sorted(future.stays.items())
            if stay.job.running and not stay.slot and stay.end > promised
        ]
        if colliding := self._colliding(job, promise, staying):
            last, where = min(colliding, key=lambda each: (-each[0].end, each[0].job.name))
            ends = format_time(future.instant_at(last.end), now)
            return f"{join_jobs([last.job.name])} on {where} is expected to run until {ends}"
        seconds = future.durations.seconds(job, future.gpu_model(job, promise.replicas))
        for name in sorted({replica.node for replica in promise.replicas}):
            if (window := future.windows.blocking_window(job, name, promised, seconds)) is not None:
                begins, ends = (
                    format_time(future.instant_at(each), now) for each in (window.begins, window.ends)
                )
                return f"{window_text(window, future)} from {begins} to {ends}"
        return ""

    def _of_stopped_jobs(self, job: Job, promise: Promise) -> str:
        """A running job that the plan stops or moves, and that would have kept the promised resources."""
        # Promised starts are reserved beside running jobs as they run now, before the plan stops any of them.
        future, now = self._future, self._future.snapshot.taken_at
        promised = max(0, future.second(promise.start))
        as_they_run = {
            each.name: JobInterval(each, each.running.replicas, 0, future.durations.remaining(each), 0, 0)
            for each in future.snapshot.jobs
            if each.running is not None
        }
        there = [
            stay
            for _, stay in sorted((future.stays | as_they_run).items())
            if stay.job is not job and stay.start <= promised < stay.end
        ]
        found = [each for each in self._colliding(job, promise, there) if each[0].job.name in as_they_run]
        if not found:
            return ""
        last, where = min(found, key=lambda each: (-each[0].end, each[0].job.name))
        ends = format_time(future.instant_at(last.end), now)
        return f"{join_jobs([last.job.name])} on {where} was expected to run until {ends}"

    def _colliding(
        self, job: Job, promise: Promise, stays: list[JobInterval]
    ) -> list[tuple[JobInterval, str]]:
        """The jobs that hold the resources that a promise lacks, each with the node where it does."""
        short = self._room.short_of_room(job, promise.replicas, stays)
        if found := _on(stays, short):
            # Prefer the jobs without which the promise would fit; if there is none, name all of them.
            alone = [
                each
                for each in found
                if not self._room.short_of_room(
                    job, promise.replicas, [stay for stay in stays if stay is not each[0]]
                )
            ]
            return alone or found
        if short := self._room.short_of_power(job, promise.replicas, stays):
            racks = {rack_of(self._future.nodes[name]) for name in short}
            near = [name for name, node in sorted(self._future.nodes.items()) if rack_of(node) in racks]
            return _on(stays, short) or _on(stays, near)
        queue = self._room.short_of_quota(job, promise.replicas, stays)
        if queue is None:
            return []
        below = queue_and_below(queue, self._future.snapshot.child_queues)
        return [
            (stay, stay.nodes[0])
            for stay in stays
            if any(replica.gpus for replica in stay.replicas) and stay.job.queue in below
        ]

    def _of_quota(self, job: Job) -> str:
        """A queue limit that the job alone would exceed."""
        if job.promise is None:
            return ""
        model = self._future.gpu_model(job, job.promise.replicas)
        needed = quota_of_all(job.promise.replicas)
        room = QuotaHeadroom(self._future.snapshot.queues, {})
        found = room.alone(job.queue, needed, (model,) if model else ()).shortage
        return f"queue {found.queue} may no longer hold that much" if found else ""

    def _of_others(self, job: Job, promise: Promise) -> str:
        """Another job's start that occupies the resources at that time, best one that was promised before."""
        future, now = self._future, self._future.snapshot.taken_at
        promised = max(0, future.second(promise.start))
        until = promised + future.durations.seconds(job, future.gpu_model(job, promise.replicas))
        there = [
            stay
            for name, stay in sorted(future.stays.items())
            if name != job.name and stay.start < until and promised < stay.end
        ]
        found = [
            (stay, where) for stay, where in self._colliding(job, promise, there) if stay.job.running is None
        ]
        if not found:
            return ""
        first, where = min(
            found, key=lambda each: (each[0].job.promise is None, each[0].start, each[0].job.name)
        )
        at = format_time(future.instant_at(first.start), now)
        return f"{join_jobs([first.job.name])} starts on {where} at {at}"


def _on(stays: Iterable[JobInterval], nodes: Collection[str]) -> list[tuple[JobInterval, str]]:
    """The jobs that are on one of the nodes, each with the first such node."""
    wanted = set(nodes)
    return [(stay, here[0]) for stay in stays if (here := [name for name in stay.nodes if name in wanted])]


# Capacity for a promised start next to given jobs: on its nodes, under power caps, in the quotas.


class PromiseDelayRoom:
    """Capacity checks for one plan; running jobs count with the places that they have after the plan."""

    def __init__(self, future: ProjectedSchedule) -> None:
        self._future = future
        self._cluster = future.snapshot.cluster.model_copy(
            update={"nodes": tuple(node for _, node in sorted(future.nodes.items()))}
        )

    def short_of_room(self, job: Job, replicas: Sequence[Replica], stays: Iterable[JobInterval]) -> list[str]:
        """Nodes with too few free resources for a job's replicas next to the other jobs, sorted."""
        wanted = sorted({replica.node for replica in replicas} & self._future.nodes.keys())
        nodes = [self._future.nodes[name] for name in wanted]
        free = free_resources_by_node(
            nodes, [stay.placement for stay in stays], snapshot=self._future.snapshot
        )
        return [name for name in wanted if not self._fits(job, replicas, name, free[name])]

    def short_of_power(
        self, job: Job, replicas: Sequence[Replica], stays: Iterable[JobInterval]
    ) -> list[str]:
        """Nodes where the job would exceed the power cap of the node or rack next to the others, sorted."""
        around, found = [stay.placement for stay in stays], []
        for name in sorted({replica.node for replica in replicas}):
            # The job's other replicas may draw from the same rack.
            others = tuple(replica for replica in replicas if replica.node != name)
            mine = [Placement(job=job.name, replicas=others)] if others else []
            needed = sum(replica.quota_milli for replica in replicas if replica.node == name)
            if PowerUse(self._cluster, [*around, *mine]).left_by_node.get(name, needed) < needed:
                found.append(name)
        return found

    def short_of_quota(
        self, job: Job, replicas: Sequence[Replica], stays: Iterable[JobInterval]
    ) -> str | None:
        """The queue in which a job would exceed a limit next to the other jobs; None if there is none."""
        model = self._future.gpu_model(job, replicas)
        needed = quota_of_all(replicas)
        around = (stay.placement for stay in stays)
        usage = usage_by_queue(self._future.snapshot, around, added=self._future.target.added)
        room = QuotaHeadroom(self._future.snapshot.queues, usage)
        found = room.now(job.queue, needed, (model,) if model else ()).shortage
        return found.queue if found else None

    def _fits(self, job: Job, replicas: Sequence[Replica], name: str, free: FreeResources) -> bool:
        here = [replica for replica in replicas if replica.node == name]
        node = self._future.nodes[name]
        # A promise fixes only the number of a node's whole GPUs; their indices are chosen at the start.
        whole = sum(
            isinstance(held, GpuShare) and held.milli == MILLI for replica in here for held in replica.gpus
        )
        shares = {
            index: sum(
                held.milli
                for replica in here
                for held in replica.gpus
                if isinstance(held, GpuShare) and held.milli < MILLI and held.index == index
            )
            for index in range(len(free.gpu_milli))
        }
        untouched = sum(milli == MILLI and not shares[index] for index, milli in enumerate(free.gpu_milli))
        slices = [held for replica in here for held in replica.gpus if isinstance(held, MigSlice)]
        geometry = mig_geometry(node.gpus.model) if node.gpus else None
        pieces = [(held.index, piece) for held in slices for piece in memory_slices(held, geometry)]
        if (
            untouched < whole
            or any(milli > free.gpu_milli[index] for index, milli in shares.items() if milli)
            or not free.mig_used.isdisjoint(pieces)
        ):
            return False
        request, count = job.request, len(here)
        cpu_milli, memory_mib = charged_cpu_memory(request, job.qos, self._cluster)
        return (
            count * cpu_milli <= free.cpu_milli
            and count * memory_mib <= free.memory_mib
            and count * request.disk_mib <= free.disk_mib
            and all(
                count * amount <= free.resources.get(resource, 0)
                for resource, amount in request.resources.items()
            )
        )
