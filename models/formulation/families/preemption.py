"""(C16) Preemption."""

from __future__ import annotations

from collections import defaultdict
from typing import TYPE_CHECKING, NamedTuple, TypeAlias

import numpy as np

from gpuplan.models.eligibility.preemption_order import rank_and_claims, victim_views
from gpuplan.models.formulation.rows import Row, row, row_of_arrays, undominated
from gpuplan.models.units import MILLI

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence

    from numpy.typing import NDArray

    from gpuplan.models.eligibility.preemption_order import VictimView
    from gpuplan.models.formulation.columns import Columns
    from gpuplan.models.formulation.columns_now import CountedUsage, ReplicaColumns
    from gpuplan.models.formulation.rows import Ints, Term
    from gpuplan.models.problem.jobs import Incumbent
    from gpuplan.models.problem.problem import PowerCap, Problem, QueueBudget

    State: TypeAlias = tuple[Sequence[int], Sequence[int]]
    """(thousandths free by GPU, amounts free by resource)."""
    Offer: TypeAlias = Callable[["_States", bool], Ints]
    """Amount of something in each state; True for gains of a crowded node, which are rounded up."""


def preemption(problem: Problem, x: Columns) -> Iterator[Row]:
    """
    Capacity freed by preemption is used only by classes that outrank the victim or have a claim on it.

        Σ_{i bound by ρ} ⌊g_i/s⌋ · replicas[i,t]  ≤  Σ_{n ∈ t} blocks_ρ[n,s]    ∀ t, s, ρ
        Σ_{i bound by ρ} milli_i · replicas[i,t]  ≤  Σ_{n ∈ t} milli_ρ[n]    ∀ t, ρ, shares and GPUs
        Σ_{i bound by ρ} a_i · replicas[i,t]  ≤  Σ_{n ∈ t} free_ρ[n]    ∀ t, resources, ρ
        Σ_{i bound by ρ} ⌊g_i/s⌋ · located[i,c]  ≤  Σ_{n ∈ c} blocks_ρ[n,s]    ∀ c, s, ρ
        usage_ρ[r,q] = own_rq + placed_ρ[r,q] − left_ρ[r,q] + Σ_{children c} ( usage_ρ[r,c] − kept_rc )
        usage_ρ[r,q]  ≤  limit_rq    ∀ r, q, ρ
        Σ_{c in the rack} watts_c · ( Σ_{i bound by ρ} g_i · replicas[i,t] − freed_ρ[c] )  ≤  left  ∀ racks, ρ

    ρ stands for a set of victims (`victim_views`); without claims, these are the victims of rank ρ or above.
    A set binds the classes that may follow none of its victims. An index ρ excludes usage of all other
    classes, and capacity freed by preempting or shrinking the victims: blocks_ρ[n,s] is ⌊f/s⌋ of the GPUs of
    a node that are free for the bound classes. Capacity freed by migration is free for any class, and the
    migrating job still counts against quota where it counted. A queue passes up at least what it uses beyond
    what it does not lend. The victims considered are those on the node group, in the queue, or in the rack.
    Where replicas are assigned to node classes by size only, those of the other classes are subtracted from
    the sum of a rack as if all of the node group were in it. Rows of a group or queue that others imply are
    left out (`undominated`): many sets of victims have the same part there.
    """
    for group, cells in x.cells.of_group.items():
        nodes, members = problem.groups[group].nodes, x.members(group)
        for cell in cells:
            located = x.columns_of_node_class(cell)
            members += located
            if len(cells) > 1 and len(located.columns):
                yield from _nodes(problem, x, ("cell", cell), x.cells.all[cell].nodes, located)
        yield from _nodes(problem, x, ("group", group), nodes, members)
    for budget in problem.budgets:
        yield from _queues(problem, x, budget)
    for number, cap in enumerate(problem.power_caps):
        there, elsewhere = set(cap.nodes), {v for v, _ in cap.elsewhere}
        holders = (
            each
            for v, each in enumerate(problem.incumbents)
            if v in elsewhere or any(hold.node in there for hold in each.holds)
        )
        for at, view in enumerate(
            victim_views(_preemptible(each for each in holders if each.shape.quota_milli))
        ):
            if terms := _watts(problem, x, cap, view):
                yield row("preemption", ("rack", number, at), terms, upper=max(0, cap.left))


