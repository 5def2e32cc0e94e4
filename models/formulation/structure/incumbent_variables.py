"""Columns for the outcome of each running job."""

from __future__ import annotations

from collections import defaultdict
from typing import TYPE_CHECKING

from gpuplan.models.formulation.structure.replica_types import value_tiers
from gpuplan.models.units import MILLI

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from gpuplan.models.eligibility.preemption_order import VictimView
    from gpuplan.models.formulation.structure.eviction_patterns import EvictionPattern, EvictionPatterns
    from gpuplan.models.problem.jobs import Incumbent
    from gpuplan.models.problem.problem import Problem


class IncumbentColumns:
    """Columns of eviction patterns, and of each running job separately."""

    def __init__(self, problem: Problem, departures: EvictionPatterns, new: Callable[[int], int]) -> None:
        """Create the columns; `new` makes a column with an upper bound."""
        incumbents = problem.incumbents
        self._problem = problem
        self._resources = len(problem.resources)
        self.eviction_patterns = departures
        self.out: dict[EvictionPattern, int] = {
            departure: new(1) for leaving in departures.by_node.values() for departure in leaving
        }
        self.stopped_with = self._stopped_with()
        """
        By running job that can only be preempted and is on a single node: columns of the eviction patterns
        that preempt it. These make a column `stop` unnecessary.
        """
        self.stop = {
            v: new(1)
            for v, each in enumerate(incumbents)
            if each.stop_points is not None and v not in self.stopped_with
        }
        self.move = {v: new(1) for v, each in enumerate(incumbents) if each.move is not None}
        shrinkable = {v: each for v, each in enumerate(incumbents) if each.shrinkable}
        self.shrink = {v: new(len(each.holds) - each.min_replicas) for v, each in shrinkable.items()}
        """Number of replicas given up."""
        self.fewer = {
            v: value_tiers(each.shrink_points, 1, new) for v, each in shrinkable.items() if each.scaled
        }
        """The same by parts, where replicas have unequal points."""
        self.resized = {v: new(1) for v in shrinkable}
        self.given = {
            (v, node): new(len(positions))
            for node in sorted(departures.crowded)
            for v, positions in departures.holds[node].items()
            if v in shrinkable
        }
        """Replicas given up on a crowded node."""
        self.sharers: dict[tuple[int, int], tuple[int, ...]] = {
            at: v for node in sorted(departures.crowded) for at, v in _sharers(problem, departures, node)
        }
        """Running jobs that hold all used shares of a shared GPU, by crowded node and GPU index."""
        self.freed_by_giving = {
            (node, gpu)
            for (node, gpu), members in self.sharers.items()
            if len(members) == 1 and not problem.nodes[node].gpus[gpu]
        }
        """GPUs of which one job holds all: `gains` counts them only if it leaves, not if it shrinks."""
        self.freed = {at: new(1) for at in self.sharers}
        """The GPU is wholly free because all of them have left."""
        self.emptied = {
            node: new(1)
            for node in sorted(departures.crowded - departures.pinned_nodes)
            if problem.nodes[node].closing_points is not None
        }
        """All running jobs of a crowded node migrate."""

    def gains(self, node: int) -> Iterator[tuple[int, tuple[list[int], list[int]]]]:
        """
        Gain of a crowded node with each unit of a column: (column, (thousandths by GPU, amounts)).

        A GPU that several jobs share becomes wholly free only after all of them have left.
        """
        width = len(self._problem.nodes[node].gpus)
        for v, positions in self.eviction_patterns.holds[node].items():
            incumbent = self._problem.incumbents[v]
            whole, one = [0] * width, [0] * width
            for position in positions:
                for gpu in incumbent.holds[position].gpus:
                    whole[gpu] += incumbent.shape.gpu_milli or MILLI
            # Which replica is given up is not decided here: the one that frees most is an upper bound.
            largest = max(positions, key=lambda position: len(incumbent.holds[position].gpus))
            for gpu in incumbent.holds[largest].gpus:
                one[gpu] += incumbent.shape.gpu_milli or MILLI
            amounts = list(incumbent.shape.amounts)
            for column in self.leaves(v):
                yield column, (whole, [len(positions) * amount for amount in amounts])
            if (v, node) in self.given:
                yield self.given[v, node], (one, amounts)
        for (at, gpu), column in self.freed.items():
            if at == node:
                yield column, ([MILLI if each == gpu else 0 for each in range(width)], [0] * self._resources)

    def columns_freeing_nothing(self, node: int, view: VictimView) -> Iterator[int]:
        """Columns that free nothing of a crowded node for the classes that a view binds."""
        for v in self.eviction_patterns.holds[node]:
            if view.keeps(self._problem.incumbents[v]):
                yield from (column for column in self.leaves(v) if column != self.move.get(v))
                if (v, node) in self.given:
                    yield self.given[v, node]

    def _stopped_with(self) -> dict[int, list[int]]:
        alone = [_stands_alone(incumbent) for incumbent in self._problem.incumbents]
        found: dict[int, list[int]] = defaultdict(list)
        for departure, column in self.out.items():
            for v in departure.stopped:
                if alone[v]:
                    found[v].append(column)
        return dict(found)

    def leaves(self, v: int, below: VictimView | None = None) -> Sequence[int]:
        """
        Columns of which at most one is 1: each means that a running job leaves all its nodes.

        With `below`, preemption does not count if the job is among its victims.
        """
        moves = [self.move[v]] if v in self.move else []
        if below is not None and below.keeps(self._problem.incumbents[v]):
            return moves
        return [*self.stops(v), *moves]

    def stops(self, v: int) -> Sequence[int]:
        """Columns of which at most one is 1: each means that a running job is preempted."""
        return [self.stop[v]] if v in self.stop else self.stopped_with.get(v, [])


def _stands_alone(incumbent: Incumbent) -> bool:
    only_stopped = incumbent.move is None and incumbent.grow is None and not incumbent.shrinkable
    return only_stopped and len({hold.node for hold in incumbent.holds}) == 1


def _sharers(
    problem: Problem, departures: EvictionPatterns, node: int
) -> list[tuple[tuple[int, int], tuple[int, ...]]]:
    held: dict[int, list[tuple[int, int]]] = {}
    for v, positions in departures.holds[node].items():
        incumbent = problem.incumbents[v]
        for position in positions:
            for gpu in incumbent.holds[position].gpus:
                held.setdefault(gpu, []).append((v, incumbent.shape.gpu_milli))
    free = problem.nodes[node].gpus
    return [
        ((node, gpu), tuple(sorted({v for v, _ in found})))
        for gpu, found in sorted(held.items())
        # A single job that holds the whole GPU in shares frees it by leaving, or by giving up all of them.
        if all(milli for _, milli in found)
        and free[gpu] + sum(milli for _, milli in found) == MILLI
        and (len({v for v, _ in found}) > 1 or free[gpu] or problem.incumbents[found[0][0]].shrinkable)
    ]
