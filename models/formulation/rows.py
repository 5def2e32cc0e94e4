"""Row and Formulation: the mathematical program of a Problem as data, for any solver."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Protocol, TypeAlias

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from numpy.typing import NDArray

Ints: TypeAlias = "NDArray[np.int64]"
Floats: TypeAlias = "NDArray[np.float64]"
Term: TypeAlias = tuple[int, int]
"""(column, coefficient)."""
Cut: TypeAlias = tuple[int, tuple[int, ...]]
"""(position in `Formulation.cut_sources`, what names a row of it): a valid inequality that is not stated."""


@dataclass(frozen=True, slots=True)
class Row:
    """`lower ≤ Σ coefficient · column ≤ upper`; None is no limit on that side."""

    family: str
    key: tuple[str | int, ...]
    """Subject of the row, such as (group, size)."""
    columns: Ints
    """Column indices, each at most once."""
    coefficients: Ints
    lower: int | None
    upper: int | None

    def value(self, values: Ints) -> int:
        """Left-hand side at an assignment of all columns."""
        return int(self.coefficients @ values[self.columns])

    def holds(self, values: Ints) -> bool:
        """True if the assignment satisfies the row."""
        value = self.value(values)
        return (self.lower is None or value >= self.lower) and (self.upper is None or value <= self.upper)


class CutSource(Protocol):
    """A structure of the model with many valid inequalities; see `GangCover` and `QuotaCover`."""

    def has(self, chosen: tuple[int, ...]) -> bool:
        """True if this names a row."""

    def likely(self) -> Iterator[tuple[int, ...]]:
        """Rows that a solution is likely to violate."""

    def broken(self, values: Floats) -> Iterator[tuple[int, ...]]:
        """Rows that (possibly fractional) values of all columns violate."""

    def row(self, key: tuple[str | int, ...], chosen: tuple[int, ...]) -> Row:
        """The row of this name."""


@dataclass(frozen=True, slots=True)
class Formulation:
    """Maximize `objective · column` over integer columns `0 ≤ column ≤ upper` and all rows."""

    upper: Ints
    """Upper bound of each column."""
    objective: Ints
    """Points of one unit of each column."""
    rows: tuple[Row, ...]
    constant: int = 0
    """Points in addition to those of the columns; solvers leave them out."""
    now: tuple[int, ...] = ()
    """Columns of starts in slot 0; these and `later` determine all other columns."""
    later: tuple[int, ...] = ()
    """Columns of starts in later slots: many, nearly all of them 0."""
    gang_covers: tuple[CutSource, ...] = ()
    """Sources of valid inequalities that the integer model implies; they tighten the linear relaxation."""
    quota_covers: tuple[CutSource, ...] = ()
    """Sources of rows that are too many to state and that an integer answer may violate, too."""

    @property
    def cut_sources(self) -> tuple[CutSource, ...]:
        """Sources of all valid inequalities that are not stated."""
        return *self.gang_covers, *self.quota_covers

    def strengthened(self, cuts: Iterable[Cut]) -> Formulation:
        """The same model with some valid inequalities added."""
        more = (self.cut_sources[number].row(("cut", number, *chosen), chosen) for number, chosen in cuts)
        return replace(self, rows=(*self.rows, *more))

    def has_cuts(self, cuts: Iterable[Cut]) -> bool:
        """True if all these cuts exist in this model."""
        return all(
            0 <= number < len(self.cut_sources) and self.cut_sources[number].has(chosen)
            for number, chosen in cuts
        )

    def likely(self) -> list[Cut]:
        """Cuts that a solution of the relaxation is likely to violate."""
        return [(number, chosen) for number, each in enumerate(self.cut_sources) for chosen in each.likely()]

    def broken(self, values: Floats) -> list[Cut]:
        """Cuts that the (possibly fractional) values of all columns violate."""
        return [
            (number, chosen) for number, each in enumerate(self.cut_sources) for chosen in each.broken(values)
        ]

    def missing_rows(self, values: Ints) -> list[Cut]:
        """Rows of the integer model that are not stated and that an answer violates."""
        first = len(self.gang_covers)
        return [
            (first + at, each)
            for at, source in enumerate(self.quota_covers)
            for each in source.broken(values.astype(np.float64))
        ]

    def points(self, values: Ints) -> int:
        """Objective value of an assignment."""
        return self.constant + int(self.objective @ values)

    def violated_rows(self, values: Ints) -> tuple[Row, ...]:
        """Rows that an assignment violates."""
        return tuple(row for row in self.rows if not row.holds(values))


def row(
    family: str,
    key: tuple[str | int, ...],
    terms: Iterable[Term],
    *,
    lower: int | None = None,
    upper: int | None = None,
) -> Row:
    """Make a row from single terms; terms of the same column are added up, zeros dropped; see `_reduced`."""
    merged: dict[int, int] = {}
    for column, coefficient in terms:
        merged[column] = merged.get(column, 0) + coefficient
    # Most rows are short: numpy would take several times as long to look for zeros and the divisor.
    merged = {column: coefficient for column, coefficient in merged.items() if coefficient}
    columns = np.fromiter(merged.keys(), dtype=np.int64, count=len(merged))
    coefficients = np.fromiter(merged.values(), dtype=np.int64, count=len(merged))
    return _reduced(family, key, columns, coefficients, math.gcd(*merged.values()), lower, upper)


def row_of_arrays(
    family: str,
    key: tuple[str | int, ...],
    columns: Ints,
    coefficients: Ints,
    *,
    lower: int | None = None,
    upper: int | None = None,
) -> Row:
    """Make a row from arrays of columns and coefficients, as `row` does from terms."""
    if len(columns) and np.bincount(columns).max() > 1:
        distinct, position = np.unique(columns, return_inverse=True)
        added = np.zeros(len(distinct), dtype=np.int64)
        np.add.at(added, position, coefficients)
        columns, coefficients = distinct, added
    used = np.flatnonzero(coefficients)
    columns, coefficients = columns[used], coefficients[used]
    divisor = int(np.gcd.reduce(coefficients, initial=0))
    return _reduced(family, key, columns, coefficients, divisor, lower, upper)


def _reduced(
    family: str,
    key: tuple[str | int, ...],
    columns: Ints,
    coefficients: Ints,
    divisor: int,
    lower: int | None,
    upper: int | None,
) -> Row:
    """
    Make a row with all coefficients divided by their greatest common divisor, and bounds rounded inwards.

    Rounding is valid for integer columns. This gives smaller numbers and a tighter row. Without coefficients
    `divisor` is 0.
    """
    if divisor > 1:
        coefficients = coefficients // divisor
        lower = None if lower is None else -(-lower // divisor)
        upper = None if upper is None else upper // divisor
    return Row(family, key, columns, coefficients, lower, upper)


def undominated(rows: Iterable[Row], most: Ints) -> list[Row]:
    """
    The rows without a lower limit that matter beside the others, in their order.

    A row is left out if it holds for all columns up to their upper bounds `most`, or if another row has at
    least its coefficient for every column and at most its limit. As columns are not negative, it is then
    implied by the other rows. Of equal rows the first is kept.
    """
    binding = []
    for each in rows:
        gains = np.maximum(each.coefficients, 0) @ most[each.columns]
        if each.upper is not None and gains > each.upper:
            binding.append(each)
    if len(binding) < 2:
        return binding
    columns = np.concatenate([each.columns for each in binding])
    used = np.flatnonzero(np.bincount(columns))
    position = np.empty(len(most), dtype=np.int64)
    position[used] = np.arange(len(used))
    dense = np.zeros((len(binding), len(used)), dtype=np.int64)
    owner = np.repeat(np.arange(len(binding)), [len(each.columns) for each in binding])
    dense[owner, position[columns]] = np.concatenate([each.coefficients for each in binding])
    limits, sums = np.array([each.upper for each in binding]), dense.sum(axis=1)
    # Most pairs of rows are told apart by about 64 of the columns.
    some = dense[:, :: 1 + len(used) // 64].copy()
    kept = np.zeros(0, dtype=np.int64)
    # A row is implied only by rows before it in this order, or by equal ones.
    for at in np.lexsort((np.arange(len(binding)), -sums, limits)).tolist():
        larger = kept[(sums[kept] >= sums[at]) & (some[kept] >= some[at]).all(axis=1)]
        if not any((dense[one] >= dense[at]).all() for one in larger.tolist()):
            kept = np.append(kept, at)
    return [binding[at] for at in sorted(kept.tolist())]
