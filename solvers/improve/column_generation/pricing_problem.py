"""
Pricing problem: the contents of one node that bring most at given prices of places.

The relaxed model (`pricing_model`) quickly gives a bound, and contents from which shares that cannot be
packed are left out. Where these are not good enough, the exact model is solved.
"""

from __future__ import annotations

from collections import Counter
from math import inf
from typing import TYPE_CHECKING

import numpy as np

from gpuplan.models.units import MILLI
from gpuplan.solvers.improve.column_generation.bin_packing import pack_shares
from gpuplan.solvers.improve.column_generation.dominance import dominance_matrix
from gpuplan.solvers.improve.column_generation.subproblem import PRICE_SCALE, PricedPattern

if TYPE_CHECKING:
    from collections.abc import Sequence

    from gpuplan.models.problem.problem import Charges
    from gpuplan.solvers.improve.column_generation.dominance import Bools
    from gpuplan.solvers.improve.column_generation.pricing_model import PricingModel
    from gpuplan.solvers.improve.column_generation.subproblem import Contents, FreeNodeClass, PackingItem
    from gpuplan.solvers.params.improve import ColumnGenerationParams


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
        priced = self._model(worth).solve(worth, self._seed, deadline)
        contents = self._packed(priced.contents, worth)
        if contents == priced.contents:
            return priced
        return PricedPattern(priced.bound, contents, sum(count * worth[index] for index, count in contents))

    def exact(self, prices: Sequence[int], deadline: float) -> PricedPattern:
        """Best contents by the exact model; nothing is known if there are too many patterns."""
        worth = self._worth(prices)
        model = self._model(worth)
        if not model.cut(self._params.max_patterns):
            return PricedPattern(inf)
        priced = model.solve(worth, self._seed, deadline)
        # The shares fit in principle, but the search for a packing may have given up.
        found = self._empty_node().holds(priced.contents)
        return priced if found else PricedPattern(priced.bound)

    def _model(self, worth: dict[int, int]) -> PricingModel:
        # OR-Tools imports pandas: most of a second, in each command and for plans that price nothing.
        from gpuplan.solvers.improve.column_generation.pricing_model import PricingModel  # noqa: PLC0415

        return PricingModel(self._items, self._node_class, self._charges, self._most(worth))

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
