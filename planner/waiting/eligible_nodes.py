"""Nodes that a job may use by its filters, and those of them that a plan blocks; computed by kind of job."""

from __future__ import annotations

from collections import Counter, defaultdict
from dataclasses import dataclass
from functools import cached_property
from itertools import chain
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias

import numpy as np

from gpuplan.models.eligibility.free_resources import FreeResources
from gpuplan.models.eligibility.node_eligibility import eligibility_key, ineligibility
from gpuplan.models.eligibility.preemption_order import is_in_turn, least_follower
from gpuplan.models.plan.actions import ActionKind
from gpuplan.models.units import MILLI
from gpuplan.planner.problem_builder.quotas import (
    Holding,
    Reclaiming,
    min_requested_gpu_milli,
    queue_and_model_of,
)
from gpuplan.planner.waiting.free_capacity import FreeCapacity, NodeRoom

if TYPE_CHECKING:
    from collections.abc import Collection, Hashable, Iterable, Iterator, Sequence

    from numpy.typing import NDArray

    from gpuplan.models.cluster import Level, Node, NodeGpus
    from gpuplan.models.job import Job
    from gpuplan.models.placement import Replica
    from gpuplan.models.policy.policy import Policy
    from gpuplan.planner.analysis.job_changes import PlanChanges
    from gpuplan.planner.waiting.mig_capacity import MigCapacity

    Ints: TypeAlias = NDArray[np.int64]


@dataclass(frozen=True, eq=False)
class EligibleNodes:
    """The eligible nodes of a job, and why the other nodes are not eligible."""

    nodes: tuple[int, ...]
    """Indices of the nodes, ascending."""
    gpu_models: tuple[str, ...]
    """GPU models of these nodes, sorted."""
    refusals: Counter[str]
    """Number of refused nodes by reason."""
    by_model: dict[str | None, list[int]]
    """Indices of the nodes by GPU model."""

    @cached_property
    def indices(self) -> Ints:
        """`nodes` as an array."""
        return np.array(self.nodes, dtype=np.int64)

    def of_models(self, gpu_models: Iterable[str]) -> Ints:
        """The part of `indices` that has one of the given GPU models."""
        found = [index for model in gpu_models for index in self.by_model[model]]
        return np.sort(np.array(found, dtype=np.int64))


class EligibilityIndex:
    """Matches jobs with nodes; `new` are indices of nodes that the plan adds or could add."""

    def __init__(self, nodes: Sequence[Node], jobs: Iterable[Job], new: Collection[int] = ()) -> None:
        self._nodes = nodes
        self._new = frozenset(new)
        self._labels = sorted(
            {label for job in jobs for label in (*job.node_selector, *(match.key for match in job.affinity))}
        )
        self._match_by_filters: dict[Any, EligibleNodes] = {}

    def match(self, job: Job) -> EligibleNodes:
        """Return the nodes for a job; jobs with equal filters share one answer."""
        key = eligibility_key(job)
        found = self._match_by_filters.get(key)
        if found is None:
            found = self._match_by_filters[key] = self._ask(job)
        return found

    def _ask(self, job: Job) -> EligibleNodes:
        accepted: dict[str | None, list[int]] = defaultdict(list)
        refusals: Counter[str] = Counter()
        for members in self._kinds:
            first = self._nodes[members[0]]
            reason = ineligibility(job, first)
            if reason is None and members[0] in self._new and not job.request.needs_gpu:
                reason = self._too_good(first)
            if reason is None:
                accepted[first.gpu_model] += members
            else:
                refusals[reason] += len(members)
        nodes = tuple(sorted(chain.from_iterable(accepted.values())))
        return EligibleNodes(nodes, tuple(sorted(filter(None, accepted))), refusals, accepted)

    def _too_good(self, node: Node) -> str | None:
        return "new GPU nodes are not for jobs without GPUs" if node.gpus else None

    @cached_property
    def _kinds(self) -> list[list[int]]:
        """Indices of nodes, grouped so that `ineligibility` gives one answer per group for each job."""
        kinds: dict[Any, list[int]] = defaultdict(list)
        for index, node in enumerate(self._nodes):
            labels = node.labels
            kind = (
                (node.ready, node.cordoned, node.drain, index in self._new),
                node.region,
                _gpus(node.gpus) if node.gpus else None,
                tuple([labels.get(label) for label in self._labels]),
                node.taints,
            )
            kinds[kind].append(index)
        return list(kinds.values())


