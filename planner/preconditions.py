"""What the actions of a plan count on, looked up in the cluster as it is and as done actions leave it."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, assert_never

from planner.models.occupancy import NodeFree, free_capacity
from planner.models.placement import GpuShare, Replica
from planner.models.plan import Free, JobWaits, Keep, Start, Wait
from planner.models.units import print_milli, print_timestamp

if TYPE_CHECKING:
    from collections.abc import Iterator

    from planner.models.cluster import Node
    from planner.models.job import Job
    from planner.models.plan import Action, Precondition
    from planner.models.snapshot import Snapshot


@dataclass(frozen=True, slots=True, order=True)
class DriftItem:
    """One thing that is not as the plan expects it."""

    subject: str
    """Such as `node h100-03` or `job train-a`."""
    change: str
    """What happened to it, such as `lost 8 GPUs`."""
    expected: str
    found: str

    def __str__(self) -> str:
        return f"{self.subject} {self.change}: expected {self.expected}, found {self.found}"


@dataclass(frozen=True, slots=True)
class Sight:
    """One precondition, looked at."""

    text: str
    """What it found."""
    drift: DriftItem | None = None
    """Why it does not hold; None if it does."""


@dataclass(frozen=True, slots=True)
class LiveView:
    """The cluster at one moment, kept up to date with the actions done since."""

    nodes: dict[str, Node]
    free: dict[str, NodeFree]
    jobs: dict[str, Job]
    started: set[str] = field(default_factory=set)

    @classmethod
    def of(cls, snapshot: Snapshot) -> LiveView:
        """The cluster as a snapshot shows it."""
        free = free_capacity(snapshot.cluster.nodes, snapshot.running_placements)
        return cls(snapshot.cluster.node_by_name, free, snapshot.job_by_name)

    def sights(self, action: Action) -> tuple[Sight, ...]:
        """All preconditions of an action, in its order."""
        return tuple(self._sight(precondition) for precondition in action.preconditions)

    def done(self, action: Action) -> None:
        """Take the action's effect into account."""
        match action:
            case Start():
                self.started.add(action.job)
                for replica in action.after.replicas:
                    if replica.node in self.free:
                        self.free[replica.node].take(replica)
            case Keep() | Wait():
                pass
            case _:
                assert_never(action)

    def _sight(self, precondition: Precondition) -> Sight:
        match precondition:
            case JobWaits():
                return self._waits(precondition)
            case Free():
                return self._is_free(precondition)
            case _:
                assert_never(precondition)

    def _waits(self, precondition: JobWaits) -> Sight:
        job = self.jobs.get(precondition.job)
        drift = waiting_drift(precondition.job, job, started=precondition.job in self.started)
        if drift is None and job is not None and (found := job.fingerprint()) != precondition.job_fingerprint:
            drift = DriftItem(
                f"job {job.name}",
                "was changed",
                f"description {precondition.job_fingerprint[:8]}",
                f"description {found[:8]}",
            )
        return Sight(drift.found if drift else f"job {precondition.job} waits, unchanged", drift)

    def _is_free(self, wanted: Free) -> Sight:
        subject = f"node {wanted.node}"
        node = self.nodes.get(wanted.node)
        if node is None or not node.schedulable:
            drift = unschedulable_drift(wanted.node, node)
            return Sight(drift.found, drift)
        free = self.free[wanted.node]
        needs = [(name, amount, found) for name, amount, found in _amounts(wanted, free) if amount]
        text = f"{subject} has free {_listed((name, found) for name, _, found in needs)}"
        if free.holds(_as_replica(wanted)):
            return Sight(text)
        short = [need for need in needs if need[1] > need[2]] or needs
        drift = DriftItem(
            subject,
            "has too little free",
            _listed((name, amount) for name, amount, _ in short),
            _listed((name, found) for name, _, found in short),
        )
        return Sight(text, drift)


def waiting_drift(name: str, job: Job | None, *, started: bool = False) -> DriftItem | None:
    """Why a job that ought to wait does not; None if it does."""
    if job is None:
        return DriftItem(f"job {name}", "is gone", "a waiting job", "no such job")
    if job.running is not None:
        nodes = ", ".join(sorted({replica.node for replica in job.running.replicas}))
        since = print_timestamp(job.running.started_at)
        return DriftItem(f"job {name}", "is already running", "waiting", f"running on {nodes} since {since}")
    if started:
        return DriftItem(f"job {name}", "is already running", "waiting", "started by this plan")
    return None


def unschedulable_drift(name: str, node: Node | None) -> DriftItem:
    """Why nothing may start on a node that is gone, down or cordoned."""
    if node is None:
        return DriftItem(f"node {name}", "is gone", "a node that is ready", "no such node")
    if not node.ready:
        return DriftItem(f"node {name}", "is down", "ready", "not ready")
    return DriftItem(f"node {name}", "was cordoned", "not cordoned", "cordoned")


def _as_replica(wanted: Free) -> Replica:
    return Replica.model_construct(
        node=wanted.node,
        gpus=wanted.gpus,
        cpu_milli=wanted.cpu_milli,
        memory_mib=wanted.memory_mib,
        disk_mib=wanted.disk_mib,
        resources=wanted.resources,
    )


def _amounts(wanted: Free, free: NodeFree) -> Iterator[tuple[str, int | float, int | float]]:
    """Name, amount wanted and amount free of everything a precondition may name."""
    shares: dict[int, int] = {}
    for held in wanted.gpus:
        if isinstance(held, GpuShare):
            shares[held.index] = shares.get(held.index, 0) + held.milli
        else:
            taken = (held.index, held.start) in free.mig_used
            yield f"MIG {held.profile} of GPU {held.index} at {held.start}", 1, 0 if taken else 1
    for index, milli in sorted(shares.items()):
        there = free.gpu_milli[index] if index < len(free.gpu_milli) else 0
        yield f"GPU {index}", print_milli(milli), print_milli(there)
    yield "CPUs", print_milli(wanted.cpu_milli), print_milli(free.cpu_milli)
    yield "MiB memory", wanted.memory_mib, free.memory_mib
    yield "MiB disk", wanted.disk_mib, free.disk_mib
    for name, amount in sorted(wanted.resources.items()):
        yield name, amount, free.resources.get(name, 0)


def _listed(amounts: Iterator[tuple[str, int | float]]) -> str:
    return ", ".join(
        f"{amount} of {name}" if name.startswith(("GPU", "MIG")) else f"{amount} {name}"
        for name, amount in amounts
    )
