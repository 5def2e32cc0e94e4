"""
Context: the input of the verifier, with look-ups for its rules, and the presence of jobs over the slots.

Rules about shared resources count all jobs, but report only conflicts with a new replica: a conflict between
running jobs is not caused by the plan.
"""

from __future__ import annotations

from bisect import bisect_right
from collections import Counter, defaultdict
from dataclasses import dataclass, field
from datetime import timedelta
from functools import cached_property
from typing import TYPE_CHECKING, NamedTuple

from gpuplan.models.placement import GpuShare, MigSlice, Placement, Replica
from gpuplan.models.plan.solution import NOTHING_UNDONE, LaterStart, Undo
from gpuplan.models.timing.time_slots import TimeSlots
from gpuplan.models.units import Timestamp, print_timestamp
from gpuplan.models.verifier.job_changes import (
    JUDGED,
    KEPT,
    Change,
    JudgedPlacement,
    judge_placement,
    placement_precedence,
)
from gpuplan.models.verifier.quota_usage import usage_by_queue_and_resource
from gpuplan.models.verifier.snapshot_facts import SnapshotFacts

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    from gpuplan.models.cluster import Level, Node, NodePool
    from gpuplan.models.dependency import JobOutcome
    from gpuplan.models.job import Job
    from gpuplan.models.policy.policy import Policy
    from gpuplan.models.snapshot import Snapshot
    from gpuplan.models.timing.durations import Durations
    from gpuplan.models.timing.reservation_windows import ReservationWindows
    from gpuplan.models.value.start_value import StartValue
    from gpuplan.models.verifier.entitlements import Entitlements


class GpuHolding(NamedTuple):
    """One part of a GPU held by one replica."""

    job: str
    held: GpuShare | MigSlice
    kept: bool