def _gpus(gpus: NodeGpus) -> tuple[object, ...]:
    """
    The properties of GPUs that `ineligibility` reads.

    For a GPU model without a known MIG geometry, the present MIG profiles are what it offers.
    """
    profiles = {instance.profile for gpu in gpus.details for instance in gpu.mig or ()}
    return gpus.model, gpus.memory_mib, gpus.time_sliced, gpus.may_be_unhealthy, frozenset(profiles)


# Eligible nodes with free capacity that a job may not use: freed for other jobs, or closed by anti-
# affinity.


class BlockedNodes:
    """Finds the nodes of one target that a job may not use although they have free capacity."""

    def __init__(self, changes: PlanChanges, policy: Policy) -> None:
        snapshot, target = changes.snapshot, changes.target
        self._left = _left_by(changes, policy)
        """Victims' holdings and least priorities to follow them by node and GPU index, None for the node."""
        self._victims: set[_Victim] = set().union(*self._left.values())
        self._barred_by_kind: dict[tuple[str, int, int], dict[str, set[int | None]]] = {}
        self._barred_by_victims: dict[frozenset[_Victim], dict[str, set[int | None]]] = {}
        self._reclaiming, self._jobs = Reclaiming(snapshot, policy), snapshot.job_by_name
        self._idle = self._idle_beside(changes)
        jobs, nodes = self._jobs, changes.cluster.node_by_name
        self._avoiding = "anti_affinity" in snapshot.stated and any(
            job.anti_affinity for job in snapshot.jobs
        )
        self._standing = [
            (
                jobs[placement.job],
                [nodes[name] for name in sorted({replica.node for replica in placement.replicas})],
            )
            for placement in (target.placements if self._avoiding else ())
        ]

    @property
    def by_priority(self) -> bool:
        """True if the eligible nodes of a job depend on its priority."""
        return bool(self._left)

    @property
    def by_labels(self) -> bool:
        """True if the eligible nodes of a job depend on its labels."""
        return self._avoiding

    def reserved(self, job: Job, places: Iterable[NodeRoom]) -> set[str]:
        """Names of nodes where too little is free beside what was freed for other jobs."""
        barred = self._barred(job)
        return {
            place.node.name
            for place in places
            if place.node.name in barred and self._is_reserved(job, place, barred[place.node.name])
        }

    def _is_reserved(self, job: Job, place: NodeRoom, barred: set[int | None]) -> bool:
        name, request = place.node.name, job.request
        free = [
            min(milli, self._idle[name, gpu]) if gpu in barred else milli
            for gpu, milli in enumerate(place.free.gpu_milli)
        ]
        whole = sum(milli == MILLI for milli in free)
        enough = whole >= request.gpus and max(free, default=0) >= request.gpu_milli
        return bool(request.mig) or not enough or not request.needs_gpu

    def _barred(self, job: Job) -> dict[str, set[int | None]]:
        """
        By node: GPUs, and None for the node, of which a job may not take what others have freed.

        One answer for all jobs that ask alike, and for all that may follow the same victims.
        """
        least = min_requested_gpu_milli(job)
        key = job.queue, job.priority, least
        if key not in self._barred_by_kind:
            barring = frozenset(victim for victim in self._victims if self._bars(victim, job, least))
            if barring not in self._barred_by_victims:
                found: dict[str, set[int | None]] = defaultdict(set)
                for (node, gpu), victims in self._left.items():
                    if not victims.isdisjoint(barring):
                        found[node].add(gpu)
                self._barred_by_victims[barring] = dict(found)
            self._barred_by_kind[key] = self._barred_by_victims[barring]
        return self._barred_by_kind[key]

    def _bars(self, victim: _Victim, job: Job, least: int) -> bool:
        """True if a job that takes at least `least` thousandths of GPUs may not take what a victim frees."""
        outranked = job.priority < victim.least or (
            victim.turn is not None and self._reclaiming.keeps_turn(self._jobs[victim.turn], job.queue)
        )
        return outranked and not self._reclaiming.may_take(job.queue, least, victim.held)

    def _idle_beside(self, changes: PlanChanges) -> dict[tuple[str, int | None], int]:
        """By node and GPU: thousandths that are free besides what stopped or shrunk jobs free there."""
        idle = {key: MILLI for key in self._left if key[1] is not None}
        if not idle:
            return {}
        for placement in changes.snapshot.running_placements:
            for key, milli in _taken(placement.replicas):
                if key in idle:
                    idle[key] -= milli
        for change in changes.jobs:
            for key, milli in _taken(change.arriving):
                # An arriving job that may follow the victim takes the freed part, so the idle part stays.
                if key in idle and key[1] in self._barred(change.job).get(key[0], ()):
                    idle[key] -= milli
        return idle

    def avoided(self, job: Job, nodes: Iterable[Node]) -> set[str]:
        """Names of nodes that share a domain with a job excluded by anti-affinity, in either direction."""
        return avoided_nodes(job, nodes, self._standing)


