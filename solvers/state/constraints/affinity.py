"""
Anti-affinity and interference: which jobs share domains and nodes.

Two rules look at pairs of different jobs: anti-affinity, which is hard, and interference, which has a price.
Jobs are counted once per domain, however many replicas they have there.
"""

from __future__ import annotations

from collections import defaultdict
from typing import TYPE_CHECKING, TypeAlias

import numpy as np

from gpuplan.models.cluster import Level
from gpuplan.models.plan.reason import ReasonCode
from gpuplan.models.problem.jobs import ClassRole
from gpuplan.solvers.state.constraints.constraint import Constraint, Shortage
from gpuplan.solvers.state.disruption_state import DisruptionKind
from gpuplan.solvers.state.placement_profile import NO_AFFINITY, AffinityTraits

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from numpy.typing import NDArray

    from gpuplan.models.problem.jobs import Option
    from gpuplan.models.problem.problem import Problem
    from gpuplan.solvers.state.assignment import ReplicaSite
    from gpuplan.solvers.state.constraints.capacity import NodeCapacities
    from gpuplan.solvers.state.constraints.constraint import Places
    from gpuplan.solvers.state.constraints.disruptions import Disruptions
    from gpuplan.solvers.state.disruption_state import JobDisruption
    from gpuplan.solvers.state.placement_profile import PlacementProfile
    from gpuplan.solvers.state.topology import Topology

    Ints: TypeAlias = NDArray[np.int64]
    Bools: TypeAlias = NDArray[np.bool_]


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


