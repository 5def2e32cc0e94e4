"""
What a target changes by job, GPU and node, the capacity that each change requires, and the work that it
loses; without the order of actions and without texts.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from dataclasses import dataclass
from functools import cached_property
from operator import attrgetter
from typing import TYPE_CHECKING, Final

from gpuplan.models.eligibility.free_resources import FreeResources, charged_cpu_memory
from gpuplan.models.placement import GpuShare, MigSlice, Placement, Replica, node_names, unmatched
from gpuplan.models.plan.actions import Action, ActionKind
from gpuplan.models.plan.precondition import Free
from gpuplan.models.plan.solution import DesiredState
from gpuplan.models.timing.progress import unsaved_seconds
from gpuplan.planner.analysis.allocations import Allocations, HeldReplica, allocations_of
from gpuplan.planner.analysis.target_cluster import LayoutChange, cluster_after, target_layouts

if TYPE_CHECKING:
    from collections.abc import Iterable
    from datetime import datetime

    from gpuplan.models.cluster import Cluster, Node
    from gpuplan.models.job import Job
    from gpuplan.models.snapshot import Snapshot


@dataclass(frozen=True, slots=True)
class JobChange:
    """The change of one job."""

    job: Job
    kind: ActionKind
    before: Placement | None
    after: Placement | None
    leaving: tuple[Replica, ...]
    """Replicas given up; all replicas of a job that migrates."""
    arriving: tuple[Replica, ...]
    """New replicas; all replicas of a job that migrates."""

    @property
    def nodes_left(self) -> tuple[str, ...]:
        """Nodes on which it gives up replicas, sorted."""
        return tuple(sorted(node_names(self.leaving)))

    @property
    def nodes_taken(self) -> tuple[str, ...]:
        """Nodes with new replicas, sorted."""
        return tuple(sorted(node_names(self.arriving)))


@dataclass(frozen=True)
class PlanChanges:
    """Everything a target changes in a snapshot."""

    snapshot: Snapshot
    target: DesiredState

    @cached_property
    def jobs(self) -> tuple[JobChange, ...]:
        """Jobs that start, stop, migrate or change in size, by name."""
        return tuple(sorted(self._sifted[0], key=lambda change: change.job.name))

    @cached_property
    def settled(self) -> DesiredState:
        """The target sorted by name; unchanged jobs have the same placement object as in the snapshot."""
        return DesiredState(
            placements=tuple(sorted(self._sifted[1], key=attrgetter("job"))),
            added=tuple(self.added.values()),
            removed=self.removed,
            planned=tuple(sorted(self.target.planned, key=lambda each: each.job)),
            undo=self.target.undo,
        )

    @cached_property
    def _sifted(self) -> tuple[list[JobChange], list[Placement]]:
        """Changes of jobs, and the placements of all jobs after them, in the snapshot's order."""
        placed = {placement.job: placement for placement in self.target.placements}
        changes, placements = [], []
        for job in self.snapshot.jobs:
            before, after = job.placement, placed.get(job.name)
            # Most jobs do not change and keep the same placement object.
            if before is not after:
                change = job_change(job, after)
                if change.kind in _AT_REST:
                    after = before
                else:
                    changes.append(change)
            if after is not None:
                placements.append(after)
        return changes, placements

    @cached_property
    def cluster(self) -> Cluster:
        """The cluster once the target is applied."""
        return cluster_after(self.snapshot, self.target, self.layouts)

    @cached_property
    def allocations_after(self) -> Allocations:
        """Holdings once the target is applied."""
        gone = (HeldReplica(change.job, replica) for change in self.jobs for replica in change.leaving)
        come = (HeldReplica(change.job, replica) for change in self.jobs for replica in change.arriving)
        return allocations_of(self.snapshot).with_changes(self.cluster, gone, come)

    @property
    def free(self) -> dict[str, FreeResources]:
        """Free capacity by node name once the target is applied."""
        return self.allocations_after.free

    @cached_property
    def nodes(self) -> dict[str, Node]:
        """Nodes by name, including nodes to be added and to be removed."""
        return self.snapshot.cluster.node_by_name | self.added

    @cached_property
    def added(self) -> dict[str, Node]:
        """New nodes by name."""
        return {node.name: node for node in sorted(self.target.added, key=lambda node: node.name)}

    def provisioning(self, pool: str | None) -> int:
        """Return the seconds until a new node of a pool is ready for jobs; 0 without such a pool."""
        return next((one.provisioning for one in self.snapshot.cluster.pools if one.name == pool), 0)

    @cached_property
    def removed(self) -> tuple[str, ...]:
        """Names of nodes to be removed, sorted."""
        return tuple(sorted(self.target.removed))

    @cached_property
    def layouts(self) -> tuple[LayoutChange, ...]:
        """Changes of MIG layouts by node and index: for arriving replicas, and what a rollback puts back."""
        comes = any(replica.mig_slices for change in self.jobs for replica in change.arriving)
        return target_layouts(self.snapshot, self.target) if comes or self.target.undo.layouts else ()

    @cached_property
    def switched(self) -> frozenset[tuple[str, int]]:
        """(node, GPU index) of GPUs that the target switches to MIG mode."""
        return frozenset((change.node, change.gpu) for change in self.layouts if change.before is None)

    @cached_property
    def emptied(self) -> tuple[str, ...]:
        """Nodes to be removed or drained that their last job leaves, sorted."""
        left = {name for change in self.jobs for name in change.nodes_left}
        going = {name for name in left if name in self.target.removed or self.nodes[name].drain}
        if not going:
            return ()
        used = {replica.node for placement in self.target.placements for replica in placement.replicas}
        return tuple(sorted(going - used))