class _Victim(NamedTuple):
    """What a preempted or shrunk job has freed."""

    held: Holding
    least: int
    """Lowest priority of jobs that may take it, unless they reclaim it."""
    turn: str | None
    """Name of the job if it was in its turn."""


def _left_by(changes: PlanChanges, policy: Policy) -> dict[tuple[str, int | None], set[_Victim]]:
    """By node and GPU: holdings of preempted or shrunk jobs, with the least priorities to follow them."""
    left: dict[tuple[str, int | None], set[_Victim]] = defaultdict(set)
    for change in changes.jobs:
        if change.kind in (ActionKind.PREEMPT, ActionKind.SHRINK):
            job, now = change.job, changes.snapshot.taken_at
            turn = job.name if is_in_turn(policy, job, now) else None
            least = least_follower(policy, job, now)
            victim = _Victim(queue_and_model_of(job, changes.snapshot), least, turn)
            for replica in change.leaving:
                for gpu in (None, *(held.index for held in replica.gpus)):
                    left[replica.node, gpu].add(victim)
    return left


def _taken(replicas: Iterable[Replica]) -> Iterator[tuple[tuple[str, int | None], int]]:
    """Yield ((node, GPU index), thousandths held) of replicas."""
    return (
        ((replica.node, gpu), milli) for replica in replicas for gpu, milli in replica.milli_by_gpu.items()
    )


def avoided_nodes(
    job: Job, nodes: Iterable[Node], standing: Iterable[tuple[Job, Sequence[Node]]]
) -> set[str]:
    """
    Names of nodes that share a domain with a job excluded by anti-affinity, in either direction.

    `standing` has the other jobs with their nodes.
    """
    levels: dict[Level, set[object]] = defaultdict(set)
    for other, places in standing:
        for avoiding, avoided in ((job, other), (other, job)):
            for term in avoiding.anti_affinity:
                if term.labels.items() <= avoided.labels.items():
                    levels[term.level].update(domain_of(node, term.level) for node in places)
    if not levels:
        return set()
    return {
        node.name
        for node in nodes
        if any(domain_of(node, level) in domains for level, domains in levels.items())
    }


def domain_of(node: Node, level: Level) -> object:
    """Domain of a node; a node without a domain of the level is a domain of its own."""
    return node.domain(level) or node.name


# Capacity of empty nodes; nodes that offer the same share one answer.


class EmptyNodes:
    """Pools of a set of nodes without any jobs on them."""

    def __init__(self, nodes: Sequence[Node], mig: MigCapacity) -> None:
        """Keep the nodes; `mig` is the MIG capacity without placements."""
        self._nodes, self._mig = nodes, mig
        first: dict[Hashable, int] = {}
        alike = (first.setdefault(_offer(node), index) for index, node in enumerate(nodes))
        self._first_alike = np.fromiter(alike, np.int64, len(nodes))
        self._kinds: dict[EligibleNodes, FreeCapacity] = {}
        self._all: dict[EligibleNodes, FreeCapacity] = {}

    def kinds(self, match: EligibleNodes) -> FreeCapacity:
        """Return the matching nodes, one of each kind."""
        if match not in self._kinds:
            self._kinds[match] = self._pool(np.unique(self._first_alike[match.indices]).tolist())
        return self._kinds[match]

    def all(self, match: EligibleNodes) -> FreeCapacity:
        """Return all matching nodes."""
        if match not in self._all:
            self._all[match] = self._pool(match.nodes)
        return self._all[match]

    def _pool(self, indices: Iterable[int]) -> FreeCapacity:
        nodes = (self._nodes[index] for index in indices)
        return FreeCapacity([NodeRoom(node, FreeResources.of(node), self._mig) for node in nodes])


def _offer(node: Node) -> Hashable:
    """Everything that jobs can use of an empty node."""
    gpus = node.gpus
    # GPUs of equal nodes differ in their UUIDs.
    details = (
        [(gpu.index, gpu.healthy, gpu.mig, gpu.numa, gpu.nvlink) for gpu in gpus.details] if gpus else []
    )
    return (
        (gpus.model, gpus.count, tuple(details)) if gpus else None,
        (node.cpu_milli, node.memory_mib, node.disk_mib),
        frozenset(node.resources.items()),
    )
