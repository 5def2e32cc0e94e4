"""Disruptions: how running jobs leave their places, and the points of that."""

from __future__ import annotations

from collections import Counter, defaultdict
from dataclasses import dataclass
from enum import StrEnum
from functools import cached_property
from typing import TYPE_CHECKING

from gpuplan.solvers.state.constraints.affinity import NO_AFFINITY, AffinityTraits
from gpuplan.solvers.state.constraints.disruption_budgets import DisruptionBudgets

if TYPE_CHECKING:
    from gpuplan.models.problem.problem import Problem
    from gpuplan.solvers.state.constraints.affinity import AffinityIndex, TraitsOnNodes


class DisruptionKind(StrEnum):
    """How a running job leaves its places."""

    STOP = "stop"
    """Preempted: it waits again."""
    MOVE = "move"
    """Migrated: it runs elsewhere."""
    SHRINK = "shrink"
    """Shrunk: it runs with some of its replicas only."""


@dataclass(frozen=True, slots=True)
class JobDisruption:
    """A running job that does not keep all its places."""

    kind: DisruptionKind
    given_up: frozenset[int]
    """Positions in its `holds`."""


class Disruptions:
    """The disruption of every running job that has one; all others stay as they are."""

    def __init__(self, problem: Problem, affinity: AffinityIndex) -> None:
        self._incumbents = problem.incumbents
        self._affinity = affinity
        self.budgets = DisruptionBudgets(problem)
        self._disruptions: dict[int, JobDisruption] = {}
        self._standing: dict[int, list[TraitsOnNodes]] = defaultdict(list)
        """By running job that matters to others: its affinity attributes and its nodes."""
        by_job = {incumbent.job: index for index, incumbent in enumerate(problem.incumbents)}
        for standing in problem.standing:
            nodes = frozenset(standing.nodes)
            # Counted separately, since a job that shrinks may leave the node and not the domain.
            for each in (
                AffinityTraits(standing.workload),
                AffinityTraits("", standing.carries, standing.avoids),
            ):
                traits = affinity.relevant_traits(each)
                affinity.count(traits, nodes, 1)
                if standing.job in by_job and traits != NO_AFFINITY:
                    self._standing[by_job[standing.job]].append((traits, nodes))
        affinity.begin()
        self._movers: dict[int, Counter[int]] = defaultdict(Counter)
        """By node, how many migrating jobs have left each GPU."""
        self.points = 0

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
        return self.budgets.admits(incumbent, _given_up(self[incumbent]), given_up)

    def set(self, incumbent: int, disruption: JobDisruption | None) -> list[int]:
        """
        Set the disruption of a running job; with None it stays.

        It returns the running jobs of which disruption budgets may now say otherwise than before.
        """
        old = self._disruptions.pop(incumbent, None)
        self.points += self._worth(incumbent, disruption) - self._worth(incumbent, old)
        if disruption is not None:
            self._disruptions[incumbent] = disruption
        self._count_movers(incumbent, old, -1)
        self._count_movers(incumbent, disruption, 1)
        for traits, nodes in self._standing.get(incumbent, ()):
            self._affinity.count(traits, self._left(incumbent, (traits, nodes), old), -1)
            self._affinity.count(traits, self._left(incumbent, (traits, nodes), disruption), 1)
        return self.budgets.count(incumbent, _given_up(old), _given_up(disruption))

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

    def standing(self, incumbent: int) -> list[TraitsOnNodes]:
        """Affinity attributes of a running job that matter to others, with the nodes where they do now."""
        standing = self._standing.get(incumbent, ())
        return [(each[0], self._left(incumbent, each, self[incumbent])) for each in standing]

    def nodes(self, incumbent: int) -> frozenset[int]:
        """Nodes where a running job matters to others now."""
        return frozenset(node for _, nodes in self.standing(incumbent) for node in nodes)

    def _left(
        self, incumbent: int, resident: TraitsOnNodes, disruption: JobDisruption | None
    ) -> frozenset[int]:
        """The nodes that are left to a running job under a disruption."""
        traits, nodes = resident
        if disruption is None:
            return nodes
        if disruption.kind is not DisruptionKind.SHRINK:
            return frozenset()
        holds = list(enumerate(self._incumbents[incumbent].holds))
        kept = {hold.node for position, hold in holds if position not in disruption.given_up}
        if None in kept and not traits.workload:
            return nodes  # it may keep a place in a domain that one of these nodes represents
        return nodes - ({hold.node for _, hold in holds} - kept)

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