_AT_REST: Final = (ActionKind.KEEP, ActionKind.WAIT)


def job_change(job: Job, after: Placement | None) -> JobChange:
    """
    Return the change of one job from its present placement to `after`.

    Raises
    ------
    ValueError
        The running job would change its number of replicas and also its places; no action does both.
    """
    before = job.placement
    if before is None or after is None:
        kind = {
            (False, False): ActionKind.WAIT,
            (False, True): ActionKind.START,
            (True, False): ActionKind.PREEMPT,
        }[before is not None, after is not None]
        return JobChange(
            job, kind, before, after, before.replicas if before else (), after.replicas if after else ()
        )
    if before == after:
        return JobChange(job, ActionKind.KEEP, before, before, (), ())
    leaving = tuple(before.replicas[number] for number in unmatched(before.replicas, after.replicas))
    arriving = tuple(after.replicas[number] for number in unmatched(after.replicas, before.replicas))
    match bool(leaving), bool(arriving):
        case False, False:
            # The order of replicas and of their GPUs has no meaning.
            return JobChange(job, ActionKind.KEEP, before, before, (), ())
        case True, False:
            return JobChange(job, ActionKind.SHRINK, before, after, leaving, ())
        case False, True:
            return JobChange(job, ActionKind.GROW, before, after, (), arriving)
    if len(before.replicas) != len(after.replicas):
        raise ValueError(
            f"expected running job {job.name!r} kept, moved, shrunk or grown, found "
            f"{len(before.replicas)} replicas and {len(after.replicas)} elsewhere"
        )
    return JobChange(job, ActionKind.MIGRATE, before, after, before.replicas, after.replicas)


# Capacity that a change of a job requires to be free, by node.


# Each name contains a space, so that it differs from all names of countable resources.
_OWN_FIELDS: Final = ("cpu milli", "memory mib", "disk mib")


def free_preconditions(change: JobChange, cluster: Cluster) -> tuple[Free, ...]:
    """Return what a job takes on each node beyond what it gives up there itself, sorted by node."""
    taken: dict[str, list[Replica]] = defaultdict(list)
    left: dict[str, list[Replica]] = defaultdict(list)
    for replica in change.arriving:
        taken[replica.node].append(replica)
    for replica in change.leaving:
        left[replica.node].append(replica)
    return tuple(
        _free(node, change, taken=taken[node], left=left.get(node, []), cluster=cluster)
        for node in sorted(taken)
    )


def _free(
    node: str, change: JobChange, *, taken: list[Replica], left: list[Replica], cluster: Cluster
) -> Free:
    needs = _amounts(change, taken, cluster)
    if left:
        needs.subtract(_amounts(change, left, cluster))
    cpu_milli, memory_mib, disk_mib = (max(0, needs.pop(name, 0)) for name in _OWN_FIELDS)
    return Free.of_valid(
        node=node,
        gpus=_new_gpus(taken, left) if left else tuple([held for replica in taken for held in replica.gpus]),
        cpu_milli=cpu_milli,
        memory_mib=memory_mib,
        disk_mib=disk_mib,
        resources={name: amount for name, amount in sorted(needs.items()) if amount > 0},
    )


def _amounts(change: JobChange, replicas: Iterable[Replica], cluster: Cluster) -> Counter[str]:
    """Demand of replicas except for their GPUs."""
    amounts: Counter[str] = Counter()
    for replica in replicas:
        own = (*charged_cpu_memory(replica, change.job.qos, cluster), replica.disk_mib)
        for name, amount in (*zip(_OWN_FIELDS, own, strict=True), *replica.resources.items()):
            amounts[name] += amount
    return amounts


def _new_gpus(taken: Iterable[Replica], left: Iterable[Replica]) -> tuple[GpuShare | MigSlice, ...]:
    """The GPUs, shares and MIG instances taken that the job does not give up at the same time."""
    own = Counter(held for replica in left for held in replica.gpus)
    found = []
    for replica in taken:
        for held in replica.gpus:
            if own[held]:
                own[held] -= 1
            else:
                found.append(held)
    return tuple(found)


# Work that a plan loses: the unsaved work of the jobs that it stops, shrinks or migrates.


def lost_gpu_hours(actions: Iterable[Action]) -> float:
    """Sum the GPU-hours that actions lose, as stated in their reasons; rounded to a thousandth."""
    return round(sum(float(action.reason.numbers.get("lost_gpu_hours", 0)) for action in actions), 3)


def unsaved_gpu_milli_seconds(job: Job, now: datetime) -> int:
    """Return a job's unsaved work, in thousandths of GPUs times seconds; 0 for a waiting job."""
    if job.running is None:
        return 0
    return unsaved_seconds(job, now) * sum(replica.quota_milli for replica in job.running.replicas)
