"""
Upper bound from any Lagrange multipliers, in exact integer arithmetic.

It uses weak duality (A. M. Geoffrion, "Lagrangean relaxation for integer programming", Mathematical
Programming Study 2, 1974). The multipliers may come from any solver and may be inexact: this makes the bound
loose, never false.
"""

from __future__ import annotations

import math
from functools import cached_property
from operator import mul
from typing import TYPE_CHECKING, Final

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from gpuplan.models.formulation.rows import Formulation, Ints

    Floats = NDArray[np.float64]

_MOST_BITS: Final = 40
"""Multipliers are rounded to multiples of 2⁻⁴⁰ points at the finest; this costs less than one point."""

_MAX_SUM: Final = 2.0**61
"""Sums of products below this limit in floating point fit in 64 bits, rounding errors included."""

_GUB_FAMILIES: Final = frozenset({"assignment", "eviction", "horizon"})
"""Families with rows that limit a sum of columns to at most n, such as the options of a class."""


def exact_bound(formulation: Formulation, multipliers: Floats) -> int:
    """
    Upper bound on the objective, without the constant; see `DualBound.bound`.

    With the duals of a linear relaxation it is the value of the relaxation, free of the solver's tolerances.
    With the duals of a dual simplex that was stopped early it is the bound proven so far. HiGHS minimizes:
    negate its row duals.
    """
    return DualBound(formulation).bound(multipliers)


class DualBound:
    """Rows of a formulation as arrays, to evaluate several sets of multipliers."""

    def __init__(self, formulation: Formulation) -> None:
        self._formulation = formulation
        rows, none = formulation.rows, np.zeros(0, dtype=np.int64)
        self._columns: Ints = np.concatenate([none, *(row.columns for row in rows)])
        self._coefficients: Ints = np.concatenate([none, *(row.coefficients for row in rows)])
        self._rows: Ints = np.repeat(np.arange(len(rows)), [len(row.columns) for row in rows])
        """Column, coefficient and row of each nonzero, row by row."""
        self._no_lower = np.array([row.lower is None for row in rows], dtype=bool)
        self._no_upper = np.array([row.upper is None for row in rows], dtype=bool)

    def bound(self, multipliers: Floats) -> int:
        """
        Upper bound from one multiplier per row: the points of one more unit of the row's right-hand side.

            Σ_r max(λ_r · upper_r, λ_r · lower_r)
                +  max { Σ_j (c_j − Σ_r λ_r · a_rj) · x_j : 0 ≤ x ≤ u and the rows of `gub_row` }

        λ_r ≥ 0 where a row has no lower limit, λ_r ≤ 0 where it has no upper one: a wrong sign counts as 0.
        All multipliers are rounded to multiples of one power of two; all later steps are exact.
        """
        scaled, bits = self._fixed_point(self._one_sided(multipliers))
        left = self._formulation.objective << bits
        np.subtract.at(left, self._columns, self._coefficients * scaled[self._rows])
        paid = 0  # in Python's integers, which never overflow
        for index in np.flatnonzero(scaled).tolist():
            row, multiplier = self._formulation.rows[index], int(scaled[index])
            paid += multiplier * ((row.upper if multiplier > 0 else row.lower) or 0)
        return (paid + self._best(left)) >> bits

    @cached_property
    def gub_row(self) -> Ints:
        """
        For each column the row Σ x ≤ n that stays a constraint of the maximization; −1 if there is none.

        These rows have no column in common, so each is maximized separately and needs no multiplier. This
        helps because rough multipliers are least accurate for single classes. Of rows that share a column the
        longest is kept.
        """
        rows = self._formulation.rows
        choices = [
            index
            for index, row in enumerate(rows)
            if row.family in _GUB_FAMILIES
            and row.upper is not None
            and row.upper >= 0
            and (row.lower is None or row.lower <= 0)
            and (row.coefficients == 1).all()
        ]
        found = np.full(len(self._formulation.upper), -1, dtype=np.int64)
        for index in sorted(choices, key=lambda index: (-len(rows[index].columns), index)):
            columns = rows[index].columns
            if (found[columns] < 0).all():
                found[columns] = index
        return found

    def _one_sided(self, multipliers: Floats) -> Floats:
        """Multipliers with unusable ones set to 0: not finite, of the wrong sign, or of a `gub_row`."""
        value = np.where(np.isfinite(multipliers), multipliers, 0.0)
        value[self._no_lower & (value < 0)] = 0.0
        value[self._no_upper & (value > 0)] = 0.0
        value[self.gub_row[self.gub_row >= 0]] = 0.0
        return value

    def _fixed_point(self, multipliers: Floats) -> tuple[Ints, int]:
        """
        Integer multipliers and the bits b: they are multiples of 2⁻ᵇ. No sum over a column leaves 64 bits.

        If multipliers are too large even for b = 0, all are scaled down alike: any multipliers give a bound.
        """
        multipliers = np.clip(multipliers, -_MAX_SUM, _MAX_SUM)
        sizes = np.abs(self._formulation.objective) + np.bincount(
            self._columns,
            np.abs(self._coefficients) * (np.abs(multipliers[self._rows]) + 1),
            minlength=len(self._formulation.upper),
        )
        largest = max(1.0, sizes.max(initial=0.0), np.abs(multipliers).max(initial=0.0))
        bits = min(_MOST_BITS, math.floor(math.log2(_MAX_SUM / largest)))
        return np.rint(np.ldexp(multipliers, bits)).astype(np.int64), max(0, bits)

    def _best(self, points: Ints) -> int:
        """Maximum of Σ points · x within column bounds and rows of `gub_row`, best columns of a row first."""
        formulation = self._formulation
        pays = np.flatnonzero(points > 0)
        order = pays[np.lexsort((-points[pays], self.gub_row[pays]))]
        takes, before, left = [], -1, 0
        uppers = formulation.upper[order].tolist()
        for row, upper in zip(self.gub_row[order].tolist(), uppers, strict=True):
            if row < 0:
                takes.append(upper)
                continue
            if row != before:
                before, left = row, formulation.rows[row].upper or 0
            takes.append(min(left, upper))
            left -= takes[-1]
        return sum(map(mul, points[order].tolist(), takes))
