"""
Gang cover cuts: capacity that gangs with a required domain can use on its nodes.

In the linear relaxation a gang can be spread in small fractions over many domains, wherever a node is cheap.
The rows that forbid this are too many to state. The model starts with those of the nodes that are the most
expensive to clear, and a cutting plane loop adds the rows that a solution violates.
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeAlias

import numpy as np

from gpuplan.models.formulation.rows import row_of_arrays

if TYPE_CHECKING:
    from collections.abc import Iterator

    from numpy.typing import NDArray

    from gpuplan.models.cluster import Level
    from gpuplan.models.formulation.columns import Columns
    from gpuplan.models.formulation.params import FormulationParams
    from gpuplan.models.formulation.rows import Ints, Row
    from gpuplan.models.problem.jobs import Shape
    from gpuplan.models.problem.problem import Problem

    Floats: TypeAlias = NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class GangCover:
    """
    Replicas of one shape, of gangs of several types, in one domain d.

        Σ_i max(0, min_i − Σ_{n ∈ d∖T} most_n) · whole[i,k,d]  ≤  Σ_{n ∈ T} room_n    ∀ sets T of nodes of d

    room_n is the number of replicas that fit node n in its state, most_n the number in any state. The part of
    a gang that does not fit the nodes outside T is on T. For several gangs, the need on T is at least the sum
    over the single gangs.
    """

    gangs: Ints
    """Columns whole[i,k,d]."""
    least: Ints
    """min_i of each gang."""
    most: Ints
    """most_n by node; first the nodes that may be in T, since their state is known."""
    fixed: Ints
    """By node that may be in T, replicas that fit while all running jobs stay."""
    columns: Ints
    """Columns that change the state of a node …"""
    node: Ints
    """… the position of that node …"""
    gained: Ints
    """… and the replicas that fit in addition."""
    dearest: Ints
    """Nodes that may be in T, by the points lost if all running jobs leave them, largest loss first."""
    params: FormulationParams

    def has(self, chosen: tuple[int, ...]) -> bool:
        """True if these are positions of nodes that may be in T."""
        return all(0 <= position < len(self.fixed) for position in chosen)

    def likely(self) -> Iterator[tuple[int, ...]]:
        """Sets T with rows that a solution is likely to violate: the most expensive nodes, one by one."""
        elsewhere = int(self.most.sum()) - np.cumsum(self.most[self.dearest])
        for last in np.flatnonzero(elsewhere < self.least.max(initial=0)).tolist():
            yield tuple(sorted(self.dearest[: last + 1].tolist()))

    def broken(self, values: Floats) -> Iterator[tuple[int, ...]]:
        """Sets T with rows that (possibly fractional) values of all columns violate, worst first."""
        known = len(self.fixed)
        room = self.fixed + np.bincount(
            self.node, weights=self.gained * values[self.columns], minlength=known
        )
        order = np.argsort(room, kind="stable")
        elsewhere = int(self.most.sum()) - np.cumsum(self.most[order])
        needed = np.maximum(0, self.least[:, np.newaxis] - elsewhere)
        excess = values[self.gangs] @ needed - np.cumsum(room[order])
        for last in np.argsort(-excess, kind="stable")[: self.params.max_gang_covers].tolist():
            if excess[last] > self.params.least_cover_violation:
                yield tuple(sorted(order[: last + 1].tolist()))

    def row(self, key: tuple[str | int, ...], chosen: tuple[int, ...]) -> Row:
        """The row of a set T of nodes, given by position."""
        inside = np.zeros(len(self.fixed), dtype=bool)
        inside[list(chosen)] = True
        elsewhere = int(self.most.sum()) - int(self.most[: len(inside)][inside].sum())
        changing = inside[self.node]
        return row_of_arrays(
            "locality",
            key,
            np.append(self.gangs, self.columns[changing]),
            np.append(np.maximum(0, self.least - elsewhere), -self.gained[changing]),
            upper=int(self.fixed[inside].sum()),
        )


def gang_covers(problem: Problem, x: Columns) -> Iterator[GangCover]:
    """Gang cover structures of all domains that some gang requires."""
    users: dict[tuple[Level, int, tuple[int, ...], Shape], list[tuple[int, int]]] = defaultdict(list)
    for (index, tier, domain), column in x.whole.items() if x.params.gang_covers else ():
        kind = x.kinds[index]
        if (level := kind.together.required) is not None:
            key = level, domain, kind.groups[tier], kind.shape
            users[key].append((column, kind.minimum))
    losses = _losses(problem)
    for (level, domain, groups, shape), gangs in users.items():
        cells = [
            cell
            for group in groups
            for cell in x.cells.of_group[group]
            if problem.domain_of(level)[x.cells.all[cell].nodes[0]] == domain
        ]
        yield _cover_of(x, cells, shape, gangs, losses)


def _losses(problem: Problem) -> Floats:
    """By node, points lost if all running jobs leave it; a gang's loss is shared evenly over its replicas."""
    losses = np.zeros(len(problem.nodes))
    for one in problem.incumbents:
        lost = -(one.stop_points or 0) / len(one.holds)
        for hold in one.holds:
            if hold.node is not None:
                losses[hold.node] += lost
    return losses


def _cover_of(
    x: Columns, cells: list[int], shape: Shape, gangs: list[tuple[int, int]], losses: Floats
) -> GangCover:
    nodes = sorted({node for cell in cells for node in x.cells.all[cell].nodes})
    most, fixed = np.zeros(len(nodes), dtype=np.int64), np.zeros(len(nodes), dtype=np.int64)
    known = np.ones(len(nodes), dtype=bool)
    changes = []
    for cell in cells:
        found = x.cells.all[cell]
        states, at = x.cells.states[found.group], np.searchsorted(nodes, found.nodes)
        room = states.room(shape)
        np.maximum.at(most, at[found.reachable[:, 0]], room[found.reachable[:, 1]])
        if len(found.constant):
            fixed[at] += room[found.constant]
        else:  # columns of pool nodes do not say which node is opened
            known[at] = False
        of_one = found.changed >= 0
        where, brought = at[found.changed[of_one]], found.brought[of_one]
        known[where[states.rounded[brought]]] = False
        changes.append((found.columns[of_one], where, room[brought] - room[found.taken[of_one]]))
    columns, where, gained = (np.concatenate(each) for each in zip(*changes, strict=True))
    known &= most > 0
    counts = known[where] & (gained != 0)
    return GangCover(
        gangs=np.array([column for column, _ in gangs], dtype=np.int64),
        least=np.array([least for _, least in gangs], dtype=np.int64),
        most=np.append(most[known], most[~known]),
        fixed=fixed[known],
        columns=columns[counts],
        node=(np.cumsum(known) - 1)[where[counts]],
        gained=gained[counts],
        dearest=np.argsort(-losses[nodes][known], kind="stable"),
        params=x.params,
    )
