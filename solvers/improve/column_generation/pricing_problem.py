"""
Pricing problem: the contents of one node that bring most at given prices of places; by CP-SAT.

    max  Σ_i w_i · x_i + price · saved
    Σ_i a_ir · x_i  ≤  free_r                                                        ∀ resources r
    Σ_i g_i · x_i + opened  ≤  whole
    Σ_i ⌊h_i/d⌋ · x_i  ≤  Σ_{GPUs shared already} ⌊free/d⌋ + ⌊1000/d⌋ · opened       ∀ divisors d

The last rows are those of (C4), a relaxation. They quickly give a bound, and contents from which shares that
cannot be packed are left out. Where these are not good enough, patterns p of cut GPUs make the model exact:

    Σ_{i: h_i ≥ h} x_i  ≤  Σ_p (places of p of at least h) · cut[p]                  ∀ sizes h
    Σ_{p of whole GPUs} cut[p]  ≤  opened,   Σ_{p of GPUs with f free} cut[p]  ≤  their number
"""

from __future__ import annotations

import time
from collections import Counter
from dataclasses import dataclass
from math import inf
from typing import TYPE_CHECKING, Any, Final

import numpy as np
from ortools.sat.python import cp_model

from gpuplan.models.units import MILLI
from gpuplan.solvers.improve.column_generation.bin_packing import cutting_patterns, pack_shares
from gpuplan.solvers.improve.column_generation.dominance import dominance_matrix

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from gpuplan.models.problem.problem import Charges
    from gpuplan.solvers.improve.column_generation.dominance import Bools
    from gpuplan.solvers.improve.column_generation.subproblem import Contents, FreeNodeClass, PackingItem
    from gpuplan.solvers.params.improve import ColumnGenerationParams

PRICE_SCALE: Final = 1_000
"""Prices of places are integers; this many units are one point."""


@dataclass(frozen=True, slots=True)
class PricedPattern:
    """Best contents of one node at given prices."""

    bound: float
    """Upper bound on the value of any contents, in parts of a point; infinite if unknown."""
    contents: Contents = ()
    """Best contents found."""
    value: int = 0
    """Lower bound on their value, in parts of a point."""


