"""
Repair of a rounded answer: exchange replicas, and distribute sites among equal gangs.

Replicas that use much CPU or memory are exchanged for a light one, which makes room for another replica.

In placement by size, small replicas come when the nodes with spare cores are full. Then some nodes have free
GPUs and no cores, and others cores and no GPUs.
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import replace
from itertools import combinations
from typing import TYPE_CHECKING, TypeAlias

import numpy as np

from gpuplan.models.problem.jobs import LocalityRule
from gpuplan.solvers.improve.subproblem import is_freely_placed
from gpuplan.solvers.state.assignment import ReplicaSite

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable

    from numpy.typing import NDArray

    from gpuplan.models.cluster import Level
    from gpuplan.models.problem.jobs import Shape
    from gpuplan.solvers.state.ledger import Ledger

    Ints: TypeAlias = NDArray[np.int64]
    Bools: TypeAlias = NDArray[np.bool_]


def movable_classes(ledger: Ledger) -> frozenset[int]:
    """Classes with jobs of one replica of whole GPUs that can be on any node of a group equally well."""
    return frozenset(
        index
        for index, job_class in enumerate(ledger.problem.classes)
        if job_class.maximum == 1
        and job_class.shape.gpus
        and job_class.together == LocalityRule()
        and is_freely_placed(ledger, index)
    )


class SwapRepair:
    """Exchanges between movable jobs that are newly placed on some nodes."""

    def __init__(self, ledger: Ledger, nodes: Ints, classes: Collection[int]) -> None:
        """`classes` are the movable ones; jobs that are placed later do not take part."""
        self._in_vain = 0
        self._ledger, self._nodes = ledger, nodes
        self._tried = np.zeros(len(nodes), dtype=bool)
        """Nodes without a useful exchange."""
        self._numbers = [
            number
            for node in nodes.tolist()
            for number in sorted(ledger.sites.numbers_on[node])
            if ledger.placed[number].job_class in classes
        ]
        placed = [ledger.placed[number] for number in self._numbers]
        of = [ledger.problem.classes[each.job_class] for each in placed]
        amounts = [each.shape.amounts for each in of]
        self._at = np.array([each.sites[0].node for each in placed], dtype=np.int64)
        """Node of each job; the arrays below are in the same order."""
        self._group = np.array([ledger.group_of[node] for node in self._at.tolist()], dtype=np.int64)
        self._gpus = np.array([each.shape.gpus for each in of], dtype=np.int64)
        self._amounts = np.array(amounts, dtype=np.int64).reshape(len(of), len(ledger.problem.resources))
        self._rank = np.array([each.rank for each in of], dtype=np.int64)
        self._claim = np.array([each.claim for each in of], dtype=np.int64)

    def swap_for_room(self, index: int) -> int | None:
        """A node that now has room for a replica of a class; None if no exchange helps."""
        ledger, shape = self._ledger, self._ledger.problem.classes[index].shape
        lacks = np.maximum(0, np.array(shape.amounts, dtype=np.int64) - ledger.capacity.free[self._nodes])
        stuck = (
            self._has_gpus(shape)
            & lacks.any(axis=1)
            & ledger.feasibility.admits(ledger.tenants[index], self._nodes)
        )
        for position in np.flatnonzero(stuck & ~self._tried).tolist():
            if self._in_vain >= ledger.params.rounding.swap_failures:
                break
            node = int(self._nodes[position])
            if any(self._relieve(node, heavy, lacks[position]) for heavy in self._on(node)):
                self._in_vain = 0
                return node
            self._in_vain += 1
            self._tried[position] = True
        return None

    def _has_gpus(self, shape: Shape) -> Bools:
        capacity, share = self._ledger.capacity, shape.gpu_milli
        left: Ints = capacity.gpu_free[self._nodes].max(axis=1) if share else capacity.whole[self._nodes]
        return np.greater_equal(left, share or shape.gpus)

    def _on(self, node: int) -> Iterable[list[int]]:
        """Sets of one or two jobs on a node; only one set of those that take the same."""
        here = np.flatnonzero(self._at == node).tolist()
        found: dict[tuple[int, ...], list[int]] = {}
        for chosen in map(list, (*combinations(here, 1), *combinations(here, 2))):
            found.setdefault(
                (int(self._gpus[chosen].sum()), *self._amounts[chosen].sum(axis=0).tolist()), chosen
            )
        return found.values()

    def _relieve(self, node: int, heavy: list[int], lack: Ints) -> bool:
        """Exchange jobs on a node for one that frees what the node lacks; False if there is none."""
        capacity, least = self._ledger.capacity, self._ledger.preemption_ranks.least
        less = self._amounts[heavy].sum(axis=0) - self._amounts
        fitting = (
            (self._gpus == self._gpus[heavy].sum())
            & (self._group == self._group[heavy[0]])
            & (self._at != node)
            & (less >= lack).all(axis=1)
            & (capacity.free[self._at] >= less).all(axis=1)
            & (self._rank >= least[self._claim, node])
            & (self._rank[heavy, None] >= least[self._claim[heavy]][:, self._at]).all(axis=0)
        )
        if not fitting.any():
            return False
        # Cores are of no use on a node without free GPUs.
        left = np.where(fitting, capacity.whole[self._at], np.iinfo(np.int64).max)
        return self._exchange(node, heavy, int(left.argmin()))

    def _exchange(self, node: int, heavy: list[int], light: int) -> bool:
        ledger, mark, both = self._ledger, self._ledger.undo.mark(), [*heavy, light]
        jobs = [ledger.placed[self._numbers[each]] for each in both]
        there, gpus = jobs[-1].sites[0].node, list(jobs[-1].sites[0].gpus)
        for job in jobs:
            ledger.sites.release(job.job_class, job.sites[0])
        sites = [
            ReplicaSite(there, tuple(gpus.pop(0) for _ in range(int(self._gpus[each])))) for each in heavy
        ]
        sites.append(ReplicaSite(node, tuple(sorted(gpu for job in jobs[:-1] for gpu in job.sites[0].gpus))))
        for each, job, site in zip(both, jobs, sites, strict=True):
            if not ledger.sites.may_take(job.job_class, site):
                ledger.undo.rollback(mark)
                return False
            ledger.sites.take(job.job_class, site)
            ledger.put(self._numbers[each], replace(job, sites=(site,)))
        self._at[both] = [*[there] * len(heavy), node]
        return True


def distribute_sites(
    ledger: Ledger, rules: LocalityRule, sites: list[ReplicaSite], jobs: int, minimum: int, maximum: int
) -> tuple[list[list[ReplicaSite]], list[ReplicaSite]]:
    """
    Sites of each of `jobs` jobs, as many as there are and as each may have; also the sites left over.

    With a spread, the sites of each domain are dealt in turn, so that no job gets more of one domain than it
    must. With a preferred level, one job after the other gets sites in as few domains as possible.
    """
    if jobs == 0:
        return [], sites
    used = min(len(sites), jobs * maximum)
    sizes = [used // jobs + (position < used % jobs) for position in range(jobs)]
    if used < jobs * minimum:
        return [], sites
    if rules.spread is not None:
        return _distribute_spread(ledger, rules.spread, sites, sizes)
    if rules.preferred is not None:
        return _distribute_compact(ledger, rules.preferred, sites, sizes)
    hands, start = [], 0
    for size in sizes:
        hands.append(sites[start : start + size])
        start += size
    return hands, sites[used:]


def _distribute_spread(
    ledger: Ledger, level: Level, sites: list[ReplicaSite], sizes: list[int]
) -> tuple[list[list[ReplicaSite]], list[ReplicaSite]]:
    """
    Deal sites domain by domain, each to the jobs in turn.

    Surplus sites are taken from the fullest domains, which are closest to the limit.
    """
    by_domain = _by_domain(ledger, level, sites)
    over = [max(by_domain.values(), key=len).pop() for _ in range(len(sites) - sum(sizes))]
    hands: list[list[ReplicaSite]] = [[] for _ in sizes]
    position = 0
    for members in by_domain.values():
        for site in members:
            while len(hands[position % len(sizes)]) >= sizes[position % len(sizes)]:
                position += 1
            hands[position % len(sizes)].append(site)
            position += 1
    return hands, over


def _distribute_compact(
    ledger: Ledger, level: Level, sites: list[ReplicaSite], sizes: list[int]
) -> tuple[list[list[ReplicaSite]], list[ReplicaSite]]:
    """One job after the other: the tightest domain with enough sites, or else the fullest ones."""
    by_domain = _by_domain(ledger, level, sites)
    hands = []
    for size in sizes:
        hand: list[ReplicaSite] = []
        while len(hand) < size:
            members = [each for each in by_domain.values() if each]
            missing = size - len(hand)
            enough = [each for each in members if len(each) >= missing]
            domain = min(enough, key=len) if enough else max(members, key=len)
            hand += domain[:missing]
            del domain[:missing]
        hands.append(hand)
    return hands, [site for members in by_domain.values() for site in members]


def _by_domain(ledger: Ledger, level: Level, sites: list[ReplicaSite]) -> dict[int, list[ReplicaSite]]:
    of = ledger.domains.of(level)
    found: dict[int, list[ReplicaSite]] = defaultdict(list)
    for site in sites:
        found[int(of[site.node])].append(site)
    return found
