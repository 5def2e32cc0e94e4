"""Promised starts of pending jobs as slots and places, and jobs that have waited too long (starving)."""

from __future__ import annotations

from bisect import bisect_right
from collections import Counter
from typing import TYPE_CHECKING

from gpuplan.models.placement import GpuShare, MigSlice
from gpuplan.models.problem.jobs import HeldResources, PromisedStart
from gpuplan.models.units import MILLI

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable

    from gpuplan.models.cluster import NodeGpus
    from gpuplan.models.job import Job
    from gpuplan.models.placement import Replica
    from gpuplan.models.policy.policy import Policy
    from gpuplan.models.problem.jobs import Option
    from gpuplan.models.snapshot import Snapshot
    from gpuplan.planner.problem_builder.node_groups import NodeGroups
    from gpuplan.planner.problem_builder.start_values import StartValues


class PromiseConstraints:
    """The promises of one problem; there are none with a single slot."""

    def __init__(self, snapshot: Snapshot, policy: Policy, timing: StartValues, sites: NodeGroups) -> None:
        self._now = snapshot.taken_at
        self._backfill = policy.horizon.backfill
        self._timing = timing
        self._sites = sites

    def is_promised(self, job: Job) -> bool:
        """True if a job has a promised start within the horizon."""
        return (
            self._timing.ahead
            and job.promise is not None
            and self._slot(self._timing.second(job.promise.start)) < self._timing.slots.count
        )

    def is_starving(self, job: Job) -> bool:
        """True if a job has waited for at least the policy's `starving` seconds and has no promise."""
        least = self._backfill.starving
        if not self._timing.ahead or least is None or self.is_promised(job):
            return False
        return (self._now - job.submitted_at).total_seconds() >= least

    def of(self, job: Job, options: tuple[Option, ...]) -> PromisedStart | None:
        """Promise of a job; without places if they are gone or no longer suit the job."""
        if job.promise is None or not self.is_promised(job):
            return None
        second = self._timing.second(job.promise.start)
        start = self._slot(second)
        latest = min(self._slot(second + self._backfill.max_delay), self._timing.slots.count - 1)
        if len(job.promise.replicas) == job.gang.minimum:
            holds = self._holds(job, job.promise.replicas)
            groups = {self._sites.group_of[hold.node] for hold in holds or () if hold.node is not None}
            for number, option in enumerate(options):
                if holds and groups <= set(_groups(option, start)):
                    return PromisedStart(start, latest, holds, number)
        return PromisedStart(start, latest, ())

    def _slot(self, second: int) -> int:
        """The last slot that begins no later than a second; 0 if it is past, H if it is after the horizon."""
        return max(0, bisect_right(self._timing.slots.edges, second) - 1)

    def _holds(self, job: Job, replicas: Iterable[Replica]) -> tuple[HeldResources, ...] | None:
        """The promised places, by node and GPUs; None if one is gone or does not match the job's request."""
        holds: list[HeldResources] = []
        for replica in replicas:
            index = self._sites.index.get(replica.node)
            if index is None or not _is_asked(job, replica):
                return None
            gpus = self._sites.nodes[index].gpus
            taken = {gpu for hold in holds if hold.node == index for gpu in hold.gpus}
            hold = _hold(job, replica, index, gpus, taken)
            if hold is None:
                return None
            holds.append(hold)
        return tuple(sorted(holds, key=lambda hold: (hold.node, hold.gpus, repr(hold.slices))))


def _groups(option: Option, slot: int) -> tuple[int, ...]:
    return option.later_groups[slot] if slot else option.groups


def _is_asked(job: Job, replica: Replica) -> bool:
    """True if a replica holds the GPUs that the job requests."""
    shares = [held.milli for held in replica.gpus if isinstance(held, GpuShare)]
    slices = Counter(held.profile for held in replica.gpus if isinstance(held, MigSlice))
    request = job.request
    asked = [MILLI] * request.gpus + [request.gpu_milli] * bool(request.gpu_milli)
    return shares == asked and slices == Counter(request.mig)


def _hold(
    job: Job, replica: Replica, node: int, gpus: NodeGpus | None, taken: Collection[int]
) -> HeldResources | None:
    """One promised place; None if its GPUs are gone, unhealthy, or in another MIG mode."""
    if not replica.gpus:
        return HeldResources(node)
    if gpus is None:
        return None
    slices = [held for held in replica.gpus if isinstance(held, MigSlice)]
    sound = {
        index for index, gpu in gpus.by_index.items() if gpu.healthy and (gpu.mig is not None) == bool(slices)
    }
    wanted = sorted({held.index for held in replica.gpus})
    if slices:
        instances = sorted(
            ((held.index, held.instance) for held in slices),
            key=lambda held: (held[0], held[1].start),
        )
        return HeldResources(node, slices=tuple(instances)) if sound.issuperset(wanted) else None
    if job.request.gpus:
        # Only the number of whole GPUs counts: another GPU replaces one that is gone.
        free = sorted(sound.difference(taken), key=lambda index: (index not in wanted, index))
        chosen = sorted(free[: len(replica.gpus)])
        return HeldResources(node, tuple(chosen)) if len(chosen) == len(replica.gpus) else None
    return HeldResources(node, tuple(wanted)) if sound.issuperset(wanted) else None
