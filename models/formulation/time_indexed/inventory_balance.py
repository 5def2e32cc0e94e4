"""Flow: how many of something there are in each later slot, carried on from slot to slot."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from gpuplan.models.formulation.rows import Ints


@dataclass(frozen=True, slots=True)
class Flow:
    """A column for each later slot; whoever comes and stays has two coefficients, however long it stays."""

    there: tuple[int, ...]
    """Columns by slot; that of slot 0, where nobody is counted, is -1."""
    changes: tuple[tuple[Ints, Ints], ...]
    """By slot: columns, and by how much one unit of each changes what is there from then on."""

    def terms(self, slot: int) -> tuple[Ints, Ints]:
        """Columns and coefficients of a sum that is 0: of changes, of what was there, less what is there."""
        columns, amounts = self.changes[slot]
        carried = self.there[max(1, slot - 1) : slot + 1]
        signs = (1, -1)[-len(carried) :]
        return np.append(columns, carried), np.append(amounts, signs)

    def grows(self, slot: int) -> bool:
        """True if somebody may come with a slot."""
        return bool((self.changes[slot][1] > 0).any())

    def add_up(self, values: Ints) -> None:
        """Set its columns to what those of the changes say."""
        there = 0
        for column, (columns, amounts) in zip(self.there[1:], self.changes[1:], strict=True):
            there += int(amounts @ values[columns])
            values[column] = there


def flow(
    changes: tuple[Ints, Ints, Ints], slots: int, upper: Sequence[int], new: Callable[[int], int]
) -> Flow | None:
    """
    A flow of (slots, columns, amounts); None if nobody ever comes.

    `upper` bounds the columns there are, `new` makes one with an upper bound.
    """
    when, columns, amounts = changes
    bounds = np.array([upper[column] for column in columns.tolist()], dtype=np.int64)
    most = int(np.maximum(0, amounts) @ bounds)
    if not most:
        return None
    there = (-1, *(new(most) for _ in range(1, slots)))
    at = [np.flatnonzero(when == slot) for slot in range(slots)]
    return Flow(there, tuple((columns[chosen], amounts[chosen]) for chosen in at))
