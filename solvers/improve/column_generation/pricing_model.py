"""
Pricing problem of one node as a model of CP-SAT.

    max  Σ_i w_i · x_i + price · saved
    Σ_i a_ir · x_i  ≤  free_r                                                        ∀ resources r
    Σ_i g_i · x_i + opened  ≤  whole
    Σ_i ⌊h_i/d⌋ · x_i  ≤  Σ_{GPUs shared already} ⌊free/d⌋ + ⌊1000/d⌋ · opened       ∀ divisors d

The last rows are those of (C4), a relaxation. Patterns p of cut GPUs make the model exact:

    Σ_{i: h_i ≥ h} x_i  ≤  Σ_p (places of p of at least h) · cut[p]                  ∀ sizes h
    Σ_{p of whole GPUs} cut[p]  ≤  opened,   Σ_{p of GPUs with f free} cut[p]  ≤  their number
"""

from __future__ import annotations

import time
from collections import Counter
from math import inf
from typing import TYPE_CHECKING, Any

from ortools.sat.python import cp_model

from gpuplan.models.units import MILLI
from gpuplan.solvers.improve.column_generation.bin_packing import cutting_patterns
from gpuplan.solvers.improve.column_generation.subproblem import PRICE_SCALE, PricedPattern

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from gpuplan.models.problem.problem import Charges
    from gpuplan.solvers.improve.column_generation.subproblem import FreeNodeClass, PackingItem


class PricingModel:
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
