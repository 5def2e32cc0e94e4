"""
Placements during a baseline's decision; the ledger enforces all placement rules.

The ledger gets all jobs as new, running jobs too, which are then put on their present places. So each job can
be taken off and put back, and free capacity without some jobs can be computed. Capacity, filters, quotas,
domains and GPU shares are as in any plan. A running job that could not start at its places today, or that
others depend on, is not part of this: it runs on.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Final, TypeAlias

import numpy as np

from gpuplan.models.placement import Placement
from gpuplan.models.policy.policy import Disruption
from gpuplan.models.policy.settings import HorizonPolicy, Objective
from gpuplan.models.problem.problem import Charges
from gpuplan.planner.problem_builder import build_problem
from gpuplan.solvers.heuristics import coscheduled_groups, placement
from gpuplan.solvers.state.assignment import ReplicaSite
from gpuplan.solvers.state.ledger import Ledger
from gpuplan.solvers.targets.to_target import replica_of

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Sequence

    from numpy.typing import NDArray

    from gpuplan.models.cluster import Cluster
    from gpuplan.models.job import Job
    from gpuplan.models.policy.policy import Policy
    from gpuplan.models.problem.jobs import JobClass, Option, Shape
    from gpuplan.models.problem.problem import Problem
    from gpuplan.models.snapshot import Snapshot
    from gpuplan.solvers.state.constraints.capacity import NodeCapacities
    from gpuplan.solvers.state.feasibility import Scorer as NodeScorer


_AT_ONCE: Final = Objective(rollouts=0)
"""Baselines start whatever their own rule says."""

_NO_CHANGES: Final = Disruption(preempt=False, resize=False, migrate=False)
"""Baselines change running jobs by taking them off, not by the disruptions that the ledger supports."""


class PlacedJobs:
    """The placed jobs on a ledger; all changes go through this class."""

    def __init__(self, snapshot: Snapshot, policy: Policy, scorer: Scorer | None = None) -> None:
        self._snapshot = snapshot
        self._share_of: dict[str, dict[str, float]] = {}
        rules = policy.model_copy(
            update={"horizon": HorizonPolicy(), "disruption": _NO_CHANGES, "objective": _AT_ONCE}
        )
        staying = _needed(snapshot)
        while True:
            self._begin(rules, staying, scorer)
            if not (refused := {name for name in self._sites if not self.restore(name)}):
                break
            staying |= refused

    def _begin(self, rules: Policy, staying: Collection[str], scorer: Scorer | None) -> None:
        snapshot = self._snapshot
        loose = {job.name for job in snapshot.jobs if job.running and job.name not in staying}
        jobs = tuple(
            _as_waiting(job) if job.name in loose or not job.running else job for job in snapshot.jobs
        )
        problem = _without_prices(build_problem(snapshot.model_copy(update={"jobs": jobs}), rules))
        self.problem = problem
        self.ledger = Ledger(problem)
        if scorer is not None:
            self.ledger.feasibility.scorer = scorer(self.ledger.capacity)
        self.number_of: dict[str, int] = {}
        """Ledger number of each placed job."""
        self._own: dict[str, int] = {}
        """Ledger numbers of running jobs at their present places."""
        self._full: set[int] = set()
        """Classes that found no room since a job was last taken off."""
        self._class_of = {
            name: index for index, job_class in enumerate(problem.classes) for name in job_class.jobs
        }
        self._party_of = coscheduled_groups.groups_by_class(problem)
        index_of = {node.name: index for index, node in enumerate(problem.nodes)}
        self._sites = {job.name: _sites(job, index_of) for job in snapshot.jobs if job.name in loose}

    @property
    def cluster(self) -> Cluster:
        """The cluster of the snapshot."""
        return self._snapshot.cluster

    @property
    def free_milli(self) -> int:
        """Thousandths of GPUs that no job holds."""
        return int(self.ledger.capacity.gpu_left.sum())

    def class_of(self, name: str) -> JobClass | None:
        """The class of a job; None if it may not start now."""
        index = self._class_of.get(name)
        return None if index is None else self.problem.classes[index]

    def start(
        self, name: str, options: tuple[Option, ...] | None = None, nodes: NDArray[np.int64] | None = None
    ) -> bool:
        """
        Place a job together with its co-start group; False without a change if there is no room.

        `options` and `nodes` restrict the choice.
        """
        index = self._class_of.get(name)
        if index is None or name in self.number_of or index in self._full:
            return False
        last = max(self.ledger.placed, default=-1)
        if (party := self._party_of.get(index)) is not None:
            done = coscheduled_groups.start_group(self.ledger, party)
        else:
            choice = self._preferred(name, index) if options is None else options
            done = any(placement.place(self.ledger, index, option, jobs=1, nodes=nodes) for option in choice)
        if not done:
            if options is None and nodes is None:
                self._full.add(index)
            return False
        for number, placed in self.ledger.placed.items():
            if number > last:
                company = self.problem.classes[placed.job_class].jobs
                self.number_of[name if placed.job_class == index else company[0]] = number
        return True

    def fits_alone(self, name: str) -> bool:
        """True if a job would have room without all other jobs, so that it waits only for them."""
        mark, full = self.ledger.undo.mark(), set(self._full)
        number_of, own = dict(self.number_of), dict(self._own)
        for each in number_of:
            self.remove(each)
        fits = self.start(name)
        self.ledger.undo.rollback(mark)
        self.number_of, self._own, self._full = number_of, own, full
        return fits

    def prefer(self, name: str, share: dict[str, float]) -> None:
        """Let a job try GPU models in descending order of its shares."""
        self._share_of[name] = share

    def _preferred(self, name: str, index: int) -> tuple[Option, ...]:
        """Options of a job in descending order of points, or of its shares if set by `prefer`."""
        options = self.problem.classes[index].options
        if (share := self._share_of.get(name)) is None:
            return options
        return tuple(sorted(options, key=lambda option: -share.get(option.gpu_model or "", 0.0)))

    def remove(self, name: str) -> None:
        """Remove a placed job from its places."""
        self._own.pop(name, None)
        self.ledger.remove(self.number_of.pop(name))
        self._full.clear()

    def restore(self, name: str) -> bool:
        """Put a running job back on its present places; False if they are no longer free."""
        index, sites = self._class_of.get(name), self._sites[name]
        if index is None or sites is None or index in self._party_of:
            return False
        option = self._option(index, sites)
        if option is None or (number := self.ledger.commit_at(index, option, sites)) is None:
            return False
        self.number_of[name] = self._own[name] = number
        return True

    def _option(self, index: int, sites: tuple[ReplicaSite, ...]) -> Option | None:
        groups = {self.ledger.group_of[site.node] for site in sites}
        job_class = self.problem.classes[index]
        if not job_class.minimum <= len(sites) <= job_class.maximum:
            return None
        return next((option for option in job_class.options if groups <= set(option.groups)), None)

    def placements(self) -> tuple[Placement, ...]:
        """Placements of all jobs that then run, by job."""
        placed, problem = self.ledger.placed, self.problem
        found = {
            job.name: job.placement
            for job in self._snapshot.jobs
            if job.placement is not None and (job.name in self._own or job.name not in self._sites)
        }
        for name, number in self.number_of.items():
            if name not in found:
                one = placed[number]
                job_class = problem.classes[one.job_class]
                replicas = tuple(
                    replica_of(problem, job_class, site, problem.nodes[site.node].name) for site in one.sites
                )
                found[name] = Placement(job=name, replicas=replicas)
        return tuple(placement for _, placement in sorted(found.items()))


def _without_prices(problem: Problem) -> Problem:
    """The problem with equal points for all starts and nodes, so that only rules restrict places."""
    charges = problem.charges
    switch_mode = None if charges.switch_mode is None else 0
    free = Charges(switch_mode=switch_mode, may_repartition=charges.may_repartition)
    classes = (
        replace(
            job_class,
            options=tuple(replace(option, points=1, once=0) for option in job_class.options),
            fixed_points=0,
            node_points=(),
        )
        for job_class in problem.classes
    )
    return replace(problem, classes=tuple(classes), charges=free)


def _as_waiting(job: Job) -> Job:
    """The job as pending, without a promise."""
    if job.running is None and job.promise is None:
        return job
    return job.model_copy(update={"running": None, "promise": None})


def _needed(snapshot: Snapshot) -> set[str]:
    """Running jobs that pending jobs depend on, or that are in a co-start group."""
    awaited = {each.job for job in snapshot.waiting for each in job.depends_on}
    return {job.name for job in snapshot.jobs if job.running and (job.name in awaited or job.co_start)}


def _sites(job: Job, index_of: dict[str, int]) -> tuple[ReplicaSite, ...] | None:
    """Sites of a running job; None if one of its nodes takes no jobs."""
    replicas = job.running.replicas if job.running else ()
    if any(replica.node not in index_of for replica in replicas):
        return None
    return tuple(
        ReplicaSite(
            index_of[replica.node],
            replica.shared_gpus,
            tuple((part.index, part.profile, part.start) for part in replica.mig_slices),
        )
        for replica in replicas
    )


# Scorers: the choice among nodes with room for the next replica, by first fit, best fit or Kubernetes'
# rules.
#
# Kubernetes' rules are the scoring strategies of its NodeResourcesFit plugin, over GPUs, CPU and memory. A
# resource that a replica does not request, or that a node lacks, does not count.


if TYPE_CHECKING:
    Ints: TypeAlias = NDArray[np.int64]
    Floats: TypeAlias = NDArray[np.float64]

    Scorer: TypeAlias = Callable[[NodeCapacities], NodeScorer]
    """Created once, for the nodes as they are without the jobs that can be taken off."""

_EQUAL: Final = (1, 1, 1)
_GPUS_FIRST: Final = (3, 1, 1)
"""Weights of GPUs, CPU and memory from the bin packing example in Kubernetes' documentation."""


