"""
Facts about a snapshot that the rules share: usage of queues, and lost places of running jobs.

They are implemented independently. A place is sound if the node exists and is ready, the GPU exists, is
healthy and has the layout in use, the gang has enough replicas, and the other jobs of its group have started.
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

from gpuplan.models.placement import GpuShare, Holding, MigSlice, Replica, holding
from gpuplan.models.queue import ALL_MODELS
from gpuplan.models.timing.reservation_windows import ReservationWindows
from gpuplan.models.value.start_value import StartValue
from gpuplan.models.verifier.entitlements import Entitlements
from gpuplan.models.verifier.job_changes import Change, JudgedPlacement
from gpuplan.models.verifier.quota_usage import (
    usage_by_queue_and_resource,
)

if TYPE_CHECKING:
    from gpuplan.models.cluster import Gpu, Node
    from gpuplan.models.job import Job
    from gpuplan.models.policy.policy import Disruption, Policy
    from gpuplan.models.snapshot import Snapshot


@dataclass(frozen=True)
class SnapshotFacts:
    """Facts about a snapshot that do not depend on the plan: computed once for all plans checked."""

    snapshot: Snapshot

    @cached_property
    def running(self) -> tuple[Job, ...]:
        """Running jobs."""
        return tuple([job for job in self.snapshot.jobs if job.running])

    @cached_property
    def usage(self) -> dict[tuple[str, str], int]:
        """What running jobs hold, by queue and resource (`quota_usage`)."""
        placements, jobs = self.snapshot.running_placements, self.snapshot.job_by_name
        return usage_by_queue_and_resource(placements, jobs, self.snapshot.cluster.gpu_model_by_node)

    @cached_property
    def damaged(self) -> dict[str, dict[Holding, str]]:
        """Reasons why places of running jobs are lost, by job and by holding of a replica."""
        return lost_places(self.snapshot)

    @cached_property
    def kept(self) -> dict[str, JudgedPlacement]:
        """The running jobs as unchanged occupants, by name."""
        return {
            job.name: JudgedPlacement(job.placement, job, Change.KEPT, ())
            for job in self.running
            if job.placement
        }

    def asked(self, resource: str, amount: int) -> dict[str, int]:
        """
        Most thousandths of GPUs of a resource that pending jobs in each queue itself could use.

        Only jobs count that fit within an amount at their minimum size.
        """
        if resource not in self._asked:
            self._asked[resource] = self._asked_by_size(resource)
        asked: dict[str, int] = defaultdict(int)
        for (queue, least), most in self._asked[resource].items():
            if least <= amount:
                asked[queue] += most
        return asked

    @cached_property
    def _asked(self) -> dict[str, dict[tuple[str, int], int]]:
        return {}

    def _asked_by_size(self, resource: str) -> dict[tuple[str, int], int]:
        """The same of all jobs, by queue and what a job needs at its minimum size."""
        asked: dict[tuple[str, int], int] = defaultdict(int)
        for job in self.snapshot.waiting:
            usable = resource == ALL_MODELS or not job.gpu_models or resource in job.gpu_models
            if usable and not job.withheld:
                milli = job.request.total_gpu_milli
                asked[job.queue, milli * job.gang.minimum] += milli * job.gang.maximum
        return asked

    @cached_property
    def _entitlements(self) -> dict[Disruption, Entitlements]:
        return {}

    def entitlements(self, rules: Disruption) -> Entitlements:
        """Entitlements of queues under the rules of a policy."""
        if rules not in self._entitlements:
            self._entitlements[rules] = Entitlements(self.snapshot, rules, self.usage)
        return self._entitlements[rules]

    @cached_property
    def _earnings(self) -> dict[int, StartValue]:
        return {}

    def start_value(self, policy: Policy) -> StartValue:
        """Points of starts under a policy."""
        # A policy has no hash. Its cached earnings keep it alive, so that no other policy can get its id.
        if id(policy) not in self._earnings:
            self._earnings[id(policy)] = StartValue(self.snapshot, policy)
        return self._earnings[id(policy)]

    @cached_property
    def _windows(self) -> dict[int, ReservationWindows]:
        return {}

    def windows(self, policy: Policy) -> ReservationWindows:
        """Spans in which nodes are closed under a policy."""
        # The points of starts keep the policy alive.
        durations = self.start_value(policy).durations
        if id(policy) not in self._windows:
            self._windows[id(policy)] = ReservationWindows(self.snapshot, policy, durations)
        return self._windows[id(policy)]

    @cached_property
    def some_avoid_others(self) -> bool:
        """True if any job has anti-affinity."""
        return any(job.anti_affinity for job in self.snapshot.jobs)


class LostPlaces(dict[str, dict[Holding, str]]):
    """Reasons why places of running jobs are lost, by job and by holding of a replica."""


def lost_places(snapshot: Snapshot) -> LostPlaces:
    """
    The lost places of a snapshot, computed once.

    A job with fewer replicas than its gang's minimum is included, even without a lost place.
    """
    found = snapshot.derived.get(LostPlaces)
    if not isinstance(found, LostPlaces):
        found = snapshot.derived[LostPlaces] = LostPlaces(_lost_places(snapshot))
    return found


def _lost_places(snapshot: Snapshot) -> dict[str, dict[Holding, str]]:
    nodes = snapshot.cluster.node_by_name
    incomplete = _jobs_of_incomplete_groups(snapshot)
    found: dict[str, dict[Holding, str]] = {}
    for job in snapshot.jobs:
        if job.running is None:
            continue
        lost: dict[Holding, str] = {}
        for replica in job.running.replicas:
            why = _why_lost(job, replica, nodes.get(replica.node))
            if not why and job.name in incomplete:
                why = f"other jobs of group {job.co_start} never started"
            if why:
                lost[holding(replica)] = why
        if lost or len(job.running.replicas) < job.gang.minimum:
            found[job.name] = lost
    return found


def _jobs_of_incomplete_groups(snapshot: Snapshot) -> set[str]:
    """
    Running jobs of groups of which a job that was there when the first one started never started itself.

    None of a group with a running job that is not preemptible, as that one cannot be stopped.
    """
    groups: dict[str, list[Job]] = {}
    for job in snapshot.jobs:
        if job.co_start is not None:
            groups.setdefault(job.co_start, []).append(job)
    found: set[str] = set()
    for jobs in groups.values():
        began = sorted(job.running.started_at for job in jobs if job.running)
        firm = any(job.running and not job.preemptible for job in jobs)
        if began and not firm and any(_never_ran(job) and job.submitted_at <= began[0] for job in jobs):
            found |= {job.name for job in jobs if job.running}
    return found


def _never_ran(job: Job) -> bool:
    interrupted = job.progress is not None or job.preemptions > 0 or job.failures > 0
    return job.running is None and not job.withheld and not interrupted


def keeps_unhealthy(job: Job, snapshot: Snapshot) -> bool:
    """True if a job that may not be interrupted holds an unhealthy GPU."""
    nodes = snapshot.cluster.node_by_name
    return not job.preemptible and any(
        (gpu := _gpu(nodes.get(replica.node), held)) is not None and not gpu.healthy
        for replica in (job.running.replicas if job.running else ())
        for held in replica.gpus
    )


def _why_lost(job: Job, replica: Replica, node: Node | None) -> str:
    """Reason why a replica's place is lost; empty if it is sound."""
    if node is None:
        return f"node {replica.node} is gone"
    if not node.ready:
        return f"node {node.name} is not ready"
    if node.gpus is not None and not node.gpus.details and _are_plain(replica, node.gpus.count):
        return ""
    for held in replica.gpus:
        gpu = _gpu(node, held)
        if gpu is None:
            return f"gpu {held.index} of node {node.name} is gone"
        if not gpu.healthy and job.preemptible:
            return f"gpu {held.index} of node {node.name} is unhealthy"
        if not _is_laid_out(gpu, held):
            return f"gpu {held.index} of node {node.name} has another MIG layout"
    return ""


def _are_plain(replica: Replica, count: int) -> bool:
    return all(isinstance(held, GpuShare) and held.index < count for held in replica.gpus)


def _gpu(node: Node | None, held: GpuShare | MigSlice) -> Gpu | None:
    return node.gpus.by_index.get(held.index) if node and node.gpus else None


def _is_laid_out(gpu: Gpu, held: GpuShare | MigSlice) -> bool:
    if isinstance(held, GpuShare):
        return gpu.mig is None
    return gpu.mig is not None and held.instance in gpu.mig
