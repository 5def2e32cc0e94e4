"""
Ledger: what is still free on concrete nodes, and a fast best fit into it.

It scores the nodes once a shape and then only those that change, so that its cost follows shapes times nodes
plus replicas, not jobs times nodes. It never takes what is not there: capacity, queue limits and gangs hold
after every call, which the verifier confirms.
"""

from __future__ import annotations

from collections import OrderedDict
from dataclasses import dataclass, replace
from itertools import islice
from typing import TYPE_CHECKING, Final, TypeAlias

import numpy as np

from planner.models.placement import GpuShare, Placement, Replica
from planner.models.units import MILLI, print_milli
from planner.solvers.bestfit import Board, Stranding, best_fit
from planner.solvers.quota import QuotaLedger

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from planner.models.problem import Option, Problem, Shape

Ints: TypeAlias = "NDArray[np.int64]"

_BOARDS_KEPT: Final = 1024
"""Boards are two numbers a node: 25 MB at 1,500 nodes."""


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
        self.gpu_free: Ints = np.zeros((count, max(1, widest)), dtype=np.int64)
        """Thousandths free, shape (nodes, GPUs)."""
        for index, node in enumerate(problem.nodes):
            self.gpu_free[index, : len(node.gpus)] = node.gpus
        self.free: Ints = np.array([node.amounts for node in problem.nodes], dtype=np.int64).reshape(
            count, len(problem.resources)
        )
        """Shape (nodes, resources)."""
        self.gpu_left: Ints = self.gpu_free.sum(axis=1)
        self.whole: Ints = (self.gpu_free == MILLI).sum(axis=1)
        """Wholly free GPUs of each node."""
        self.has_gpus = np.array([bool(node.gpus) for node in problem.nodes], dtype=bool)
        self.stranding = Stranding(self.gpu_free, self.free)
        self.version = 0
        self.changed_at: Ints = np.zeros(count, dtype=np.int64)
        """Version at which each node last changed."""
        self._boards: OrderedDict[tuple[Shape, tuple[int, ...]], Board] = OrderedDict()

    def board(self, shape: Shape, groups: tuple[int, ...]) -> Board:
        """Costs of one more replica on the nodes of the groups; recently used boards are kept."""
        key = (shape, groups)
        if (board := self._boards.get(key)) is None:
            nodes = [node for group in groups for node in self.problem.groups[group].nodes]
            board = self._boards[key] = Board(self, shape, np.array(sorted(nodes), dtype=np.int64))
            if len(self._boards) > _BOARDS_KEPT:
                self._boards.popitem(last=False)
        self._boards.move_to_end(key)
        return board

    def place(self, index: int, option: Option, *, jobs: int) -> int:
        """Place up to so many jobs of a class on an option, wherever they fit best; the number placed."""
        job_class = self.problem.classes[index]
        jobs = min(jobs, self.quota.headroom(job_class, option, job_class.minimum))
        if jobs <= 0:
            return 0
        sites = self.take(job_class.shape, option.groups, jobs * job_class.minimum)
        gangs = len(sites) // job_class.minimum
        more = gangs * (job_class.maximum - job_class.minimum)
        sites += self.take(job_class.shape, option.groups, more)
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

    def grow(self, position: int) -> None:
        """Add replicas to an elastic job already placed while places and quota last."""
        placed = self.placed[position]
        job_class = self.problem.classes[placed.job_class]
        wanted = min(
            job_class.maximum - len(placed.sites), self.quota.headroom(job_class, placed.option, replicas=1)
        )
        if more := self.take(job_class.shape, placed.option.groups, wanted):
            self.quota.take(job_class, placed.option, len(more))
            self.placed[position] = replace(placed, sites=(*placed.sites, *more))

    def take(self, shape: Shape, groups: tuple[int, ...], count: int) -> list[Site]:
        """Take up to so many sites for a shape on the nodes of the groups, best fit first."""
        return list(islice(best_fit(self, shape, groups), max(0, count)))

    def take_one(self, shape: Shape, node: int) -> Site:
        """Take a site on a node that has room: the first whole GPUs, or the fullest GPU a share fits."""
        gpus: list[int] = []
        if shape.quota_milli:
            free = self.gpu_free[node].tolist()
            if shape.gpus:
                gpus = [gpu for gpu, milli in enumerate(free) if milli == MILLI][: shape.gpus]
            else:
                gpus = [min((milli, gpu) for gpu, milli in enumerate(free) if milli >= shape.gpu_milli)[1]]
        site = Site(node, tuple(gpus))
        self._charge(shape, site, 1)
        return site

    def _charge(self, shape: Shape, site: Site, replicas: int) -> None:
        """Take a site, or give it back with -1."""
        node = site.node
        for gpu in site.gpus:
            self.gpu_free[node, gpu] -= replicas * (shape.gpu_milli or MILLI)
        if site.gpus:
            self.gpu_left[node] -= replicas * shape.quota_milli
            self.whole[node] = self.gpu_free[node].tolist().count(MILLI)
        for resource, amount in enumerate(shape.amounts):
            if amount:
                self.free[node, resource] -= replicas * amount
        self.version += 1
        self.changed_at[node] = self.version

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
        cpu_milli, memory_mib, disk_mib, *further = shape.amounts
        return Replica(
            node=self.problem.nodes[site.node].name,
            gpus=tuple(GpuShare(index=gpu, milli=shape.gpu_milli or MILLI) for gpu in site.gpus),
            cpu_milli=print_milli(cpu_milli),  # constructors take cores
            memory_mib=memory_mib,
            disk_mib=disk_mib,
            resources={
                name: amount
                for name, amount in zip(self.problem.resources[3:], further, strict=True)
                if amount
            },
        )