@dataclass(frozen=True)
class Context:
    """A snapshot, a policy, and the placements, nodes and later starts of a plan."""

    snapshot: Snapshot
    policy: Policy
    placements: tuple[Placement, ...]
    added: tuple[Node, ...] = ()
    removed: tuple[str, ...] = ()
    planned: tuple[LaterStart, ...] = ()
    known: SnapshotFacts | None = None
    """Facts of the snapshot, if already computed."""
    judged: Mapping[str, JudgedPlacement] = field(default_factory=dict)
    """Placements of another plan with their changes, by job: the same placement has the same change."""
    undo: Undo = NOTHING_UNDONE
    """Of a rollback: what it may do that other plans do not."""

    @cached_property
    def facts(self) -> SnapshotFacts:
        """Facts that do not depend on the plan."""
        return self.known or SnapshotFacts(self.snapshot)

    @property
    def entitlements(self) -> Entitlements:
        """Entitlements of queues."""
        return self.facts.entitlements(self.policy.disruption)

    @cached_property
    def time(self) -> OccupancyTimeline:
        """Presence of jobs over time."""
        return OccupancyTimeline(self)

    @cached_property
    def nodes(self) -> dict[str, Node]:
        """Nodes by name, including added ones and nodes to be removed, on which no replica may be."""
        known = self.snapshot.cluster.node_by_name
        if self.undo.opened:
            opened = {name: known[name] for name in self.undo.opened if name in known}
            known = known | {
                name: node.model_copy(update={"cordoned": False}) for name, node in opened.items()
            }
        return {**{node.name: node for node in reversed(self.added)}, **known} if self.added else known

    @cached_property
    def gone(self) -> frozenset[str]:
        """Names of the nodes to be removed."""
        return frozenset(self.removed)

    @cached_property
    def nodes_after(self) -> tuple[Node, ...]:
        """The nodes that exist after the plan."""
        return tuple(node for name, node in self.nodes.items() if name not in self.gone)

    def is_added(self, name: str) -> bool:
        """True if the plan adds this node."""
        return name in self.nodes and name not in self.snapshot.cluster.node_by_name

    @property
    def jobs(self) -> dict[str, Job]:
        """Jobs by name."""
        return self.snapshot.job_by_name

    @property
    def running(self) -> tuple[Job, ...]:
        """Running jobs of the snapshot."""
        return self.facts.running

    @property
    def usage_before(self) -> dict[tuple[str, str], int]:
        """Thousandths of GPUs that running jobs hold in the snapshot, by queue and GPU model."""
        return self.facts.usage

    @cached_property
    def usage_after(self) -> dict[tuple[str, str], int]:
        """
        What jobs hold after the plan, by queue and resource (`quota_usage`).

        Unchanged jobs hold what they held; for all others the old holdings are subtracted and the new ones
        added.
        """
        if self.added:
            return self._usage(self.placements)
        usage = defaultdict(int, self.usage_before)
        left = (job.placement for job in (*self.stopped, *self.disrupted) if job.placement)
        for sign, placements in ((-1, left), (1, (each.placement for each in self.others))):
            for key, milli in self._usage(placements).items():
                usage[key] += sign * milli
        return usage

    def _usage(self, placements: Iterable[Placement]) -> dict[tuple[str, str], int]:
        models = self.snapshot.cluster.gpu_model_by_node
        if self.added:
            models = {name: node.gpus.model for name, node in self.nodes.items() if node.gpus}
        return usage_by_queue_and_resource(placements, self.jobs, models)

    @cached_property
    def pools(self) -> dict[str, NodePool]:
        """Pools by name."""
        return {pool.name: pool for pool in self.snapshot.cluster.pools}

    @cached_property
    def placement_counts(self) -> Counter[str]:
        """Number of placements of each job."""
        return Counter([placement.job for placement in self.placements])

    @cached_property
    def judged_placements(self) -> tuple[JudgedPlacement, ...]:
        """
        Every placement with its change.

        If a running job has several placements, the unchanged one counts, or else the smallest by holdings;
        the others are copies.
        """
        jobs = self.jobs
        kept = {**self.facts.kept, **self.judged}
        found = [
            known
            if (known := kept.get(placement.job)) and known.placement is placement
            else judge_placement(jobs.get(placement.job), placement)
            for placement in self.placements
        ]
        for name, times in self.placement_counts.items():
            if times > 1 and (job := self.jobs.get(name)) and job.running:
                positions = [index for index, each in enumerate(self.placements) if each.job == name]
                positions.sort(key=lambda index: placement_precedence(found[index]))
                for index in positions[1:]:
                    placement = self.placements[index]
                    found[index] = JudgedPlacement(
                        placement, job, Change.COPY, range(len(placement.replicas))
                    )
        return tuple(found)

    @cached_property
    def staying(self) -> tuple[Placement, ...]:
        """Placements reduced to the replicas that are not new."""
        found = []
        for each in self.judged_placements:
            replicas = each.placement.replicas
            if not each.new:
                found.append(each.placement)
                continue
            left = tuple(replica for number, replica in enumerate(replicas) if number not in each.new)
            if left:
                found.append(each.placement.model_copy(update={"replicas": left}))
        return tuple(found)

    @cached_property
    def others(self) -> tuple[JudgedPlacement, ...]:
        """Occupants other than unchanged jobs."""
        return tuple([each for each in self.judged_placements if each.change is not KEPT])

    @cached_property
    def disrupted(self) -> tuple[Job, ...]:
        """Running jobs that are placed with a change."""
        return tuple(
            each.job
            for each in self.others
            if each.job and each.job.running and each.change is not Change.COPY
        )

    @cached_property
    def changed(self) -> tuple[tuple[Job, JudgedPlacement], ...]:
        """Jobs that start, migrate, grow or shrink."""
        return tuple((each.job, each) for each in self.others if each.job and each.change in JUDGED)

    @cached_property
    def arrivals(self) -> tuple[tuple[Job, JudgedPlacement], ...]:
        """Jobs that start, migrate or grow: those with new replicas."""
        return tuple((job, occupant) for job, occupant in self.changed if occupant.new)

    @cached_property
    def stopped(self) -> tuple[Job, ...]:
        """Running jobs without a placement."""
        placed = self.placement_counts
        if self.facts.kept.keys() <= placed.keys():
            return ()
        return tuple(job for job in self.running if job.name not in placed)

    def with_change(self, change: Change) -> Iterator[tuple[Job, JudgedPlacement]]:
        """Jobs with one kind of change."""
        return ((job, occupant) for job, occupant in self.changed if occupant.change is change)

    @cached_property
    def taken_nodes(self) -> frozenset[str]:
        """Names of nodes with new replicas."""
        return frozenset(replica.node for each in self.others if each.new for replica in each.new_replicas)

    @cached_property
    def newly_used_gpus(self) -> dict[tuple[str, int], list[GpuHolding]]:
        """All holders of each existing GPU of which a new replica holds a part, by node name and index."""
        new = {
            (replica.node, held.index)
            for occupant in self.others
            if occupant.new
            for replica in occupant.new_replicas
            for held in replica.gpus
            if (node := self.nodes.get(replica.node)) and held.index < node.gpu_count
        }
        holders: dict[tuple[str, int], list[GpuHolding]] = {key: [] for key in sorted(new)}
        for occupant in self.judged_placements if new else ():
            name = occupant.placement.job
            if self.taken_nodes.isdisjoint(occupant.placement.nodes):
                continue
            for number, replica in enumerate(occupant.placement.replicas):
                if replica.node in self.taken_nodes:
                    for held in replica.gpus:
                        if (using := holders.get((replica.node, held.index))) is not None:
                            using.append(GpuHolding(name, held, number not in occupant.new))
        return holders

    def gpu_models(self, replicas: Iterable[Replica]) -> tuple[str, ...]:
        """GPU models of the replicas that hold GPUs, sorted."""
        known = self._gpu_model_of
        found = {model for replica in replicas if replica.gpus and (model := known.get(replica.node))}
        return tuple(sorted(found))

    @cached_property
    def _gpu_model_of(self) -> dict[str, str]:
        """GPU model of each node that has GPUs, added ones included, by name."""
        return {name: model for name, node in self.nodes.items() if (model := node.gpu_model)}

    def domain(self, name: str, level: Level) -> tuple[str, ...]:
        """Path of a node's domain of a level; an unknown node, or one without a domain, is its own."""
        node = self.nodes.get(name)
        return (node.domain(level) if node else None) or ("",) * 5 + (name,)