class AffinityIndex(Constraint):
    """Counts of jobs by tag and domain, and by workload class and node."""

    def __init__(
        self, problem: Problem, domains: Topology, capacity: NodeCapacities, disruptions: Disruptions
    ) -> None:
        self._problem, self._domains = problem, domains
        self._capacity, self._disruptions = capacity, disruptions
        self._count_nodes = len(problem.nodes)
        avoided = {pair for each in problem.classes for pair in each.avoids}
        self._pairs = sorted(avoided | {pair for each in problem.standing for pair in each.avoids})
        self._all = _TagCounts(self._pairs, domains)
        self._newcomers = _TagCounts(self._pairs, domains)
        self._meetings = [
            _InterferencePair((one, other), points, self._count_nodes)
            for one, other, points in problem.charges.interference
            if points
        ]
        workloads = {workload for meeting in self._meetings for workload in meeting.pair}
        self._present: dict[str, Ints] = {
            workload: np.zeros(self._count_nodes, dtype=np.int64) for workload in sorted(workloads)
        }
        self.traits = [
            self.relevant_traits(AffinityTraits(each.workload, each.carries, each.avoids))
            for each in problem.classes
        ]
        """By class."""
        self._points = 0
        self._standing: dict[int, list[TraitsOnNodes]] = defaultdict(list)
        """By running job that matters to others: its affinity attributes and its nodes."""
        self._begin()

    @property
    def points(self) -> int:
        """Points of interference that is new; never positive."""
        return self._points

    @property
    def is_idle(self) -> bool:
        """True if no job matters to any other."""
        return not self._pairs and not self._meetings

    def relevant_traits(self, traits: AffinityTraits) -> AffinityTraits:
        """The attributes of a job that matter to other jobs; jobs without any then compare equal."""
        workload = traits.workload if traits.workload in self._present else ""
        return AffinityTraits(workload, traits.carries, traits.avoids)

    def _begin(self) -> None:
        """Count all jobs that run, as present from the start."""
        by_job = {incumbent.job: index for index, incumbent in enumerate(self._problem.incumbents)}
        for standing in self._problem.standing:
            nodes = frozenset(standing.nodes)
            # Counted separately, since a job that shrinks may leave the node and not the domain.
            for each in (
                AffinityTraits(standing.workload),
                AffinityTraits("", standing.carries, standing.avoids),
            ):
                traits = self.relevant_traits(each)
                self._count(traits, nodes, 1)
                if standing.job in by_job and traits != NO_AFFINITY:
                    self._standing[by_job[standing.job]].append((traits, nodes))
        everywhere = np.arange(self._count_nodes)
        for meeting in self._meetings:
            meeting.before = meeting.now(self._present, everywhere)
        self._points = 0

    def count_job(
        self, index: int, option: Option, sites: Sequence[ReplicaSite], slot: int, times: int
    ) -> None:
        """See `Constraint`."""
        traits = self._before_start(index) if slot else self.traits[index]
        if traits == NO_AFFINITY:
            return
        nodes, job_class = frozenset(site.node for site in sites), self._problem.classes[index]
        self._newcomers.count(traits, np.array(sorted(nodes), dtype=np.int64), times)
        if job_class.role is ClassRole.GROW and job_class.incumbent is not None:
            # It is counted already on its current nodes.
            nodes -= {node for _, there in self.standing(job_class.incumbent) for node in there}
        self._count(traits, nodes, times)
        self._touch([(traits, nodes)])

    def _before_start(self, index: int) -> AffinityTraits:
        """Affinity attributes of a job before it runs, without its workload: interference is priced later."""
        traits = self.traits[index]
        return AffinityTraits("", traits.carries, traits.avoids)

    def disrupt(self, incumbent: int, before: JobDisruption | None, after: JobDisruption | None) -> None:
        """See `Constraint`."""
        for each in self._standing.get(incumbent, ()):
            staying, left = self._left(incumbent, each, before), self._left(incumbent, each, after)
            self._count(each[0], staying, -1)
            self._count(each[0], left, 1)
            self._touch([(each[0], staying), (each[0], left)])

    def standing(self, incumbent: int) -> list[TraitsOnNodes]:
        """Affinity attributes of a running job that matter to others, with the nodes where they do now."""
        disruption = self._disruptions[incumbent]
        standing = self._standing.get(incumbent, ())
        return [(each[0], self._left(incumbent, each, disruption)) for each in standing]

    def _left(
        self, incumbent: int, resident: TraitsOnNodes, disruption: JobDisruption | None
    ) -> frozenset[int]:
        """The nodes that are left to a running job under a disruption."""
        traits, nodes = resident
        if disruption is None:
            return nodes
        if disruption.kind is not DisruptionKind.SHRINK:
            return frozenset()
        holds = list(enumerate(self._problem.incumbents[incumbent].holds))
        kept = {hold.node for position, hold in holds if position not in disruption.given_up}
        if None in kept and not traits.workload:
            return nodes  # it may keep a place in a domain that one of these nodes represents
        return nodes - ({hold.node for _, hold in holds} - kept)

    def _touch(self, residents: Iterable[TraitsOnNodes]) -> None:
        """Look again at the nodes to which jobs on some nodes make a difference."""
        for traits, nodes in residents:
            for concerned in self._affected_nodes(traits, nodes):
                self._capacity.touch(concerned)

    def _count(self, traits: AffinityTraits, nodes: frozenset[int], times: int) -> None:
        """Count a job on nodes; `times` -1 removes it."""
        if not nodes:
            return
        where = np.array(sorted(nodes), dtype=np.int64)
        self._all.count(traits, where, times)
        if traits.workload in self._present:
            concerned = [meeting for meeting in self._meetings if traits.workload in meeting.pair]
            self._points += sum(self._paid(meeting, where) for meeting in concerned)
            self._present[traits.workload][where] += times
            self._points -= sum(self._paid(meeting, where) for meeting in concerned)

    def _paid(self, meeting: _InterferencePair, nodes: Ints) -> int:
        met = meeting.now(self._present, nodes) & ~meeting.before[nodes]
        return meeting.points * int(np.count_nonzero(met))

    def _affected_nodes(self, traits: AffinityTraits, nodes: Iterable[int]) -> list[Ints]:
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

    def admits(self, tenant: PlacementProfile, nodes: Ints) -> Bools | None:
        """See `Constraint`; a growing job, which is counted already, does not conflict with itself."""
        own = [] if tenant.own is None else self.standing(tenant.own)
        return self._open(tenant.affinity, own, nodes)

    def admits_later(self, index: int, nodes: Ints) -> Bools | None:
        """See `Constraint`."""
        return self._open(self._before_start(index), [], nodes)

    def _open(self, traits: AffinityTraits, own: Iterable[TraitsOnNodes], nodes: Ints) -> Bools | None:
        if not traits.carries and not traits.avoids:
            return None
        counted = [(each, np.array(sorted(there), dtype=np.int64)) for each, there in own]
        return ~self._all.conflicting_nodes(traits, counted)[nodes]

    def shortage(self, places: Places) -> Shortage | None:
        """See `Constraint`: there is room only beside jobs that it must not meet."""
        open_to = self.admits(places.tenant, places.nodes)
        if open_to is None:
            return None
        barred = int(np.count_nonzero(~open_to & (places.room > 0)))
        if places.limit(np.where(open_to, places.replicas, 0)):
            return None
        return Shortage(ReasonCode.NOT_CHOSEN, {"nodes": barred})

    def may_return(self, incumbent: int) -> bool:
        """True if no new job conflicts with a restored running job; jobs that ran before do not count."""
        for traits, nodes in self.standing(incumbent):
            if nodes and (traits.carries or traits.avoids):
                barred = self._newcomers.conflicting_nodes(traits, [])
                if barred[sorted(nodes)].any():
                    return False
        return True

    def price(self, tenant: PlacementProfile, nodes: Ints) -> Ints | None:
        """See `Constraint`."""
        traits = tenant.affinity
        if traits.workload not in self._present:
            return None
        everywhere = np.arange(self._count_nodes)
        price: Ints = np.zeros(self._count_nodes, dtype=np.int64)
        for meeting in self._meetings:
            if traits.workload in meeting.pair:
                one, other = meeting.pair
                partner = one if traits.workload == other else other
                new = (self._present[partner] > 0) & ~meeting.before & ~meeting.now(self._present, everywhere)
                price -= meeting.points * new
        return price[nodes]
