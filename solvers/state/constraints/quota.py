"""Remaining quota of queues, now and later, and the shortage of their guarantees, by Kueue's arithmetic."""

from __future__ import annotations

from collections import Counter
from itertools import chain
from typing import TYPE_CHECKING, Final, NamedTuple, TypeAlias

import numpy as np

from gpuplan.models.queue import UNLIMITED, QuotaAmounts, amount_index, is_gpu_model
from gpuplan.models.units import MILLI

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from numpy.typing import NDArray

    from gpuplan.models.problem.problem import Guarantee, Problem, QueueBudget

    Ints: TypeAlias = NDArray[np.int64]
    Where: TypeAlias = slice | Ints

NOTHING_LIMITED: Final = QuotaAmounts(UNLIMITED, UNLIMITED, UNLIMITED)


class QuotaDemand(NamedTuple):
    """A queue at which an amount more counts."""

    budget: QueueBudget
    queue: int
    used: int
    needed: int
    """The part of the amount that counts at this queue."""
    usage: Sequence[int] | Ints
    """What counts at each queue."""
    coming: Mapping[int, int]
    """The parts of the amount that count at this queue and those below it."""

    @property
    def limit(self) -> int | None:
        """The limit of the queue; None if it has none."""
        return self.budget.firm[self.queue]

    @property
    def excess(self) -> int:
        """By how much its limit is exceeded; at most 0 if it is not."""
        return 0 if self.limit is None else self.used + self.needed - self.limit

    def relief(self, queue: int, amount: int) -> int:
        """
        By how much less counts at its queue if another holds an amount less; 0 if that is not below it.

        What a queue keeps of its quota hides a part, or all, from the queues above.
        """
        below: int | None = queue
        while below != self.queue:
            if below is None or amount <= 0:
                return 0
            spilled = int(self.usage[below]) + self.coming.get(below, 0) - self.budget.kept[below]
            amount = max(0, spilled) - max(0, spilled - amount)
            below = self.budget.parent[below]
        return amount