@dataclass(frozen=True, slots=True)
class Interval:
    """A job on its places from the beginning of a slot to its expected end."""

    job: Job
    placement: Placement
    slot: int
    start: int
    """Seconds after the snapshot at which the slot begins."""
    seconds: int
    until: int
    """The slot before which it ends; the number of slots if it lasts to the end of the horizon."""

    @property
    def subject(self) -> str:
        """The job in words, with its slot if that is not now."""
        return f"job {self.job.name} in slot {self.slot}" if self.slot else f"job {self.job.name}"

    def covers(self, slot: int) -> bool:
        """True if the job is present in a slot."""
        return self.slot <= slot < self.until


class OccupancyTimeline:
    """The slots of a case, and the presence of jobs in them."""

    def __init__(self, case: Context) -> None:
        self._case = case
        self.slots = TimeSlots.of(case.policy.horizon, case.snapshot.taken_at)

    @property
    def start_value(self) -> StartValue:
        """Points of starts."""
        return self._case.facts.start_value(self._case.policy)

    @property
    def durations(self) -> Durations:
        """Durations of jobs."""
        return self.start_value.durations

    @property
    def windows(self) -> ReservationWindows:
        """Spans in which nodes are closed."""
        return self._case.facts.windows(self._case.policy)

    def opening(self, node: Node) -> int:
        """First slot in which a node that is being provisioned is ready; 0 if it is already due."""
        return self.slots.after(self.seconds_to(node.ready_at)) if node.ready_at else 0

    def begun(self, second: int) -> int:
        """The last slot that begins at or before a second; slot 0 if that is past."""
        return max(0, bisect_right(self.slots.edges[:-1], second) - 1)

    def seconds_to(self, instant: Timestamp) -> int:
        """Seconds from the snapshot to an instant, negative if it is past."""
        return int((instant - self._case.snapshot.taken_at).total_seconds())

    def format_instant(self, second: int) -> str:
        """An instant in words, given in seconds after the snapshot."""
        try:
            return print_timestamp(self._case.snapshot.taken_at + timedelta(seconds=second))
        except OverflowError:
            return "a time after the year 9999"

    def gpu_model(self, job: Job, replicas: tuple[Replica, ...]) -> str | None:
        """The GPU model of replicas; of several, which no valid plan has, the slowest."""
        return min(self._case.gpu_models(replicas), key=job.speed_milli, default=None)

    def interval_of_placement(self, occupant: JudgedPlacement, job: Job) -> Interval:
        """
        Duration of a placement that begins now.

        A running job takes its remaining time. If every replica is new, it also has to resume from its
        checkpoint, at the speed of its new places.
        """
        placement = occupant.placement
        if job.running is None:
            return self._beginning(job, 0, placement)
        seconds = self.durations.remaining(job)
        if len(occupant.new) == len(placement.replicas):
            seconds = self.durations.restart_seconds_now(job, self.gpu_model(job, placement.replicas))
        return Interval(job, placement, 0, 0, seconds, self.slots.until(0, seconds))

    def interval_of_start(self, job: Job, slot: int, replicas: tuple[Replica, ...]) -> Interval:
        """Stay of a job that starts on some places with a slot, or of a running job that resumes there."""
        return self._beginning(job, slot, Placement.model_construct(job=job.name, slot=0, replicas=replicas))

    def _beginning(self, job: Job, slot: int, placement: Placement) -> Interval:
        takes = self.durations.seconds if job.running is None else self.durations.again
        seconds = takes(job, self.gpu_model(job, placement.replicas))
        until = self.slots.until(slot, seconds)
        return Interval(job, placement, slot, self.slots.edges[slot], seconds, until)

    @cached_property
    def outcomes(self) -> dict[str, JobOutcome]:
        """Outcomes of finished jobs by name; of several with the same name the last."""
        ended = sorted(self._case.snapshot.finished, key=lambda job: (job.ended_at, job.outcome))
        return {job.name: job.outcome for job in ended}

    @cached_property
    def kept(self) -> frozenset[str]:
        """Names of the running jobs that are unchanged."""
        return frozenset(
            each.placement.job
            for each in self._case.judged_placements
            if each.job
            and each.job.running
            and not each.new
            and len(each.placement.replicas) == len(each.job.running.replicas)
        )

    def must_leave(self, job: Job) -> bool:
        """True if a running job is on a node to be drained, or must leave for a window."""
        if job.running is None:
            return False
        nodes = (self._case.nodes.get(replica.node) for replica in job.running.replicas)
        return any(node.drain for node in nodes if node) or self.windows.forced_leave_window(job) is not None

    @cached_property
    def now(self) -> tuple[Interval, ...]:
        """Stays of the placements of known jobs."""
        return tuple(
            self.interval_of_placement(occupant, occupant.job)
            for occupant in self._case.judged_placements
            if occupant.job
        )

    @cached_property
    def starting(self) -> tuple[Interval, ...]:
        """Stays of the starts now."""
        return tuple(
            self.interval_of_placement(occupant, job)
            for job, occupant in self._case.arrivals
            if job.running is None
        )

    @cached_property
    def later(self) -> tuple[Interval, ...]:
        """Valid later starts: of jobs not placed now, once, in existing slots; by slot and job."""
        times = Counter(each.job for each in self._case.planned)
        placed = {placement.job for placement in self._case.placements}
        found = [
            self.interval_of_start(job, each.slot, each.replicas)
            for each in self._case.planned
            if (job := self._case.jobs.get(each.job))
            and not job.withheld
            and job.name not in placed
            and times[job.name] == 1
            and 1 <= each.slot < self.slots.count
            and each.replicas
        ]
        return tuple(sorted(found, key=lambda stay: (stay.slot, stay.job.name)))

    @cached_property
    def starts(self) -> dict[str, Interval]:
        """All starts, now and later, by job; for a job placed twice the longest."""
        found: dict[str, Interval] = {}
        for stay in (*self.starting, *self.later):
            other = found.get(stay.job.name)
            # The choice does not matter, but must not depend on their order.
            if other is None or (stay.seconds, str(stay.placement)) > (other.seconds, str(other.placement)):
                found[stay.job.name] = stay
        return found
