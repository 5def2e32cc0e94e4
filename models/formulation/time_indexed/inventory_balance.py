"""Flow: a count in each later slot, balanced from slot to slot."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from gpuplan.models.formulation.rows import Ints


@dataclass(frozen=True, slots=True)
class InventoryBalance:
    """One column per later slot; a job that comes and stays has two coefficients, however long it stays."""

    there: tuple[int, ...]
    """Columns by slot; -1 for slot 0, which is not counted."""
    changes: tuple[tuple[Ints, Ints], ...]
    """By slot: columns, and the change of the count from then on per unit of each."""

    def terms(self, slot: int) -> tuple[Ints, Ints]:
        """Columns and coefficients of a sum that is 0: changes plus the previous count less the count."""
        columns, amounts = self.changes[slot]
        carried = self.there[max(1, slot - 1) : slot + 1]
        signs = (1, -1)[-len(carried) :]
        return np.append(columns, carried), np.append(amounts, signs)

    def may_increase(self, slot: int) -> bool:
        """True if the count may increase with a slot."""
        return bool((self.changes[slot][1] > 0).any())

    def add_up(self, values: Ints) -> None:
        """Set the columns of the counts from the values of the changes."""
        there = 0
        for column, (columns, amounts) in zip(self.there[1:], self.changes[1:], strict=True):
            there += int(amounts @ values[columns])
            values[column] = there


def balance_of(
    changes: tuple[Ints, Ints, Ints], slots: int, upper: Sequence[int], new: Callable[[int], int]
) -> InventoryBalance | None:
    """
    Make a flow from (slots, columns, amounts); None if its count is always 0.

    `upper` bounds the existing columns, `new` makes a column with an upper bound.
    """
    when, columns, amounts = changes
    bounds = np.array([upper[column] for column in columns.tolist()], dtype=np.int64)
    most = int(np.maximum(0, amounts) @ bounds)
    if not most:
        return None
    there = (-1, *(new(most) for _ in range(1, slots)))
    at = [np.flatnonzero(when == slot) for slot in range(slots)]
    return InventoryBalance(there, tuple((columns[chosen], amounts[chosen]) for chosen in at))
