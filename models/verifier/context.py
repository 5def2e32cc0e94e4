"""
Case: the input of the verifier, with look-ups shared by its rules.

Rules about shared resources count all jobs, but report only conflicts with a new replica: a conflict between
running jobs is not caused by the plan.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, NamedTuple

from gpuplan.models.value.start_value import StartValue
from gpuplan.models.verifier.damage import lost_places
from gpuplan.models.verifier.job_changes import (
    JUDGED,
    KEPT,
    Change,
    JudgedPlacement,
    judge_placement,
    placement_precedence,
)
from gpuplan.models.verifier.quota_usage import usage_by_queue_and_model
from gpuplan.models.verifier.reclaim import Entitlements
from gpuplan.models.verifier.timeline import OccupancyTimeline

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from gpuplan.models.cluster import Level, Node, NodePool
    from gpuplan.models.job import Job
    from gpuplan.models.placement import GpuShare, MigSlice, Placement, Replica
    from gpuplan.models.plan.desired_state import LaterStart
    from gpuplan.models.plan.replica_identity import Holding
    from gpuplan.models.policy.policy import Disruption, Policy
    from gpuplan.models.snapshot import Snapshot


class GpuHolding(NamedTuple):
    """One part of a GPU held by one replica."""

    job: str
    held: GpuShare | MigSlice
    kept: bool


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
        """Thousandths of GPUs that running jobs hold, by queue and GPU model."""
        placements, jobs = self.snapshot.running_placements, self.snapshot.job_by_name
        return usage_by_queue_and_model(placements, jobs, self.snapshot.cluster.gpu_model_by_node)

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
    def some_avoid_others(self) -> bool:
        """True if any job has anti-affinity."""
        return any(job.anti_affinity for job in self.snapshot.jobs)


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
        Thousandths of GPUs that jobs hold after the plan, by queue and GPU model.

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
        return usage_by_queue_and_model(placements, self.jobs, models)

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
        kept = self.facts.kept
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
        nodes = (self.nodes.get(replica.node) for replica in replicas if replica.gpus)
        return tuple(sorted({node.gpu_model for node in nodes if node and node.gpu_model}))

    def domain(self, name: str, level: Level) -> tuple[str, ...]:
        """Path of a node's domain of a level; an unknown node, or one without a domain, is its own."""
        node = self.nodes.get(name)
        return (node.domain(level) if node else None) or ("",) * 5 + (name,)