def first_fit(_capacity: NodeCapacities) -> NodeScorer:
    """The first node by name."""
    return lambda _shape, gpus, _free, _nodes: np.zeros(len(gpus))


def best_fit(capacity: NodeCapacities) -> NodeScorer:
    """The node with the fewest free GPUs; for jobs without GPUs, the least free CPU."""
    most = max(1, int(capacity.gpu_left.max(initial=0)))
    most_cpu = max(1, int(capacity.free[:, 0].max(initial=0)))

    def cost(shape: Shape, gpus: Ints, free: Ints, _nodes: Ints) -> Floats:
        left: Floats = gpus / most if shape.quota_milli else free[:, 0] / most_cpu
        return left

    return cost


def most_allocated(capacity: NodeCapacities) -> NodeScorer:
    """MostAllocated: the node with the largest requested part after the placement."""
    used = _requested_part(capacity, _EQUAL)
    return lambda *about: 1.0 - used(*about)


def least_allocated(capacity: NodeCapacities) -> NodeScorer:
    """LeastAllocated: the node with the smallest requested part after the placement."""
    return _requested_part(capacity, _EQUAL)


def requested_to_capacity_ratio(capacity: NodeCapacities) -> NodeScorer:
    """RequestedToCapacityRatio: the shape 0 → 0, 100 → 10, with triple weight for GPUs."""
    used = _requested_part(capacity, _GPUS_FIRST)
    return lambda *about: 1.0 - used(*about)


def _requested_part(capacity: NodeCapacities, weights: Sequence[int]) -> NodeScorer:
    """Weighted mean, over the resources, of the requested part of a node after the placement."""
    gpu_total = capacity.gpu_left.copy()
    totals = capacity.free[:, :2].copy()

    def part(shape: Shape, gpus: Ints, free: Ints, nodes: Ints) -> Floats:
        left = np.column_stack([gpus - shape.quota_milli, free[:, :2] - np.array(shape.amounts[:2])])
        total = np.column_stack([gpu_total[nodes], totals[nodes]])
        asked = np.array([shape.quota_milli, *shape.amounts[:2]]) > 0
        weight = np.where(asked & (total > 0), np.array(weights), 0)
        found: Floats = (weight * (1.0 - left / np.maximum(1, total))).sum(axis=1) / np.maximum(
            1, weight.sum(axis=1)
        )
        return np.clip(found, 0.0, 1.0)

    return part