class Pricer:
    """The pricing problem of one node class."""

    def __init__(
        self,
        items: Sequence[PackingItem],
        node_class: FreeNodeClass,
        charges: Charges,
        seed: int,
        params: ColumnGenerationParams,
    ) -> None:
        self._items, self._node_class, self._charges, self._seed = items, node_class, charges, seed
        self._params = params
        self._room: dict[int, int] = {}
        """Replicas of each item that fit if the node is used for them alone."""
        self._points: dict[int, int] = {}
        """Points of one replica of each item."""
        for index, item in enumerate(items):
            if node_class.group in item.groups and (room := node_class.room(item.shape)):
                self._room[index] = room
                self._points[index] = dict(item.node_points).get(node_class.group, 0)
        self._order = np.array(list(self._room), dtype=np.int64)
        self._ample = np.array([items[index].most >= room for index, room in self._room.items()], dtype=bool)
        self._within = self._fitting_in()

    def price_heuristically(self, prices: Sequence[int], deadline: float) -> PricedPattern:
        """Bound of the relaxation, and good contents made from its answer."""
        worth = self._worth(prices)
        model = _PricingModel(self._items, self._node_class, self._charges, self._most(worth))
        priced = model.solve(worth, self._seed, deadline)
        contents = self._packed(priced.contents, worth)
        if contents == priced.contents:
            return priced
        return PricedPattern(priced.bound, contents, sum(count * worth[index] for index, count in contents))

    def exact(self, prices: Sequence[int], deadline: float) -> PricedPattern:
        """Best contents by the exact model; nothing is known if there are too many patterns."""
        worth = self._worth(prices)
        model = _PricingModel(self._items, self._node_class, self._charges, self._most(worth))
        if not model.cut(self._params.max_patterns):
            return PricedPattern(inf)
        priced = model.solve(worth, self._seed, deadline)
        # The shares fit in principle, but the search for a packing may have given up.
        found = self._empty_node().holds(priced.contents)
        return priced if found else PricedPattern(priced.bound)

    def _fitting_in(self) -> Bools:
        """[a, b] is True if a replica of item b fits wherever one of item a does; indices are positions."""
        shapes = [self._items[index].shape for index in self._room]
        return dominance_matrix(shapes, alike=bool(self._charges.fragmentation))

    def _worth(self, prices: Sequence[int]) -> dict[int, int]:
        """Value of a replica of each useful item: no other item brings as much and takes no more."""
        worth = np.array(
            [prices[index] + PRICE_SCALE * points for index, points in self._points.items()], dtype=np.int64
        )
        better = self._within & self._ample[None, :] & (worth[None, :] >= worth[:, None])
        # Of equal items the first is useful.
        mutual = better & better.T
        better &= ~(mutual & (np.arange(len(worth))[None, :] >= np.arange(len(worth))[:, None]))
        # An item that costs a little may reduce fragmentation.
        useful = (worth > -PRICE_SCALE * self._charges.fragmentation * self._node_class.whole) & ~better.any(
            axis=1
        )
        return dict(zip(self._order[useful].tolist(), worth[useful].tolist(), strict=True))

    def _most(self, worth: dict[int, int]) -> dict[int, int]:
        return {index: min(self._items[index].most, self._room[index]) for index in worth}

    def _packed(self, contents: Contents, worth: dict[int, int]) -> Contents:
        """The contents if their shares can be packed; otherwise without some, but with what then fits."""
        box = self._empty_node()
        if box.holds(contents):
            return contents
        for index, count in sorted(contents, key=lambda each: self._size(each[0]), reverse=True):
            box.put(index, count)
        for index in sorted(worth, key=lambda index: (-worth[index], index)):
            box.put(index, min(self._items[index].most, self._room[index]) - box.counts[index])
        return tuple(sorted((index, count) for index, count in box.counts.items() if count))

    def _empty_node(self) -> _GreedyNode:
        return _GreedyNode(self._items, self._node_class, self._params.packing_steps)

    def _size(self, index: int) -> tuple[int, int]:
        return self._items[index].shape.quota_milli, -index


