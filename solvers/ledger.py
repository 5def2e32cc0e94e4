"""
Ledger: what is still free on concrete nodes, and a fast best fit into it.

It scores the nodes once a class and then only those it touches, so that its cost follows classes times nodes
plus replicas, not jobs times nodes. It never takes what is not there: capacity, queue limits and gangs hold
after every call, which the verifier confirms.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import islice
from typing import TYPE_CHECKING, TypeAlias

import numpy as np

from planner.models.placement import GpuShare, Placement, Replica
from planner.models.units import MILLI
from planner.solvers.bestfit import Stranding, best_fit
from planner.solvers.quota import QuotaLedger

if TYPE_CHECKING:
    from collections.abc import Iterable

    from numpy.typing import NDArray

    from planner.models.problem import Option, Problem, Shape

Ints: TypeAlias = "NDArray[np.int64]"


@dataclass(frozen=True, slots=True)
class Site:
    """A place for one replica."""

    node: int
    gpus: tuple[int, ...]
    """GPU indices."""


@dataclass(frozen=True, slots=True)
class Placed:
    """One job with its sites."""

    job_class: int
    option: Option
    sites: tuple[Site, ...]


class Ledger:
    """Free capacity of every node and every queue, and the jobs placed so far."""

    def __init__(self, problem: Problem) -> None:
        self.problem = problem
        self.quota = QuotaLedger(problem)
        self.placed: list[Placed] = []
        widest = max((group.gpus for group in problem.groups), default=0)
        count = len(problem.nodes)
        self.gpu_free = np.zeros((count, max(1, widest)), dtype=np.int64)
        for index, node in enumerate(problem.nodes):
            self.gpu_free[index, : len(node.gpus)] = node.gpus
        self.free = np.array([node.amounts for node in problem.nodes], dtype=np.int64).reshape(
            count, len(problem.resources)
        )
        self.whole: Ints = (self.gpu_free == MILLI).sum(axis=1)
        """Wholly free GPUs of each node."""
        self._nodes_of = [np.array(group.nodes, dtype=np.int64) for group in problem.groups]
        self.has_gpus = np.array([bool(node.gpus) for node in problem.nodes], dtype=bool)
        self.stranding = Stranding(self.gpu_free, self.free)

    def nodes_of(self, groups: Iterable[int]) -> Ints:
        """Indices of all nodes in the groups."""
        parts = [self._nodes_of[group] for group in groups]
        return np.concatenate(parts) if parts else np.zeros(0, dtype=np.int64)

    def room(self, shape: Shape, nodes: Ints) -> Ints:
        """How many replicas of a shape each of the nodes could take, were they all for it."""
        if shape.gpus:
            room = self.whole[nodes] // shape.gpus
        elif shape.gpu_milli:
            room = (self.gpu_free[nodes] // shape.gpu_milli).sum(axis=1)
        else:
            room = np.full(len(nodes), np.iinfo(np.int32).max, dtype=np.int64)
        for resource, amount in enumerate(shape.amounts):
            if amount:
                room = np.minimum(room, self.free[nodes, resource] // amount)
        return room

    def place(self, index: int, option: Option, *, jobs: int) -> int:
        """Place up to so many jobs of a class on an option, wherever they fit best; the number placed."""
        job_class = self.problem.classes[index]
        jobs = min(jobs, self.quota.headroom(job_class, option, job_class.minimum))
        if jobs <= 0:
            return 0
        nodes = self.nodes_of(option.groups)
        sites = self.take(job_class.shape, nodes, jobs * job_class.minimum)
        gangs = len(sites) // job_class.minimum
        sites += self.take(job_class.shape, nodes, gangs * (job_class.maximum - job_class.minimum))
        return self.settle(index, option, sites, jobs=gangs)

    def settle(self, index: int, option: Option, sites: list[Site], *, jobs: int) -> int:
        """Make up to so many jobs from taken sites, as large as these allow; give back what is left over."""
        job_class = self.problem.classes[index]
        jobs = min(
            jobs, len(sites) // job_class.minimum, self.quota.headroom(job_class, option, job_class.minimum)
        )
        used = 0
        if jobs > 0:
            needed = jobs * job_class.minimum
            self.quota.take(job_class, option, needed)
            more = min(len(sites), jobs * job_class.maximum) - needed
            more = min(more, self.quota.headroom(job_class, option, 1))
            self.quota.take(job_class, option, more)
            used = needed + more
        for site in sites[used:]:
            self._charge(job_class.shape, site, -1)
        start = 0
        for gang in range(jobs):
            size = used // jobs + (gang < used % jobs)
            self.placed.append(Placed(index, option, tuple(sites[start : start + size])))
            start += size
        return max(0, jobs)

    def take(self, shape: Shape, nodes: Ints, count: int) -> list[Site]:
        """Take up to so many sites for a shape on the nodes, best fit first."""
        return list(islice(best_fit(self, shape, nodes), max(0, count)))

    def take_one(self, shape: Shape, node: int) -> Site:
        """Take a site on a node that has room: the first whole GPUs, or the fullest GPU a share fits."""
        free = self.gpu_free[node]
        gpus: Ints = np.zeros(0, dtype=np.int64)
        if shape.gpus:
            gpus = np.flatnonzero(free == MILLI)[: shape.gpus]
        elif shape.gpu_milli:
            enough = np.flatnonzero(free >= shape.gpu_milli)
            gpus = enough[[np.argmin(free[enough])]]
        site = Site(node, tuple(gpus.tolist()))
        self._charge(shape, site, 1)
        return site

    def _charge(self, shape: Shape, site: Site, replicas: int) -> None:
        """Take a site, or give it back with -1."""
        for gpu in site.gpus:
            self.gpu_free[site.node, gpu] -= replicas * (shape.gpu_milli or MILLI)
        self.free[site.node] -= replicas * np.array(shape.amounts, dtype=np.int64)
        self.whole[site.node] = np.count_nonzero(self.gpu_free[site.node] == MILLI)

    @property
    def objective(self) -> int:
        """Points of everything placed so far."""
        classes = self.problem.classes
        return sum(
            classes[placed.job_class].points(placed.option, len(placed.sites)) for placed in self.placed
        )

    def placements(self) -> tuple[Placement, ...]:
        """Everything placed, as nouns; within a class the job to start first gets its place first."""
        next_job = [iter(job_class.jobs) for job_class in self.problem.classes]
        return tuple(
            Placement(
                job=next(next_job[placed.job_class]),
                replicas=tuple(
                    self._replica(self.problem.classes[placed.job_class].shape, site) for site in placed.sites
                ),
            )
            for placed in self.placed
        )

    def _replica(self, shape: Shape, site: Site) -> Replica:
        standard = dict(zip(self.problem.resources, shape.amounts, strict=True))
        return Replica(
            node=self.problem.nodes[site.node].name,
            gpus=tuple(GpuShare(index=gpu, milli=shape.gpu_milli or MILLI) for gpu in site.gpus),
            cpu_milli=standard.pop("cpu_milli") / MILLI,
            memory_mib=standard.pop("memory_mib"),
            disk_mib=standard.pop("disk_mib"),
            resources={name: amount for name, amount in standard.items() if amount},
        )
