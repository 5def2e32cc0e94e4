"""
Power under the caps of racks: in every slot, beside running jobs as they run now, and beside victims.

Caps of single nodes are countable resources of the nodes.
"""

from __future__ import annotations

from collections import defaultdict
from typing import TYPE_CHECKING, TypeAlias

import numpy as np

from gpuplan.models.plan.reason import ReasonCode
from gpuplan.models.problem.jobs import ClassRole
from gpuplan.models.units import MILLI
from gpuplan.solvers.state.constraints.constraint import Constraint, SharedLimit, Shortage

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping, Sequence

    from numpy.typing import NDArray

    from gpuplan.models.eligibility.preemption_order import ClaimantOrIncumbent
    from gpuplan.models.problem.jobs import Shape
    from gpuplan.models.problem.problem import Problem
    from gpuplan.solvers.state.assignment import ReplicaSite, Span
    from gpuplan.solvers.state.constraints.capacity import NodeCapacities
    from gpuplan.solvers.state.constraints.constraint import Places
    from gpuplan.solvers.state.constraints.preemption_ranks import VictimSets
    from gpuplan.solvers.state.placement_profile import PlacementProfile
    from gpuplan.solvers.state.resource_timeline import ResourceTimeline

    Ints: TypeAlias = NDArray[np.int64]
    Bools: TypeAlias = NDArray[np.bool_]


