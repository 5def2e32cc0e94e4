"""
Eviction pattern: one way in which running jobs leave a node together, and what it frees.

Each pattern is a column of its own because floors do not add up: two jobs that each free four GPUs free one
block of eight together, and none alone. Equal jobs on a node differ only in the cost of eviction. The
cheapest leave first, so only their number is a choice. A node with too many patterns is crowded, or with
several replicas of a shrinkable job on shares, MIG instances or unequal numbers of GPUs: there each
running job counts separately, rounded up, which is a relaxation.
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass
from itertools import product
from math import prod
from typing import TYPE_CHECKING, Any

from gpuplan.models.formulation.params import FormulationParams
from gpuplan.models.units import MILLI

if TYPE_CHECKING:
    from collections.abc import Container, Iterator

    from gpuplan.models.eligibility.preemption_order import VictimView
    from gpuplan.models.problem.jobs import Incumbent
    from gpuplan.models.problem.problem import Problem


@dataclass(frozen=True, slots=True)
class EvictionPattern:
    """Running jobs that leave one node together, wholly or in part."""

    node: int
    stopped: tuple[int, ...] = ()
    """Running jobs that are preempted: they leave all their nodes and wait again."""
    moved: tuple[int, ...] = ()
    """Running jobs that migrate: they leave all their nodes and are placed anew."""
    shrunk: tuple[tuple[int, int], ...] = ()
    """(running job, number of replicas it gives up on this node, the first of its `holds` there)."""

    @property
    def disturbed_count(self) -> int:
        """Number of running jobs that it disrupts."""
        return len(self.stopped) + len(self.moved) + len(self.shrunk)


class EvictionPatterns:
    """All eviction patterns of every node."""

    def __init__(self, problem: Problem, params: FormulationParams = FormulationParams()) -> None:
        self.problem, self._params = problem, params
        self._budgets: dict[int, list[str]] = defaultdict(list)
        """Disruption budgets of each running job that has some."""
        for limit in problem.disruption_limits:
            for index in limit.members:
                self._budgets[index].append(limit.name)
        self.holds: dict[int, dict[int, tuple[int, ...]]] = _holds(problem)
        """By node and running job: positions in the `holds` of the job."""
        self.pinned_nodes = {
            hold.node
            for incumbent in problem.incumbents
            if incumbent.move is None
            for hold in incumbent.holds
            if hold.node is not None
        }
        """Nodes with a running job that may not migrate."""
        groups = {node: self._groups(present) for node, present in sorted(self.holds.items())}
        parts = {node: [list(self._parts(node, each)) for each in found] for node, found in groups.items()}
        self.crowded = self._crowded(parts)
        """Nodes without eviction patterns, where each running job leaves separately."""
        self.equal_incumbents: dict[int, tuple[int, ...]] = {
            index: equal
            for node, found in groups.items()
            if node not in self.crowded
            for equal in found
            for index in equal
            if len(equal) > 1
        }
        """The equal running jobs of each job that has some, the cheapest to evict first."""
        # The first pattern in order is the one in which all stay: the base state, which needs no column.
        self.by_node: dict[int, tuple[EvictionPattern, ...]] = {
            node: tuple(sorted((_joined(node, chosen) for chosen in product(*choices)), key=_order))[1:]
            for node, choices in parts.items()
            if node not in self.crowded
        }

    def _crowded(self, parts: dict[int, list[list[EvictionPattern]]]) -> frozenset[int]:
        """Nodes with too many patterns, given the options of each group of equal running jobs."""
        params = self._params
        counts = {node: prod(map(len, choices)) - 1 for node, choices in parts.items()}
        # For shares and MIG instances it matters which replica is given up first.
        crowded = {
            node
            for node, present in self.holds.items()
            for index, positions in present.items()
            if counts[node] > params.max_patterns_per_node
            or (len(positions) > 1 and self.problem.incumbents[index].shrinkable and not self._plain(index))
        }
        left = sum(count for node, count in counts.items() if node not in crowded)
        for node in sorted(counts, key=lambda node: (-counts[node], node)):
            if left <= max(params.max_patterns, params.max_average_patterns * len(self.problem.nodes)):
                break
            if node not in crowded:
                crowded.add(node)
                left -= counts[node]
        return frozenset(crowded)

    def _plain(self, index: int) -> bool:
        """True if each replica of a running job holds the same number of usable GPUs, whole ones or none."""
        incumbent = self.problem.incumbents[index]
        equal = len({len(hold.gpus) for hold in incumbent.holds if hold.node is not None}) <= 1
        return equal and not incumbent.shape.gpu_milli and not incumbent.shape.mig

    def _groups(self, present: dict[int, tuple[int, ...]]) -> list[tuple[int, ...]]:
        """Running jobs of a node, grouped by equality, the cheapest of each group first."""
        members: dict[Any, list[int]] = defaultdict(list)
        for index in sorted(present):
            members[self._equality_key(index)].append(index)
        return [
            tuple(sorted(indices, key=lambda index: (-self._cost(index), index)))
            for indices in members.values()
        ]

    def _cost(self, index: int) -> int:
        incumbent = self.problem.incumbents[index]
        return incumbent.leave_points if incumbent.stop_points is None else incumbent.stop_points

    def _equality_key(self, index: int) -> tuple[object, ...]:
        """Equal for running jobs that differ only in the cost of eviction; otherwise (index,)."""
        problem = self.problem
        incumbent = problem.incumbents[index]
        shape = incumbent.shape
        alone = shape.mig or len({hold.node for hold in incumbent.holds}) > 1
        if alone or incumbent.shrinkable or incumbent.grow is not None:
            return (index,)
        move = None if incumbent.move is None else problem.classes[incumbent.move]
        resume = None if incumbent.resume is None else problem.classes[incumbent.resume]
        both = move is not None and incumbent.stop_points is not None
        return (
            None,
            shape,
            # Whole GPUs of a node are interchangeable, shares only within one GPU.
            tuple(sorted(hold.gpus for hold in incumbent.holds)) if shape.gpu_milli else len(incumbent.holds),
            sum(len(hold.gpus) for hold in incumbent.holds),
            (incumbent.queue, tuple(self._budgets.get(index, ()))),
            (incumbent.rank, incumbent.claims),
            # A job that ends before a later slot frees nothing there when it is evicted now.
            incumbent.until,
            incumbent.gpu_model,
            incumbent.leave_reward,
            incumbent.stop_points is None,
            move and (move.shape, move.options, move.rank, move.together, move.node_points),
            resume and (resume.shape, resume.options, resume.together),
            incumbent.stop_points - incumbent.leave_points
            if both and incumbent.stop_points is not None
            else None,
        )

    def _parts(self, node: int, group: tuple[int, ...]) -> Iterator[EvictionPattern]:
        """Options of a group of equal running jobs on a node; to stay is the first."""
        first = self.problem.incumbents[group[0]]
        may_stop, may_move = first.stop_points is not None, first.move is not None
        for leaving in range(len(group) + 1):
            for stopped in range(leaving + 1) if may_stop else (0,):
                if may_move or stopped == leaving:
                    yield EvictionPattern(node, stopped=group[:stopped], moved=group[stopped:leaving])
        if first.shrinkable:
            here = self.holds[node][group[0]]
            most = min(len(here), len(first.holds) - first.min_replicas)
            for replicas in range(1, most + 1):
                yield EvictionPattern(node, shrunk=((group[0], replicas),))

    def canonical(self, index: int, fate: dict[int, str]) -> int:
        """
        The running job that stands for this one among its equals, given which of them are stopped or moved.

        Stopped jobs come first, then moved ones; each group keeps its order.
        """
        if index not in self.equal_incumbents:
            return index
        alike = self.equal_incumbents[index]
        ordered = sorted(alike, key=lambda each: ("stop", "move", "stay").index(fate.get(each, "stay")))
        return alike[ordered.index(index)]

    def free(self, departure: EvictionPattern) -> tuple[list[int], list[int]]:
        """(thousandths free by GPU, amounts free by resource) of the node under an eviction pattern."""
        node = self.problem.nodes[departure.node]
        gpus, amounts = list(node.gpus), list(node.amounts)
        for index, position in self.given_up(departure):
            incumbent = self.problem.incumbents[index]
            for gpu in incumbent.holds[position].gpus:
                gpus[gpu] += incumbent.shape.gpu_milli or MILLI
            for resource, amount in enumerate(incumbent.shape.amounts):
                amounts[resource] += amount
        if node.overdrawn:
            amounts = [max(0, free - owed) for free, owed in zip(amounts, node.overdrawn, strict=True)]
        return gpus, amounts

    def given_up(
        self, departure: EvictionPattern, below: VictimView | None = None
    ) -> Iterator[tuple[int, int]]:
        """
        (running job, position in its `holds`) of every replica that leaves the node.

        With `below`, without stopped and shrunk jobs that are among its victims.
        """
        here = self.holds.get(departure.node, {})
        gone = [(index, here[index]) for index in (*departure.stopped, *departure.moved)]
        gone += [(index, here[index][:replicas]) for index, replicas in departure.shrunk]
        for index, positions in gone:
            kept = below is not None and below.keeps(self.problem.incumbents[index])
            if index in departure.moved or not kept:
                for position in positions:
                    yield index, position

    def all_leave(self, node: int, staying: Container[int] = ()) -> EvictionPattern:
        """The pattern in which all running jobs that may leave a node have left, but for those `staying`."""
        # As migrations, because these free capacity for every class; preemption does not (C16).
        return EvictionPattern(node, moved=tuple(v for v in self.holds.get(node, ()) if v not in staying))

    def empties(self, departure: EvictionPattern) -> bool:
        """True if every running job of the node migrates."""
        here = self.holds[departure.node]
        return departure.node not in self.pinned_nodes and len(departure.moved) == len(here)


def _holds(problem: Problem) -> dict[int, dict[int, tuple[int, ...]]]:
    found: dict[int, dict[int, list[int]]] = defaultdict(lambda: defaultdict(list))
    for index, incumbent in enumerate(problem.incumbents):
        if _may_leave(incumbent):
            for position, hold in enumerate(incumbent.holds):
                if hold.node is not None:
                    found[hold.node][index].append(position)
    return {
        node: {index: tuple(positions) for index, positions in present.items()}
        for node, present in found.items()
    }


def _may_leave(incumbent: Incumbent) -> bool:
    return incumbent.stop_points is not None or incumbent.move is not None or incumbent.shrinkable


def _joined(node: int, chosen: tuple[EvictionPattern, ...]) -> EvictionPattern:
    return EvictionPattern(
        node,
        stopped=tuple(sorted(index for part in chosen for index in part.stopped)),
        moved=tuple(sorted(index for part in chosen for index in part.moved)),
        shrunk=tuple(sorted(pair for part in chosen for pair in part.shrunk)),
    )


def _order(departure: EvictionPattern) -> tuple[object, ...]:
    return (departure.disturbed_count, departure.stopped, departure.moved, departure.shrunk)