class QuotaLedger:
    """Usage of every queue in every budget, in the unit of its resource, and the shortage of guarantees."""

    def __init__(self, problem: Problem) -> None:
        self._budgets = problem.budgets
        self.is_limited = any(
            most is not None for budget in problem.budgets for most in (*budget.limit, *budget.firm)
        )
        """True if some queue has a limit."""
        self._usage = [budget.usage_up_the_tree(list(budget.own)) for budget in problem.budgets]
        self._newcomers = [[0] * len(problem.queues) for _ in problem.budgets]
        """
        What started and grown jobs hold in a queue, and in each queue below that uses more than it keeps. So
        they may come to count here when another job returns to that queue.
        """
        self._counted: dict[str | None, list[tuple[int, int]]] = {}
        self._paths: dict[tuple[int, int], list[int]] = {}
        """A queue and all queues above it, the root first, by budget and queue."""
        self._price = [guarantee.price for guarantee in problem.guarantees]
        self._missing = [guarantee.owed - guarantee.own for guarantee in problem.guarantees]
        """Thousandths of GPUs; negative where more is held than owed."""
        self.unmet = sum(missing > 0 for missing in self._missing)
        """Number of guarantees that miss something."""
        self._guarantees: list[list[tuple[int, Guarantee]]] = [[] for _ in problem.queues]
        for index, guarantee in enumerate(problem.guarantees):
            for queue in guarantee.queues:
                self._guarantees[queue].append((index, guarantee))
        self._helped: dict[tuple[int, str | None], list[int]] = {}
        self.points = 0
        """Price of unmet guarantees that changes have saved, in points."""

    def room(self, queue: int, gpu_model: str | None, *, known: bool) -> QuotaAmounts:
        """
        What a queue may still take, with GPUs of a model.

        A `known` job ran before. It may be there although a queue holds too much, as long as no new job
        counts there.
        """
        room = list(NOTHING_LIMITED)
        for index, counted in self.counting(gpu_model):
            room[counted] = min(room[counted], self._available(index, queue, known=known))
        return QuotaAmounts(*room)

    def exceeded_limits(
        self, queue: int, gpu_model: str | None, asked: QuotaAmounts, *, alone: bool = False
    ) -> Iterator[QuotaDemand]:
        """For each budget the first limit up the tree that these amounts more would break, or do `alone`."""
        for index, budget in enumerate(self._budgets):
            levels = self.levels(index, queue, asked.on(gpu_model, budget.resource), alone=alone)
            if (found := next((level for level in levels if level.excess > 0), None)) is not None:
                yield found

    def levels(self, index: int, queue: int, amount: int, *, alone: bool = False) -> Iterator[QuotaDemand]:
        """Each queue from one upward at which an amount more of a budget counts, or does `alone`."""
        budget, above, coming = self._budgets[index], queue, dict[int, int]()
        while amount > 0:
            used, kept = 0 if alone else self._usage[index][above], budget.kept[above]
            coming[above] = amount
            yield QuotaDemand(budget, above, used, amount, self._usage[index], coming)
            if (parent := budget.parent[above]) is None:
                return
            # Quota that a queue does not lend covers demand, which then does not count at its parent.
            amount = max(0, used + amount - kept) - max(0, used - kept)
            above = parent

    def change(self, queue: int, gpu_model: str | None, amounts: QuotaAmounts, *, new: bool = False) -> None:
        """Count what is taken, or given back if negative, at a queue, every queue above, and guarantees."""
        self.use(queue, gpu_model, amounts, new=new)
        for index in self.guarantees_of(queue, gpu_model):
            before = self._missing[index]
            after = self._missing[index] = before - amounts.gpu_milli
            self.unmet += (after > 0) - (before > 0)
            self.points += self._price[index] * (_gpus(before) - _gpus(after))

    def use(self, queue: int, gpu_model: str | None, amounts: QuotaAmounts, *, new: bool = False) -> None:
        """The same without guarantees."""
        for index, counted in self.counting(gpu_model):
            budget, usage, newcomers = self._budgets[index], self._usage[index], self._newcomers[index]
            above: int | None = queue
            amount = amounts[counted]
            coming = amount if new else 0
            while above is not None and (amount or coming):
                kept = budget.kept[above]
                spilled = max(0, usage[above] - kept)
                passed = newcomers[above] if spilled else 0
                usage[above] += amount
                newcomers[above] += coming
                amount = max(0, usage[above] - kept) - spilled
                coming = (newcomers[above] if usage[above] > kept else 0) - passed
                above = budget.parent[above]

    def held(self, index: int) -> list[int]:
        """What is held directly in each queue in a budget: its usage without what was lent."""
        budget, usage = self._budgets[index], self._usage[index]
        own = list(usage)
        for queue, parent in enumerate(budget.parent):
            if parent is not None:
                own[parent] -= max(0, usage[queue] - budget.kept[queue])
        return own

    def counting(self, gpu_model: str | None) -> list[tuple[int, int]]:
        """(index of a budget, position of its amount) where jobs on GPUs of a model count."""
        if gpu_model not in self._counted:
            self._counted[gpu_model] = counting_budgets(self._budgets, gpu_model)
        return self._counted[gpu_model]

    def _available(self, index: int, queue: int, *, known: bool) -> int:
        """Largest amount a job in this queue may take: up the tree, each queue first uses what it keeps."""
        budget, usage, newcomers = self._budgets[index], self._usage[index], self._newcomers[index]
        if (path := self._paths.get((index, queue))) is None:
            path = self._paths[index, queue] = budget.path_to_root(queue)[::-1]
        available = UNLIMITED
        # What returns to a queue may push what came there out of what it keeps, and so up the tree.
        new = (
            max((level for level, each in enumerate(path) if newcomers[each] > 0), default=-1) if known else 0
        )
        # From the root down: trees may be deeper than the recursion limit.
        for level, each in enumerate(path):
            limit = (budget.limit if known and level > new else budget.firm)[each]
            own = UNLIMITED if limit is None else limit - usage[each]
            unspilled = max(0, budget.kept[each] - usage[each])
            # What a queue keeps is its own, however far the usage above it is over the limit.
            available = own if budget.parent[each] is None else min(own, unspilled + max(0, available))
        return available

    @property
    def missing(self) -> tuple[int, ...]:
        """Thousandths of GPUs missing from each guarantee; negative where more is held than owed."""
        return tuple(self._missing)

    def price(self, index: int) -> int:
        """Points for each GPU that misses from a guarantee."""
        return self._price[index]

    def guarantees_of(self, queue: int, gpu_model: str | None) -> list[int]:
        """Indices of the guarantees that jobs of a queue on GPUs of a model help to meet."""
        key = queue, gpu_model
        if key not in self._helped:
            self._helped[key] = [
                index for index, guarantee in self._guarantees[queue] if guarantee.counts(gpu_model)
            ]
        return self._helped[key]

    def points_of(self, changes: Iterable[tuple[int, str | None, int]]) -> int:
        """Price of unmet guarantees that such changes would save: queue, GPU model, thousandths of GPUs."""
        more = Counter[int]()
        for queue, gpu_model, milli in changes:
            for index in self.guarantees_of(queue, gpu_model):
                more[index] += milli
        return sum(
            self._price[index] * (_gpus(self._missing[index]) - _gpus(self._missing[index] - milli))
            for index, milli in more.items()
        )

    def owed(self, queue: int, gpu_model: str | None, less: int = 0) -> list[tuple[int, int]]:
        """
        (thousandths of GPUs missing, price) of each unmet guarantee that jobs of a queue help to meet.

        It is what would be missing if the queue held so many thousandths `less`.
        """
        if not (self.unmet or less):
            return []
        helped = self.guarantees_of(queue, gpu_model)
        return [
            (missing, self._price[index]) for index in helped if (missing := self._missing[index] + less) > 0
        ]

    def points_owed_without(
        self, queue: int, gpu_model: str | None, milli: int, coming: Mapping[int, int]
    ) -> int:
        """Price of guarantees that miss more if a queue holds less; `coming`: thousandths added to some."""
        return sum(
            self._price[index] * (_gpus(lack + milli) - _gpus(lack))
            for index in self.guarantees_of(queue, gpu_model)
            for lack in [self._missing[index] - coming.get(index, 0)]
        )


