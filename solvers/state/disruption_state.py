"""Fates: what becomes of the incumbents, and the points of that."""

from __future__ import annotations

from collections import Counter, defaultdict
from dataclasses import dataclass
from enum import StrEnum
from functools import cached_property
from typing import TYPE_CHECKING

from gpuplan.solvers.state.constraints.affinity import NOBODY_MINDS, Manners

if TYPE_CHECKING:
    from gpuplan.models.problem.problem import Problem
    from gpuplan.solvers.state.constraints.affinity import Company, Resident


class Leave(StrEnum):
    """How an incumbent leaves its places."""

    STOP = "stop"
    """To wait again."""
    MOVE = "move"
    """To run elsewhere."""
    SHRINK = "shrink"
    """With some of its replicas only."""


@dataclass(frozen=True, slots=True)
class Fate:
    """An incumbent that does not keep all its places."""

    leave: Leave
    given_up: frozenset[int]
    """Positions in its `holds`."""


class Fates:
    """The fate of every incumbent that has one; all others stay as they are."""

    def __init__(self, problem: Problem, company: Company) -> None:
        self._incumbents = problem.incumbents
        self._company = company
        self._fates: dict[int, Fate] = {}
        self._standing: dict[int, list[Resident]] = defaultdict(list)
        """Of each incumbent that others mind: how, and on which nodes."""
        by_job = {incumbent.job: index for index, incumbent in enumerate(problem.incumbents)}
        for standing in problem.standing:
            nodes = frozenset(standing.nodes)
            # Each for itself, since a job that shrinks may leave the node and not the domain.
            for each in (Manners(standing.workload), Manners("", standing.carries, standing.avoids)):
                manners = company.minds(each)
                company.count(manners, nodes, 1)
                if standing.job in by_job and manners != NOBODY_MINDS:
                    self._standing[by_job[standing.job]].append((manners, nodes))
        company.begin()
        self._movers: dict[int, Counter[int]] = defaultdict(Counter)
        """By node, how many have left each GPU to be moved."""
        self.points = 0

    def __getitem__(self, incumbent: int) -> Fate | None:
        return self._fates.get(incumbent)

    @cached_property
    def on_node(self) -> dict[int, list[int]]:
        """Incumbents with places on each node, whatever becomes of them."""
        found: dict[int, list[int]] = defaultdict(list)
        for index, incumbent in enumerate(self._incumbents):
            for node in {hold.node for hold in incumbent.holds if hold.node is not None}:
                found[node].append(index)
        return dict(found)

    def having(self, *leaves: Leave) -> list[int]:
        """Incumbents that leave in one of these ways."""
        return [index for index, fate in sorted(self._fates.items()) if fate.leave in leaves]

    def set(self, incumbent: int, fate: Fate | None) -> None:
        """Give an incumbent another fate; None: it stays."""
        old = self._fates.pop(incumbent, None)
        self.points += self._worth(incumbent, fate) - self._worth(incumbent, old)
        if fate is not None:
            self._fates[incumbent] = fate
        self._count_movers(incumbent, old, -1)
        self._count_movers(incumbent, fate, 1)
        for manners, nodes in self._standing.get(incumbent, ()):
            self._company.count(manners, self._left(incumbent, (manners, nodes), old), -1)
            self._company.count(manners, self._left(incumbent, (manners, nodes), fate), 1)

    def left_by_movers(self, node: int) -> frozenset[int]:
        """GPUs of a node that jobs have left to be moved."""
        if node not in self._movers:
            return frozenset()
        return frozenset(gpu for gpu, count in self._movers[node].items() if count)

    def loss(self, incumbent: int) -> int:
        """Points lost by the incumbent's fate."""
        return -self._worth(incumbent, self[incumbent])

    def _count_movers(self, incumbent: int, fate: Fate | None, times: int) -> None:
        if fate is not None and fate.leave is Leave.MOVE:
            for hold in self._incumbents[incumbent].holds:
                if hold.node is not None:
                    self._movers[hold.node].update(dict.fromkeys(hold.gpus, times))

    def standing(self, incumbent: int) -> list[Resident]:
        """How others mind an incumbent, and on which nodes, now."""
        standing = self._standing.get(incumbent, ())
        return [(each[0], self._left(incumbent, each, self[incumbent])) for each in standing]

    def nodes(self, incumbent: int) -> frozenset[int]:
        """Nodes on which others mind an incumbent now."""
        return frozenset(node for _, nodes in self.standing(incumbent) for node in nodes)

    def _left(self, incumbent: int, resident: Resident, fate: Fate | None) -> frozenset[int]:
        """Those of its nodes that are left to it."""
        manners, nodes = resident
        if fate is None:
            return nodes
        if fate.leave is not Leave.SHRINK:
            return frozenset()
        holds = list(enumerate(self._incumbents[incumbent].holds))
        kept = {hold.node for position, hold in holds if position not in fate.given_up}
        if None in kept and not manners.workload:
            return nodes  # it may keep a place in a domain for which one of these nodes stands
        return nodes - ({hold.node for _, hold in holds} - kept)

    def _worth(self, index: int, fate: Fate | None) -> int:
        incumbent = self._incumbents[index]
        match fate and fate.leave:
            case Leave.STOP:
                return (incumbent.stop_points or 0) + incumbent.on_leaving
            case Leave.MOVE:
                return incumbent.leave_points + incumbent.on_leaving
            case Leave.SHRINK if fate is not None:
                return incumbent.resize_points + sum(incumbent.shrink_points[: len(fate.given_up)])
            case _:
                return 0