class _PricingModel:
    """Relaxed pricing model for some items, with at most `most` replicas of each."""

    def __init__(
        self, items: Sequence[PackingItem], node_class: FreeNodeClass, charges: Charges, most: dict[int, int]
    ) -> None:
        self._items, self._node_class, self._charges = items, node_class, charges
        self._model = cp_model.CpModel()
        self._count = {index: self._model.new_int_var(0, limit, "") for index, limit in most.items()}
        self._opened = self._model.new_int_var(0, node_class.whole, "")
        self._whole = self._sum((index, items[index].shape.gpus) for index in most)
        self._shares = {index: milli for index in most if (milli := items[index].shape.gpu_milli)}
        self._saved: Any = 0
        """Wholly free GPUs of no use, as a reduction against an empty node."""
        for resource, free in enumerate(node_class.amounts):
            self._model.add(
                self._sum((index, items[index].shape.amounts[resource]) for index in most) <= free
            )
        self._model.add(self._whole + self._opened <= node_class.whole)
        # An opened GPU must have a share.
        self._model.add(self._opened <= self._sum((index, 1) for index in self._shares))
        if self._shares:
            self._limit_shares()
        if charges.fragmentation and node_class.whole:
            self._count_blocks()

    def solve(self, worth: dict[int, int], seed: int, deadline: float) -> PricedPattern:
        """Contents of largest value in this model."""
        gain = self._sum(worth.items())
        self._model.maximize(gain + PRICE_SCALE * self._charges.fragmentation * self._saved)
        solver = cp_model.CpSolver()
        parameters = solver.parameters
        parameters.num_workers = 1
        parameters.random_seed = seed
        parameters.linearization_level = 2
        parameters.max_time_in_seconds = max(0.001, deadline - time.monotonic())
        status = solver.solve(self._model)
        if status not in (cp_model.OPTIMAL, cp_model.FEASIBLE):
            return PricedPattern(inf)
        contents = tuple(
            (index, value) for index, each in self._count.items() if (value := solver.value(each))
        )
        return PricedPattern(solver.best_objective_bound, contents, int(solver.objective_value))

    def cut(self, max_patterns: int) -> bool:
        """Add the rows of patterns; False if there are too many."""
        sizes = tuple(sorted(set(self._shares.values()), reverse=True))
        places: dict[int, list[Any]] = {size: [] for size in sizes}
        for free, number in sorted(Counter(self._node_class.gpus).items()) if sizes else ():
            if (found := cutting_patterns(sizes, free, max_patterns)) is None:
                return False
            cuts = [self._model.new_int_var(0, number, "") for _ in found]
            self._model.add(sum(cuts) <= (self._opened if free == MILLI else number))
            for position, size in enumerate(sizes):
                counts = [one[position] for one in found]
                places[size].append(cp_model.LinearExpr.weighted_sum(cuts, counts))
        for size in sizes:
            taken = self._sum((index, int(milli >= size)) for index, milli in self._shares.items())
            self._model.add(taken <= sum(places[size]))
        return True

    def _sum(self, terms: Iterable[tuple[int, int]]) -> Any:
        pairs = [(self._count[index], factor) for index, factor in terms if factor]
        return cp_model.LinearExpr.weighted_sum([each for each, _ in pairs], [factor for _, factor in pairs])

    def _limit_shares(self) -> None:
        partly = [free for free in self._node_class.gpus if free < MILLI]
        # Of shares larger than 1/(k + 1) of a GPU at most k fit on it.
        halves = (MILLI // (most + 1) + 1 for most in range(1, 5))
        for divisor in sorted({1, *self._shares.values(), *halves}):
            taken = self._sum((index, milli // divisor) for index, milli in self._shares.items())
            shared = sum(free // divisor for free in partly)
            self._model.add(taken <= shared + MILLI // divisor * self._opened)

    def _count_blocks(self) -> None:
        reference, whole = self._charges.reference_gpus, self._node_class.whole
        blocks = self._model.new_int_var(0, whole // reference, "")
        used = self._whole + self._opened + reference * blocks
        self._model.add(used <= whole)
        self._saved = whole % reference - whole + used


class _GreedyNode:
    """One node of a class that is filled item by item; shares go where they fit best."""

    def __init__(self, items: Sequence[PackingItem], node_class: FreeNodeClass, packing_steps: int) -> None:
        self._items, self._packing_steps = items, packing_steps
        self._gpus = list(node_class.gpus)
        self._amounts = list(node_class.amounts)
        self.counts: Counter[int] = Counter()

    def holds(self, contents: Contents) -> bool:
        """True if the shares of contents can be packed; all other limits must hold already."""
        used = sum(count * self._items[index].shape.gpus for index, count in contents)
        shares = [self._items[index].shape.gpu_milli for index, count in contents for _ in range(count)]
        taken = [milli for milli in shares if milli]
        return pack_shares(taken, self._gpus[used:], self._packing_steps) is not None

    def put(self, index: int, count: int) -> None:
        """Add up to `count` replicas of an item."""
        shape = self._items[index].shape
        for _ in range(count):
            if any(amount > free for amount, free in zip(shape.amounts, self._amounts, strict=True)):
                return
            needed, milli = (1, shape.gpu_milli) if shape.gpu_milli else (shape.gpus, MILLI)
            fitting = sorted((free, gpu) for gpu, free in enumerate(self._gpus) if free >= milli)
            if len(fitting) < needed:
                return
            for _, gpu in fitting[:needed]:
                self._gpus[gpu] -= milli
            self._amounts = [free - amount for free, amount in zip(self._amounts, shape.amounts, strict=True)]
            self.counts[index] += 1
