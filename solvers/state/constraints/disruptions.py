"""Disruptions of running jobs, their points, and what they take of each disruption limit."""

from __future__ import annotations

from collections import Counter, defaultdict
from dataclasses import replace
from functools import cached_property
from typing import TYPE_CHECKING

from gpuplan.solvers.state.constraints.constraint import Constraint
from gpuplan.solvers.state.disruption_state import DisruptionKind, JobDisruption

if TYPE_CHECKING:
    from collections.abc import Mapping

    from gpuplan.models.problem.problem import DisruptionLimit, Problem
    from gpuplan.solvers.state.constraints.capacity import NodeCapacities


class DisruptionBudgets(Constraint):
    """Counts the replicas, or jobs, of each group that do not keep their places."""

    def __init__(self, problem: Problem, capacity: NodeCapacities) -> None:
        self._incumbents, self._capacity = problem.incumbents, capacity
        self._limits = problem.disruption_limits
        self._used = [0] * len(self._limits)
        self._of: dict[int, list[int]] = defaultdict(list)
        """Positions of the limits of each running job that has some."""
        for position, limit in enumerate(self._limits):
            for index in limit.members:
                self._of[index].append(position)
        self._largest = [
            max((limit.taken(len(problem.incumbents[index].holds)) for index in limit.members), default=0)
            for limit in self._limits
        ]

    @property
    def any(self) -> bool:
        """True if there is a limit at all."""
        return bool(self._limits)

    def allows(self, index: int, before: JobDisruption | None, after: int) -> bool:
        """True if a running job that has given up some replicas may give up so many in total."""
        if index not in self._of:
            return True
        given = _given_up(before)
        return all(
            self._used[at] + self._limits[at].taken(after) - self._limits[at].taken(given)
            <= self._limits[at].left
            for at in self._of[index]
        )

    def disrupt(self, incumbent: int, before: JobDisruption | None, after: JobDisruption | None) -> None:
        """See `Constraint`; looks again at the jobs that this may have opened or shut out."""
        for at in self._of.get(incumbent, ()):
            limit = self._limits[at]
            free = limit.left - self._used[at]
            self._used[at] += limit.taken(_given_up(after)) - limit.taken(_given_up(before))
            if min(free, limit.left - self._used[at]) < self._largest[at]:
                holds = (hold for each in limit.members for hold in self._incumbents[each].holds)
                for node in {hold.node for hold in holds if hold.node is not None}:
                    self._capacity.touch(node)

    def remaining(self, place: Mapping[int, int], parts: int = 1) -> tuple[DisruptionLimit, ...]:
        """
        The limits of a smaller problem, to which `place` maps running jobs, with what is left for it.

        Of several parts that are solved at the same time each gets an equal share, rounded down.
        """
        found = (
            replace(
                limit,
                left=(limit.left - used) // parts,
                members=tuple(sorted(place[index] for index in limit.members if index in place)),
            )
            for limit, used in zip(self._limits, self._used, strict=True)
        )
        return tuple(limit for limit in found if limit.members)


class Disruptions(Constraint):
    """The disruption of every running job that has one; all others stay as they are."""

    def __init__(self, problem: Problem, capacity: NodeCapacities) -> None:
        self._incumbents = problem.incumbents
        self.budgets = DisruptionBudgets(problem, capacity)
        self._disruptions: dict[int, JobDisruption] = {}
        self._movers: dict[int, Counter[int]] = defaultdict(Counter)
        """By node, how many migrating jobs have left each GPU."""
        self._points = 0

    @property
    def points(self) -> int:
        """See `Constraint`."""
        return self._points

    def __getitem__(self, incumbent: int) -> JobDisruption | None:
        return self._disruptions.get(incumbent)

    @cached_property
    def on_node(self) -> dict[int, list[int]]:
        """Running jobs with places on each node, whatever their disruption."""
        found: dict[int, list[int]] = defaultdict(list)
        for index, incumbent in enumerate(self._incumbents):
            for node in {hold.node for hold in incumbent.holds if hold.node is not None}:
                found[node].append(index)
        return dict(found)

    def having(self, *kinds: DisruptionKind) -> list[int]:
        """Running jobs that leave in one of these ways."""
        return [index for index, disruption in sorted(self._disruptions.items()) if disruption.kind in kinds]

    def within_budgets(self, incumbent: int, given_up: int) -> bool:
        """True if disruption budgets let a running job give up so many replicas in total."""
        return self.budgets.allows(incumbent, self[incumbent], given_up)

    def disrupt(self, incumbent: int, before: JobDisruption | None, after: JobDisruption | None) -> None:
        """See `Constraint`."""
        self._points += self._worth(incumbent, after) - self._worth(incumbent, before)
        if after is None:
            self._disruptions.pop(incumbent, None)
        else:
            self._disruptions[incumbent] = after
        self._count_movers(incumbent, before, -1)
        self._count_movers(incumbent, after, 1)

    def gpus_left_by_moves(self, node: int) -> frozenset[int]:
        """GPUs of a node that migrating jobs have left."""
        if node not in self._movers:
            return frozenset()
        return frozenset(gpu for gpu, count in self._movers[node].items() if count)

    def loss(self, incumbent: int) -> int:
        """Points lost by the disruption of a running job."""
        return -self._worth(incumbent, self[incumbent])

    def _count_movers(self, incumbent: int, disruption: JobDisruption | None, times: int) -> None:
        if disruption is not None and disruption.kind is DisruptionKind.MOVE:
            for hold in self._incumbents[incumbent].holds:
                if hold.node is not None:
                    self._movers[hold.node].update(dict.fromkeys(hold.gpus, times))

    def _worth(self, index: int, disruption: JobDisruption | None) -> int:
        incumbent = self._incumbents[index]
        match disruption and disruption.kind:
            case DisruptionKind.STOP:
                return (incumbent.stop_points or 0) + incumbent.leave_reward
            case DisruptionKind.MOVE:
                return incumbent.leave_points + incumbent.leave_reward
            case DisruptionKind.SHRINK if disruption is not None:
                return incumbent.resize_points + sum(incumbent.shrink_points[: len(disruption.given_up)])
            case _:
                return 0


def _given_up(disruption: JobDisruption | None) -> int:
    """Number of replicas that leave their places."""
    return 0 if disruption is None else len(disruption.given_up)
