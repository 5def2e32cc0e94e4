"""
Anti-affinity and interference: which jobs share domains and nodes.

Two rules look at pairs of different jobs: anti-affinity, which is hard, and interference, which has a price.
Jobs are counted once per domain, however many replicas they have there.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, TypeAlias

import numpy as np

from gpuplan.models.cluster import Level

if TYPE_CHECKING:
    from collections.abc import Iterable

    from numpy.typing import NDArray

    from gpuplan.models.problem.problem import Problem
    from gpuplan.solvers.state.topology import Topology

    Ints: TypeAlias = NDArray[np.int64]
    Bools: TypeAlias = NDArray[np.bool_]


@dataclass(frozen=True, slots=True)
class AffinityTraits:
    """Attributes of a job that matter to other jobs on the same node or in the same domain."""

    workload: str = ""
    carries: tuple[int, ...] = ()
    avoids: tuple[tuple[int, Level], ...] = ()


NO_AFFINITY: Final = AffinityTraits()

TraitsOnNodes: TypeAlias = tuple[AffinityTraits, frozenset[int]]
"""Attributes of a job, and the nodes that it is on."""


class _InterferencePair:
    """A pair of workload classes with a price for sharing a node."""

    def __init__(self, pair: tuple[str, str], points: int, nodes: int) -> None:
        self.pair = pair
        self.points = points
        self.before: Bools = np.zeros(nodes, dtype=bool)
        """Nodes that they shared from the start."""

    def now(self, present: dict[str, Ints], nodes: Ints) -> Bools:
        """True for each of the nodes that they share."""
        one, other = self.pair
        if one == other:
            return present[one][nodes] > 1
        return (present[one][nodes] > 0) & (present[other][nodes] > 0)


class _TagCounts:
    """Jobs that carry and that avoid tags, by domain."""

    def __init__(self, pairs: list[tuple[int, Level]], domains: Topology) -> None:
        self._pairs = pairs
        self._domains = domains
        self.carriers: list[Ints] = [np.zeros(domains.count(level), dtype=np.int64) for _, level in pairs]
        self.avoiders: list[Ints] = [np.zeros(domains.count(level), dtype=np.int64) for _, level in pairs]

    def count(self, traits: AffinityTraits, nodes: Ints, times: int) -> None:
        for index, (tag, level) in enumerate(self._pairs):
            touched = np.unique(self._domains.of(level)[nodes])
            if tag in traits.carries:
                self.carriers[index][touched] += times
            if (tag, level) in traits.avoids:
                self.avoiders[index][touched] += times

    def conflicting_nodes(self, traits: AffinityTraits, own: list[tuple[AffinityTraits, Ints]]) -> Bools:
        """Nodes on which another job avoids this one, or is avoided by it."""
        barred: Bools = np.zeros(len(self._domains.of(Level.NODE)), dtype=bool)
        for index, (tag, level) in enumerate(self._pairs):
            of = self._domains.of(level)
            if (tag, level) in traits.avoids:
                carriers = self.carriers[index].copy()
                for each, nodes in own:
                    carriers[np.unique(of[nodes])] -= tag in each.carries
                barred |= (carriers > 0)[of]
            if tag in traits.carries:
                avoiders = self.avoiders[index].copy()
                for each, nodes in own:
                    avoiders[np.unique(of[nodes])] -= (tag, level) in each.avoids
                barred |= (avoiders > 0)[of]
        return barred


class AffinityIndex:
    """Counts of jobs by tag and domain, and by workload class and node."""

    def __init__(self, problem: Problem, domains: Topology) -> None:
        self._domains = domains
        self._count = len(problem.nodes)
        avoided = {pair for each in problem.classes for pair in each.avoids}
        self._pairs = sorted(avoided | {pair for each in problem.standing for pair in each.avoids})
        self._all = _TagCounts(self._pairs, domains)
        self._newcomers = _TagCounts(self._pairs, domains)
        self._meetings = [
            _InterferencePair((one, other), points, self._count)
            for one, other, points in problem.charges.interference
            if points
        ]
        workloads = {workload for meeting in self._meetings for workload in meeting.pair}
        self._present: dict[str, Ints] = {
            workload: np.zeros(self._count, dtype=np.int64) for workload in sorted(workloads)
        }
        self.points = 0
        """Points of interference that is new; never positive."""

    def relevant_traits(self, traits: AffinityTraits) -> AffinityTraits:
        """The attributes of a job that matter to other jobs; jobs without any then compare equal."""
        workload = traits.workload if traits.workload in self._present else ""
        return AffinityTraits(workload, traits.carries, traits.avoids)

    def begin(self) -> None:
        """Take all jobs counted so far as present from the start."""
        everywhere = np.arange(self._count)
        for meeting in self._meetings:
            meeting.before = meeting.now(self._present, everywhere)
        self.points = 0

    def count(self, traits: AffinityTraits, nodes: frozenset[int], times: int) -> None:
        """Count a job on nodes; `times` -1 removes it."""
        if not nodes:
            return
        where = np.array(sorted(nodes), dtype=np.int64)
        self._all.count(traits, where, times)
        if traits.workload in self._present:
            concerned = [meeting for meeting in self._meetings if traits.workload in meeting.pair]
            self.points += sum(self._paid(meeting, where) for meeting in concerned)
            self._present[traits.workload][where] += times
            self.points -= sum(self._paid(meeting, where) for meeting in concerned)

    def count_new(self, traits: AffinityTraits, nodes: frozenset[int], times: int) -> None:
        """Count new replicas of a job, in addition to `count`; `times` -1 removes them."""
        self._newcomers.count(traits, np.array(sorted(nodes), dtype=np.int64), times)

    def _paid(self, meeting: _InterferencePair, nodes: Ints) -> int:
        met = meeting.now(self._present, nodes) & ~meeting.before[nodes]
        return meeting.points * int(np.count_nonzero(met))

    def affected_nodes(self, traits: AffinityTraits, nodes: Iterable[int]) -> list[Ints]:
        """Nodes to which a job on these nodes makes a difference."""
        where = np.array(sorted(nodes), dtype=np.int64)
        levels = {
            level for tag, level in self._pairs if tag in traits.carries or (tag, level) in traits.avoids
        }
        found = [
            self._domains.nodes(level, int(domain))
            for level in sorted(levels)
            for domain in np.unique(self._domains.of(level)[where])
        ]
        return [*found, where] if traits.workload in self._present else found

    def conflicting_nodes(self, traits: AffinityTraits, own: Iterable[TraitsOnNodes]) -> Bools | None:
        """Nodes that a job, counted as `own` so far, may not use; None if no rule concerns it."""
        if not traits.carries and not traits.avoids:
            return None
        return self._all.conflicting_nodes(
            traits, [(each, np.array(sorted(nodes), dtype=np.int64)) for each, nodes in own]
        )

    def may_return(self, residents: Iterable[TraitsOnNodes]) -> bool:
        """True if no new job conflicts with a restored running job; jobs that ran before do not count."""
        for traits, nodes in residents:
            if nodes and (traits.carries or traits.avoids):
                barred = self._newcomers.conflicting_nodes(traits, [])
                if barred[sorted(nodes)].any():
                    return False
        return True

    def price(self, traits: AffinityTraits) -> Ints | None:
        """Points, never positive, of one more job on each node; None if none of it has a price."""
        if traits.workload not in self._present:
            return None
        everywhere = np.arange(self._count)
        price: Ints = np.zeros(self._count, dtype=np.int64)
        for meeting in self._meetings:
            if traits.workload in meeting.pair:
                one, other = meeting.pair
                partner = one if traits.workload == other else other
                new = (self._present[partner] > 0) & ~meeting.before & ~meeting.now(self._present, everywhere)
                price -= meeting.points * new
        return price
