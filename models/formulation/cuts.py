"""(C15) Stranded GPUs, and gang covers: valid inequalities, which lower the bound and forbid no plan."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeAlias

import numpy as np

from gpuplan.models.formulation.rows import Row, row_of_arrays

if TYPE_CHECKING:
    from collections.abc import Iterator

    from numpy.typing import NDArray

    from gpuplan.models.cluster import Level
    from gpuplan.models.formulation.columns import Columns
    from gpuplan.models.formulation.params import FormulationParams
    from gpuplan.models.formulation.rows import Ints
    from gpuplan.models.problem.jobs import Shape
    from gpuplan.models.problem.problem import Problem

    Floats: TypeAlias = NDArray[np.float64]


def stranded_gpu(problem: Problem, x: Columns) -> Iterator[Row]:
    """
    Replicas with a large demand for another resource also count the GPUs that this demand strands.

        Σ_i taken_i · replicas[i,t]  ≤  Σ_{n of t} usable[n]    ∀ t, resources
        usable[n] = max { Σ_i taken_i · y_i : Σ_i g_i · y_i ≤ f_n, Σ_i a_i · y_i ≤ free_n, y integer }

    opened[c] and switched[c] count here as replicas of one GPU: the first takes the smallest amount of the
    resource that any share takes, the second none. Replicas with shares are left out. The rows are valid for
    any taken_i. It is g_i, or if that is larger the usable GPUs lost per replica when k such replicas are on
    S, the node of the group with the most free capacity. Replica types are lifted one after the other, those
    with the largest amount per GPU first:

        taken_i = max(g_i, min_k ⌊(usable[S] − usable[S less k · (g_i, a_i)]) / k⌋)

    Amounts are counted in units, rounded down on both sides. If no replica type takes more than g_i, there is
    no row.
    """
    for group, cells in x.cells.of_group.items() if x.params.stranded_gpu else ():
        columns, gpus, amounts = _takers(x, group, cells)
        states = x.cells.states[group]
        for resource, name in enumerate(problem.resources):
            free = np.where(states.rounded, 0, states.amounts[:, resource])
            unit = _unit(amounts[:, resource], int(free.max()), x.params.max_stranding_units)
            free, whole = free // unit, np.where(states.rounded, 0, states.whole)
            usable, taken = _lifted(int(whole.max()), int(free.max()), gpus, amounts[:, resource] // unit)
            if (taken == gpus).all():
                continue
            supplies = [_supply(x, cell, usable[whole, free]) for cell in cells]
            yield row_of_arrays(
                "stranded_gpu",
                ("group", group, name),
                np.concatenate([columns, *(givers for _, givers, _ in supplies)]),
                np.concatenate([taken, *(-given for _, _, given in supplies)]),
                upper=sum(constant for constant, _, _ in supplies),
            )


def _takers(x: Columns, group: int, cells: tuple[int, ...]) -> tuple[Ints, Ints, Ints]:
    """Columns of all replicas except shares, with the whole GPUs and amounts that one unit of each takes."""
    members = x.members(group)
    for cell in cells:
        members += x.columns_of_node_class(cell)
    sharing = members.milli > 0
    opened = [x.opened[cell] for cell in cells if cell in x.opened]
    single = [*opened, *(column for cell in cells for column in x.single_gpus(cell) if column not in opened)]
    amounts = np.zeros((len(single), members.amounts.shape[1]), dtype=np.int64)
    if opened:
        amounts[: len(opened)] = members.amounts[sharing].min(axis=0)
    return (
        np.append(members.columns[~sharing], np.array(single, dtype=np.int64)),
        np.append(members.gpus[~sharing], np.ones(len(single), dtype=np.int64)),
        np.append(members.amounts[~sharing], amounts, axis=0),
    )


def _unit(amounts: Ints, largest: int, most: int) -> int:
    """Greatest common divisor of all amounts, or a larger unit if a node has more than `most` of these."""
    return max(1, int(np.gcd.reduce(amounts, initial=0)), -(-largest // most))


def _lifted(gpus: int, units: int, of_gpus: Ints, of_units: Ints) -> tuple[Ints, Ints]:
    """Usable GPUs by free GPUs and units, up to the freest node; and what each column takes."""
    usable = np.zeros((gpus + 1, units + 1), dtype=np.int64)
    sizes, position = np.unique(np.column_stack([of_gpus, of_units]), axis=0, return_inverse=True)
    taken = sizes[:, 0].copy()
    for size in sizes.tolist():
        usable = _with(usable, size, size[0])
    # A replica without GPUs counts as half of one: it comes before all of one GPU that take as much.
    for at in np.lexsort((taken, -sizes[:, 1] / np.maximum(sizes[:, 0], 0.5))).tolist():
        size = sizes[at].tolist()
        left = [_left(usable, size, times) for times in range(1, _times(usable, size) + 1)]
        cost = [int(usable[-1, -1] - rest[-1, -1]) // times for times, rest in enumerate(left, start=1)]
        if min(cost, default=0) > taken[at]:
            taken[at] = min(cost)
            usable = _with(usable, size, int(taken[at]))
    return usable, taken[position.reshape(-1)]


def _with(usable: Ints, size: list[int], taken: int) -> Ints:
    """Usable GPUs if any number of replicas of one more size may be added."""
    more = usable.copy()
    for times in range(1, _times(usable, size) + 1):
        rest = _left(usable, size, times)
        part = more[times * size[0] :, times * size[1] :]
        np.maximum(part, rest + times * taken, out=part)
    return more


def _times(usable: Ints, size: list[int]) -> int:
    """Number of replicas of a size that fit the freest node; 0 for a size that takes nothing."""
    room = [(most - 1) // each for most, each in zip(usable.shape, size, strict=True) if each]
    return min(room, default=0)


def _left(usable: Ints, size: list[int], times: int) -> Ints:
    """Usable GPUs beside `times` replicas of a size, where these fit."""
    return usable[: len(usable) - times * size[0], : usable.shape[1] - times * size[1]]


def _supply(x: Columns, cell: int, by_state: Ints) -> tuple[int, Ints, Ints]:
    """
    Supply of a node class: constant, columns, coefficients.

    On a crowded node the gains of single jobs do not add up. Each job that leaves counts as if it freed all
    that can become free there.
    """
    found = x.cells.all[cell]
    constant, columns, given = x.cells.supply(cell, by_state)
    rounded = x.cells.states[found.group].rounded[found.brought]
    if rounded.any():
        most = np.zeros(len(found.nodes), dtype=np.int64)
        np.maximum.at(most, found.reachable[:, 0], by_state[found.reachable[:, 1]])
        given = np.where(rounded, (most - by_state[found.constant])[found.changed], given)
    return constant, columns, given


# Gang covers: capacity that gangs with a required domain can use on its nodes. In the linear relaxation a
# gang can be spread in small fractions over many domains, wherever a node is cheap. The rows that forbid
# this are too many to state. The model starts with those of the nodes that are the most expensive to clear,
# and a cutting plane loop adds the rows that a solution violates.


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
            if excess[last] > self.params.least_gang_cover_violation:
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