class PowerCaps(Constraint):
    """Thousandths of watts that each cap leaves."""

    def __init__(
        self,
        problem: Problem,
        capacity: NodeCapacities,
        timelines: Sequence[ResourceTimeline],
        victims: VictimSets,
        numbers_on: Mapping[int, set[int]],
    ) -> None:
        """`timelines` are those of later slots; `numbers_on` has the new jobs on each node."""
        self._problem, self._capacity, self._victims = problem, capacity, victims
        self._timelines, self._numbers_on = timelines, numbers_on
        self._nodes = tuple(np.array(cap.nodes, dtype=np.int64) for cap in problem.power_caps)
        left = np.array([cap.left for cap in problem.power_caps], dtype=np.int64)
        self._beside: Ints = np.repeat(left[:, None], len(victims), axis=1)
        """What would be left if the victims of a set had stayed, shape (caps, sets)."""
        self._left: Ints = np.repeat(left[None, :], problem.slots, axis=0)
        """Shape (slots, caps)."""
        self._caps: dict[int, list[tuple[int, int]]] = defaultdict(list)
        """(cap, watts of a GPU) by node."""
        for index, cap in enumerate(problem.power_caps):
            for slot, watts_milli, _ in cap.releases:
                self._left[slot:, index] += watts_milli
            for node, watts in zip(cap.nodes, cap.watts, strict=True):
                self._caps[node].append((index, watts))
        self._undisturbed = self._left.copy()
        """The same beside running jobs as they run now: later starts of waiting jobs must fit there too."""

    def admits(self, tenant: PlacementProfile, nodes: Ints) -> Bools | None:
        """See `Constraint`; later slots are looked at only if anything is reserved there."""
        if not (milli := tenant.shape.quota_milli):
            return None
        ends = np.ones(len(nodes), dtype=np.int64)
        if self._has_reservations:
            ends = self._timelines[0].ends(tenant)[nodes]
        powered = (
            self._suffices(milli, node, (0, end)) and self._suffices_beside(milli, node, tenant)
            for node, end in zip(nodes.tolist(), ends.tolist(), strict=True)
        )
        return np.fromiter(powered, dtype=bool, count=len(nodes))

    def room(self, shape: Shape, nodes: Ints, most: int) -> Ints | None:
        """See `Constraint`; nodes under one cap are counted each by itself."""
        if not (milli := shape.quota_milli):
            return None
        room: Ints = np.full(len(nodes), most, dtype=np.int64)
        for position, node in enumerate(nodes.tolist()):
            for cap, watts in self._caps.get(node, ()):
                if watts:
                    room[position] = max(0, min(room[position], self._left[0, cap] // (watts * milli)))
        return room

    def shortage(self, places: Places) -> Shortage | None:
        """See `Constraint`."""
        milli, every = places.job_class.shape.quota_milli, np.arange(len(places.nodes))
        for cap, nodes in enumerate(self._nodes if milli else ()):
            watts = np.zeros(len(self._problem.nodes), dtype=np.int64)
            watts[nodes] = self._problem.power_caps[cap].watts
            costs = watts[places.nodes] * milli
            places.shared.append(SharedLimit(0 * every, costs, (int(self._left[0, cap]),)))
        if places.fits:
            return None
        found = places.count()
        free = sum(max(0, each) for each in self._left[0].tolist()) // MILLI
        code = ReasonCode.FRAGMENTED if found else ReasonCode.RESOURCES
        numbers = {"replicas": places.replicas, "found": found, "free_watts": free}
        return Shortage(code, {"resource": "power", **numbers})

    def fits(self, index: int, site: ReplicaSite, span: Span) -> bool:
        """See `Constraint`."""
        job_class = self._problem.classes[index]
        milli = job_class.shape.quota_milli
        if not self._suffices(milli, site.node, span):
            return False
        if span[0] == 0:
            return self._suffices_beside(milli, site.node, job_class)
        if job_class.role is not ClassRole.START:
            return True
        return self._suffices(milli, site.node, span, self._undisturbed)

    def fits_back(self, incumbent: int, site: ReplicaSite) -> bool:
        """See `Constraint`; jobs that draw more than a cap allows may continue while no new job is there."""
        one = self._problem.incumbents[incumbent]
        milli, node = one.shape.quota_milli, site.node
        if self._has_reservations and not self._suffices(milli, node, (1, one.until)):
            return False
        under = (each for cap, _ in self._caps.get(node, ()) for each in self._problem.power_caps[cap].nodes)
        if not any(self._numbers_on.get(each) for each in under):
            return True
        return self._suffices(milli, node, (0, 1)) and self._suffices_beside(milli, node, one)

    def may_give_up(self, incumbent: int, positions: Collection[int]) -> bool:
        """See `Constraint`."""
        one = self._problem.incumbents[incumbent]
        columns = self._victims.idle_columns_with(one)
        nodes = {hold.node for hold in one.holds if hold.node is not None}
        caps = {cap for node in nodes for cap, _ in self._caps.get(node, ())} if len(columns) else ()
        least = {cap: min(0, self._problem.power_caps[cap].left) for cap in caps}
        return all((self._beside[cap, columns] >= least[cap]).all() for cap in caps)

    def take(self, index: int, site: ReplicaSite, span: Span, times: int) -> None:
        """See `Constraint`."""
        job_class = self._problem.classes[index]
        milli = times * job_class.shape.quota_milli
        self._draw(self._left, milli, site.node, span)
        if span[0] == 0:
            self._draw_beside(milli, site.node, job_class)
        elif job_class.role is ClassRole.START:
            self._draw(self._undisturbed, milli, site.node, span)

    def leave(self, incumbent: int, site: ReplicaSite, times: int) -> None:
        """See `Constraint`."""
        one = self._problem.incumbents[incumbent]
        self._draw(self._left, -times * one.shape.quota_milli, site.node, (0, max(1, one.until)))

    def give_up(self, incumbent: int, positions: Collection[int], times: int, moves: bool) -> None:
        """See `Constraint`."""
        one = self._problem.incumbents[incumbent]
        for position in positions:
            if (node := one.holds[position].node) is not None:
                self._draw_beside(
                    -times * one.shape.quota_milli, node, self._victims.follower(incumbent, moves=moves)
                )

    @property
    def _has_reservations(self) -> bool:
        return bool(self._timelines) and self._timelines[0].reservations > 0

    def _suffices(self, milli: int, node: int, span: Span, left: Ints | None = None) -> bool:
        """True if thousandths of GPUs on a node stay within all caps over a span."""
        left, (first, until) = self._left if left is None else left, span
        return milli == 0 or all(
            bool((left[first:until, cap] >= milli * watts).all()) for cap, watts in self._caps.get(node, ())
        )

    def _suffices_beside(self, milli: int, node: int, comer: ClaimantOrIncumbent) -> bool:
        """True if they do for a class or a returning job beside victims that it may not replace."""
        caps = self._caps.get(node, ()) if milli and len(self._victims) else ()
        if not caps:
            return True
        binding = self._victims.binding(comer)
        return all((self._beside[cap, binding] >= milli * watts).all() for cap, watts in caps)

    def _draw(self, left: Ints, milli: int, node: int, span: Span) -> None:
        for cap, watts in self._caps.get(node, ()):
            left[span[0] : span[1], cap] -= milli * watts
            self._capacity.touch(self._nodes[cap])
            for timeline in self._timelines:
                timeline.touch(self._nodes[cap])

    def _draw_beside(self, milli: int, node: int, comer: ClaimantOrIncumbent) -> None:
        caps = self._caps.get(node, ()) if len(self._victims) else ()
        for cap, watts in caps:
            self._beside[cap, self._victims.columns_binding(comer)] -= milli * watts