def _nodes(
    problem: Problem, x: Columns, key: tuple[str, int], nodes: tuple[int, ...], members: ReplicaColumns
) -> Iterator[Row]:
    """
    Rows for replicas of classes that may not follow victims on these nodes.

    On the nodes of one node class only whole GPUs are counted: of its replicas those with a locality rule are
    known, and these are gangs of whole GPUs nearly always.
    """
    patterns = _Patterns(problem, x, nodes)
    kinds = [x.kind_of[column] for column in members.columns.tolist()]
    found: dict[tuple[str | int, ...], list[Row]] = defaultdict(list)
    seen = set[tuple[bytes, bytes]]()
    for at, view in enumerate(victim_views(_preemptible(iter(patterns.incumbents)))):
        below = np.array([view.binds(kind) for kind in kinds], dtype=bool)
        # Many views bind the same classes here, and keep the same jobs.
        kept = patterns.kept(view)
        same = below.tobytes(), kept.tobytes()
        if not below.any() or same in seen:
            continue
        seen.add(same)
        free = patterns.free(view, kept)
        gpus, milli = members.gpus[below], members.milli[below]
        takes = {("gpus", size): (gpus // size, _blocks(size)) for size in sorted({*gpus[gpus > 0].tolist()})}
        if milli.any() and key[0] == "group":
            takes["gpus", "milli"] = gpus * MILLI + milli, _milli
        for resource, name in enumerate(problem.resources if key[0] == "group" else ()):
            takes["amount", name] = members.amounts[below, resource], _amount(resource)
        for what, (coefficients, offer) in takes.items():
            if coefficients.any():
                upper, given = free.supply(offer)
                columns = np.append(members.columns[below], free.columns)
                found[what].append(
                    row_of_arrays(
                        "preemption",
                        (*key, at, *what),
                        columns,
                        np.append(coefficients, -given),
                        upper=upper,
                    )
                )
    for rows in found.values():
        yield from undominated(rows, np.array(x.upper))


class _States(NamedTuple):
    """What is free in several states of nodes, as arrays."""

    whole: Ints
    """Wholly free GPUs."""
    milli: Ints
    """Thousandths of GPUs."""
    amounts: Ints
    """Shape (states, resources)."""

    @classmethod
    def of(cls, gpus: Ints, amounts: Ints) -> _States:
        """States by thousandths free on each GPU; shape (states, GPUs), 0 where a node has fewer GPUs."""
        return cls((gpus == MILLI).sum(axis=1), gpus.sum(axis=1), amounts)


class _Free(NamedTuple):
    """Capacity free for the classes that a view binds on some nodes: a constant and a sum over columns."""

    base: _States
    columns: Ints
    """Departures, then columns that free something of a crowded node."""
    after: _States
    """States of nodes with a departure."""
    before: _States
    """The base states of these."""
    gains: _States

    def supply(self, offer: Offer) -> tuple[int, Ints]:
        """The constant, and what a unit of each of `columns` adds to it."""
        given = offer(self.after, False) - offer(self.before, False)
        return int(offer(self.base, False).sum()), np.append(given, offer(self.gains, True))


class _Patterns:
    """What is free on some nodes in each of their eviction patterns, for the classes that a view binds."""

    def __init__(self, problem: Problem, x: Columns, nodes: tuple[int, ...]) -> None:
        patterns = x.eviction_patterns
        here = sorted({v for node in nodes for v in patterns.holds.get(node, ())})
        self.incumbents = [problem.incumbents[v] for v in here]
        """Running jobs that may leave these nodes."""
        # Views tell jobs of different orders apart, and there are few orders.
        examples = {rank_and_claims(each): each for each in self.incumbents}
        number = {order: at for at, order in enumerate(examples)}
        self._examples = [*examples.values()]
        order_of = {v: number[rank_and_claims(problem.incumbents[v])] for v in here}
        self._gpus = max((len(problem.nodes[node].gpus) for node in nodes), default=0)
        self._resources, self._x = len(problem.resources), x
        departures = [each for node in nodes for each in patterns.by_node.get(node, ())]
        left = [problem.nodes[departure.node] for departure in departures]
        every = [problem.nodes[node] for node in nodes]
        self._base = _States.of(*self._arrays([(node.gpus, node.amounts) for node in every]))
        self._unchanged = self._arrays([(node.gpus, node.amounts) for node in left])
        self._before = _States.of(*self._unchanged)
        none = (0,) * self._resources
        self._owed = self._arrays([((), node.overdrawn or none) for node in left])[1]
        self._columns: Ints = np.array([x.out[departure] for departure in departures], dtype=np.int64)
        self._crowded = [(node, [*x.fates.gains(node)]) for node in nodes if node in patterns.crowded]
        leaving, amounts, held = list[tuple[int, int, bool]](), [], list[tuple[int, int, int]]()
        for at, departure in enumerate(departures):
            for v, position in patterns.given_up(departure):
                shape, first = problem.incumbents[v].shape, at * self._gpus
                for gpu in problem.incumbents[v].holds[position].gpus:
                    held.append((len(leaving), first + gpu, shape.gpu_milli or MILLI))
                leaving.append((at, order_of[v], v in departure.moved))
                amounts.append(shape.amounts)
        self._leaving: Ints = np.array(leaving, dtype=np.int64).reshape(-1, 3).T
        """Of each replica that leaves in a pattern: the pattern, the order of its job, 1 if it migrates."""
        self._taken: Ints = np.array(amounts, dtype=np.int64).reshape(-1, self._resources)
        """Amounts of resources that it holds."""
        self._held: Ints = np.array(held, dtype=np.int64).reshape(-1, 3).T
        """Of each GPU that it holds: the replica's number, the GPU's of all patterns, and thousandths."""

    def _arrays(self, states: Sequence[State]) -> tuple[Ints, Ints]:
        gpus = np.zeros((len(states), self._gpus), dtype=np.int64)
        amounts = np.zeros((len(states), self._resources), dtype=np.int64)
        for number, (by_gpu, by_resource) in enumerate(states):
            gpus[number, : len(by_gpu)] = by_gpu
            amounts[number] = by_resource
        return gpus, amounts

    def kept(self, view: VictimView) -> NDArray[np.bool_]:
        """Whether each order of running jobs is among the victims of a view."""
        return np.array([view.keeps(each) for each in self._examples], dtype=bool)

    def free(self, view: VictimView, kept: NDArray[np.bool_]) -> _Free:
        """Capacity free for the classes that a view binds; stops of jobs that it keeps free nothing."""
        pattern, order, moves = self._leaving
        leaves = (moves == 1) | ~kept[order]
        gpus, amounts = (each.copy() for each in self._unchanged)
        _, gpu, milli = self._held[:, leaves[self._held[0]]]
        np.add.at(gpus.reshape(-1), gpu, milli)
        np.add.at(amounts, pattern[leaves], self._taken[leaves])
        # What is overdrawn is given back first.
        amounts = np.where(self._owed > 0, np.maximum(0, amounts - self._owed), amounts)
        columns, gains = list[int](), []
        for node, gained in self._crowded:
            closed = {*self._x.fates.columns_freeing_nothing(node, view)}
            columns += [column for column, _ in gained if column not in closed]
            gains += [gain for column, gain in gained if column not in closed]
        return _Free(
            base=self._base,
            columns=np.append(self._columns, np.array(columns, dtype=np.int64)),
            after=_States.of(gpus, amounts),
            before=self._before,
            gains=_States.of(*self._arrays(gains)),
        )


def _blocks(size: int) -> Offer:
    """⌊wholly free GPUs / size⌋; gains of a crowded node are rounded up."""
    return lambda states, up: -(-states.whole // size) if up else states.whole // size


def _milli(states: _States, up: bool) -> Ints:  # noqa: ARG001 - one form for all offers
    """Thousandths of GPUs."""
    return states.milli


def _amount(resource: int) -> Offer:
    """Amount of one resource."""
    return lambda states, _: states.amounts[:, resource]


def _counted(problem: Problem, budget: QueueBudget) -> Iterator[Incumbent]:
    return (each for each in problem.incumbents if each.quota_of(budget.resource))


def _preemptible(incumbents: Iterator[Incumbent]) -> Iterator[Incumbent]:
    """Running jobs that a plan may preempt or shrink."""
    return (each for each in incumbents if each.stop_points is not None or each.shrinkable)


def _queues(problem: Problem, x: Columns, budget: QueueBudget) -> Iterator[Row]:
    """Limits of the queues, for each set of victims that count there."""
    if not any(_preemptible(_counted(problem, budget))):
        return
    usage: list[list[CountedUsage]] = [[] for _ in problem.queues]
    for each in x.counted(budget.resource):
        usage[each.queue].append(each)
    victims: list[list[Incumbent]] = [[] for _ in problem.queues]
    for incumbent in _preemptible(_counted(problem, budget)):
        victims[incumbent.queue].append(incumbent)
    everywhere = victim_views(_preemptible(_counted(problem, budget)))
    most, fixed = np.array(x.upper), list(budget.own)
    for queue in budget.leaves_first:
        limit = budget.limit[queue]
        if limit is not None and victims[queue] and any(each.amount > 0 for each in usage[queue]):
            key = ("queue", budget.resource, problem.queues[queue])
            # A set of all victims binds fewer classes than its part here: its row is weaker but for rounding.
            views = *everywhere, *victim_views(victims[queue])
            yield from undominated(_limits(usage[queue], views, key, limit - fixed[queue]), most)
        if (parent := budget.parent[queue]) is not None:
            usage[parent] += usage[queue]
            victims[parent] += victims[queue]
            fixed[parent] += fixed[queue] - budget.kept[queue]


def _limits(
    usage: Sequence[CountedUsage], views: Iterable[VictimView], key: tuple[str, ...], upper: int
) -> Iterator[Row]:
    """The limit of one queue for each of these views."""
    columns = np.array([each.column for each in usage], dtype=np.int64)
    amounts = np.array([each.amount for each in usage], dtype=np.int64)
    # Few orders are different: for each view only one column of each order is looked at.
    orders: dict[object, int] = {}
    examples: list[CountedUsage] = []
    for each in usage:
        if each.order not in orders:
            orders[each.order] = len(examples)
            examples.append(each)
    position = np.array([orders[each.order] for each in usage], dtype=np.int64)
    seen = set[bytes]()
    for at, view in enumerate(views):
        counted = np.array([each.counts(view) for each in examples], dtype=bool)
        if (key_of := counted.tobytes()) in seen:
            continue
        seen.add(key_of)
        counts = counted[position]
        if (amounts[counts] > 0).any():
            yield row_of_arrays("preemption", (*key, at), columns[counts], amounts[counts], upper=upper)


def _watts(problem: Problem, x: Columns, cap: PowerCap, view: VictimView) -> list[Term]:
    """Thousandths of watts that the classes bound by a view add in a rack; empty if none may be placed."""
    watts = dict(zip(cap.nodes, cap.watts, strict=True))
    taken = list(_drawn(x, watts, view))
    if not any(watts > 0 for _, watts in taken):
        return []
    return [*taken, *_given_back(problem, x, watts, view), *_elsewhere(problem, x, cap, view)]


def _drawn(x: Columns, watts: dict[int, int], view: VictimView) -> Iterator[Term]:
    groups: dict[int, int] = {}
    for position, cell in enumerate(x.cells.all):
        if cell.nodes[0] not in watts:
            continue
        per_gpu = MILLI * watts[cell.nodes[0]]
        columns, sizes = x.block_users(position)
        for column, size in zip(columns.tolist(), sizes.tolist(), strict=True):
            if column not in x.kind_of or view.binds(x.kind_of[column]):
                yield column, per_gpu * size
        if x.blocks.get(position):
            groups[cell.group] = max(per_gpu, groups.get(cell.group, 0))
    for group, per_gpu in groups.items():
        for shape, column in x.placed(group):
            if shape.gpus and not view.binds(x.kind_of[column]):
                yield column, -per_gpu * shape.gpus


def _given_back(problem: Problem, x: Columns, watts: dict[int, int], view: VictimView) -> Iterator[Term]:
    incumbents = problem.incumbents
    for departure, column in x.out.items():
        if departure.node in watts:
            given = x.eviction_patterns.given_up(departure, view)
            if freed := sum(incumbents[v].shape.quota_milli for v, _ in given):
                yield column, -watts[departure.node] * freed
    for node in sorted(x.eviction_patterns.crowded & watts.keys()):
        for v, positions in x.eviction_patterns.holds[node].items():
            freed = watts[node] * incumbents[v].shape.quota_milli
            yield from ((column, -freed * len(positions)) for column in x.fates.leaves(v, view))
            if (v, node) in x.fates.given and not view.keeps(incumbents[v]):
                yield x.fates.given[v, node], -freed


def _elsewhere(problem: Problem, x: Columns, cap: PowerCap, view: VictimView) -> Iterator[Term]:
    for v, drawn in cap.elsewhere:
        yield from ((column, -drawn) for column in x.fates.leaves(v, view))
        if v in x.shrink and not view.keeps(problem.incumbents[v]):
            yield x.resized[v], -drawn