def counting_budgets(budgets: tuple[QueueBudget, ...], gpu_model: str | None) -> list[tuple[int, int]]:
    """(index of a budget, position of its amount) where jobs on GPUs of a model count."""
    return [
        (index, amount_index(budget.resource))
        for index, budget in enumerate(budgets)
        if budget.resource == gpu_model or not is_gpu_model(budget.resource)
    ]


def _gpus(missing: int) -> int:
    """Missing GPUs that have a price, rounded up to whole GPUs."""
    return max(0, -(-missing // MILLI))


class QuotaTable:
    """
    Usage of every queue in every budget, by columns that differ in what is counted there.

    A column is a later slot, or a set of victims that stay. `where` selects columns: a slice, or their
    indices.
    """

    def __init__(self, problem: Problem, usage: list[Ints]) -> None:
        """Begin with the usage of each budget, shape (queues, columns)."""
        self._budgets, self._usage = problem.budgets, usage
        self._newcomers = [np.zeros_like(each) for each in usage]
        self._paths: dict[tuple[int, int], list[int]] = {}
        """A queue and those above it up to the last one with a limit, by budget and queue."""
        self._counting: dict[str | None, list[tuple[int, int]]] = {}

    def room(self, queue: int, gpu_model: str | None, where: Where, *, known: bool) -> QuotaAmounts:
        """The least that a queue may still take in any of some columns; see `QuotaLedger.room`."""
        room = list(NOTHING_LIMITED)
        for index, counted in self._counted(gpu_model):
            room[counted] = min(room[counted], self._available(index, queue, where, known=known))
        return QuotaAmounts(*room)

    def exceeded_limit(
        self, queue: int, gpu_model: str | None, asked: QuotaAmounts, where: Ints
    ) -> QuotaDemand | None:
        """Of the first of some columns where a limit would be broken: see `QuotaLedger.exceeded_limits`."""
        first, found = len(where), None
        for index, counted in self._counted(gpu_model):
            budget, usage = self._budgets[index], self._usage[index]
            amount, coming = np.full(len(where), asked[counted], dtype=np.int64), dict[int, "Ints"]()
            for above in self._path(index, queue) if asked[counted] else ():
                before, kept, limit = usage[above, where], budget.kept[above], budget.firm[above]
                after, coming[above] = before + amount, amount
                if limit is not None:
                    broken = np.flatnonzero((amount[:first] > 0) & (after[:first] > limit))
                    if len(broken):
                        first = int(broken[0])
                        parts = {each: int(part[first]) for each, part in coming.items()}
                        used, column = int(before[first]), usage[:, where[first]]
                        found = QuotaDemand(budget, above, used, parts[above], column, parts)
                amount = np.maximum(0, after - kept) - np.maximum(0, before - kept)
        return found

    def change(
        self, queue: int, gpu_model: str | None, amounts: QuotaAmounts, where: Where, *, new: bool = False
    ) -> None:
        """Count what is taken in some columns, or given back if negative, up the queue tree."""
        for index, counted in self._counted(gpu_model):
            path = self._path(index, queue) if amounts[counted] else []
            usage, newcomers, kept = self._usage[index], self._newcomers[index], self._budgets[index].kept
            amount: Ints | int = amounts[counted]
            coming: Ints | int = amounts[counted] if new else 0
            for above in path:
                before, came = usage[above, where], newcomers[above, where]
                after, come = before + amount, came + coming
                # The last step passes nothing on. `before` and `came` may be views of what is overwritten.
                if above != path[-1]:
                    amount = _above(after, kept[above]) - _above(before, kept[above])
                    if kept[above]:  # otherwise all that is new counts above
                        coming = (after > kept[above]) * come - (before > kept[above]) * came
                usage[above, where], newcomers[above, where] = after, come

    def _available(self, index: int, queue: int, where: Where, *, known: bool) -> int:
        most = UNLIMITED // 2  # a sum of two stays within 64 bits
        path, kept = self._path(index, queue), self._budgets[index].kept
        if not path:
            return UNLIMITED
        left = self._left(index, path, where, known=known)
        available = left[-1]
        # From the root down: trees may be deeper than the recursion limit.
        for each, own in zip(reversed(path[:-1]), reversed(left[:-1]), strict=True):
            passed = np.maximum(available, 0)
            if kept[each]:
                # Quota that a queue keeps does not count above, whatever is used there already.
                unspilled = np.maximum(0, kept[each] - self._usage[index][each, where])
                passed = np.minimum(passed, most) + np.minimum(unspilled, most)
            available = np.minimum(own, passed)
        return int(available.min(initial=UNLIMITED))

    def _left(self, index: int, path: list[int], where: Where, *, known: bool) -> list[Ints]:
        """What is left of the own limit of a queue and of each above it."""
        budget = self._budgets[index]
        found: list[Ints] = []
        settled: NDArray[np.bool_] | bool = known
        for queue in path:
            usage, firm, limit = self._usage[index][queue, where], budget.firm[queue], budget.limit[queue]
            if known:
                # What returns to a queue may push what came there out of what it keeps, and so up the tree.
                settled = settled & (self._newcomers[index][queue, where] <= 0)
            if firm is None:
                found.append(np.full(len(usage), UNLIMITED, dtype=np.int64))
            elif limit is None:
                found.append(firm - usage)
            else:
                found.append(np.where(settled, limit, firm) - usage)
        return found

    def _counted(self, gpu_model: str | None) -> list[tuple[int, int]]:
        """As `QuotaLedger.counting`."""
        if gpu_model not in self._counting:
            self._counting[gpu_model] = counting_budgets(self._budgets, gpu_model)
        return self._counting[gpu_model]

    def _path(self, index: int, queue: int) -> list[int]:
        if (path := self._paths.get((index, queue))) is None:
            budget = self._budgets[index]
            path = budget.path_to_root(queue)
            # What is used where no limit is, there and above, decides nothing.
            while path and budget.firm[path[-1]] is None and budget.limit[path[-1]] is None:
                path.pop()
            self._paths[index, queue] = path
        return path


class QuotaColumns:
    """As `QuotaTable`, for few columns: one alone costs a fifth in plain numbers."""

    def __init__(self, problem: Problem, count: int) -> None:
        """Each column begins with the usage of all running jobs."""
        self._columns = [QuotaLedger(problem) for _ in range(count)]

    def _at(self, where: Ints) -> list[QuotaLedger]:
        return [self._columns[column] for column in where.tolist()]

    def room(self, queue: int, gpu_model: str | None, where: Ints, *, known: bool) -> QuotaAmounts:
        """See `QuotaTable`."""
        room = NOTHING_LIMITED
        for column in self._at(where):
            room = room.least(column.room(queue, gpu_model, known=known))
        return room

    def exceeded_limit(
        self, queue: int, gpu_model: str | None, asked: QuotaAmounts, where: Ints
    ) -> QuotaDemand | None:
        """See `QuotaTable`."""
        demands = (column.exceeded_limits(queue, gpu_model, asked) for column in self._at(where))
        return next(chain.from_iterable(demands), None)

    def change(
        self, queue: int, gpu_model: str | None, amounts: QuotaAmounts, where: Ints, *, new: bool = False
    ) -> None:
        """See `QuotaTable`."""
        for column in self._at(where):
            column.use(queue, gpu_model, amounts, new=new)


def _above(usage: Ints, kept: int) -> Ints:
    """What a queue uses beyond what it keeps from lending."""
    beyond: Ints = np.maximum(0, usage - kept)
    return beyond


def future_quota(problem: Problem) -> QuotaTable:
    """Usage of every queue in every budget by slot, as jobs end and others start; slot 0 is not kept."""
    usages: list[Ints] = []
    for budget in problem.budgets:
        usage = np.repeat(np.array(budget.own, dtype=np.int64)[:, None], problem.slots, axis=1)
        for slot, queue, milli, _ in budget.releases:
            usage[queue, slot:] -= milli
        for queue in budget.leaves_first:
            if (parent := budget.parent[queue]) is not None:
                usage[parent] += np.maximum(0, usage[queue] - budget.kept[queue])
        usages.append(usage)
    return QuotaTable(problem, usages)
