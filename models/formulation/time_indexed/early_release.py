"""
Early release: capacity that becomes free in later slots through evictions and through opened or closed nodes.

Columns that release the same amounts, or multiples of them, at the same place form one gain. If there are
many coefficients, gains are counted slot by slot in columns of their own: each release has one coefficient in
the slot where it begins and one where it ends, and none in the long rows. If there are few, the rows contain
the columns directly, because HiGHS takes much longer to find a first solution when wide integer columns are
linked from slot to slot.
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, TypeAlias

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence

    from gpuplan.models.formulation.rows import Ints

    Place: TypeAlias = tuple[int | str, ...]
    """What a gain belongs to, such as the sums over one node group."""


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


_NONE: Final = np.zeros(0, dtype=np.int64)


@dataclass(slots=True)
class _ReleaseColumns:
    """Columns that start or stop releasing a certain amount."""

    unit: tuple[int, ...]
    """Amount of one unit, by measure of its place."""
    slots: Ints
    columns: Ints
    amounts: Ints
    """Units by which a unit of each column changes the release from its slot on."""
    flow: InventoryBalance | None = None
    """Number of units by slot, if it is counted in columns."""

    def units(self, slot: int) -> tuple[Ints, Ints]:
        """Columns, and how many units a unit of each releases in a slot."""
        if self.flow is not None:
            return np.array([self.flow.there[slot]]), np.ones(1, dtype=np.int64)
        so_far = self.slots <= slot
        return self.columns[so_far], self.amounts[so_far]


class EarlyReleases:
    """All gains, by place."""

    def __init__(self, slots: int, max_coefficients: int) -> None:
        """With more coefficients than that in rows, gains are counted slot by slot."""
        self._slots, self._max_coefficients = slots, max_coefficients
        self._at: dict[Place, list[_ReleaseColumns]] = defaultdict(list)

    def close(self, upper: Sequence[int], new: Callable[[int], int]) -> None:
        """Finish collecting: `upper` bounds existing columns, `new` makes a column with an upper bound."""
        gains = [gain for found in self._at.values() for gain in found]
        if sum(int((self._slots - gain.slots).sum()) for gain in gains) > self._max_coefficients:
            for gain in gains:
                gain.flow = balance_of((gain.slots, gain.columns, gain.amounts), self._slots, upper, new)

    @property
    def balances(self) -> Iterator[InventoryBalance]:
        """The gains that are counted in columns."""
        return (gain.flow for found in self._at.values() for gain in found if gain.flow is not None)

    def of(self, places: Iterable[Place], measure: int, slot: int) -> tuple[Ints, Ints]:
        """Columns, and the total that a unit of each releases at some places, for one slot and measure."""
        gains = [gain for place in places for gain in self._at.get(place, ()) if gain.unit[measure]]
        units = [gain.units(slot) for gain in gains]
        columns = np.concatenate([_NONE, *(columns for columns, _ in units)])
        brought = [gain.unit[measure] * amounts for gain, (_, amounts) in zip(gains, units, strict=True)]
        distinct, position = np.unique(columns, return_inverse=True)
        total = np.zeros(len(distinct), dtype=np.int64)
        np.add.at(total, position.reshape(-1), np.concatenate([_NONE, *brought]))
        some = np.flatnonzero(total)
        return distinct[some], total[some]

    def note(self, places: Sequence[Place], where: Ints, columns: Ints, traces: Ints) -> None:
        """
        Register columns, each with the number of its place and the amounts that it releases.

        `traces` has these amounts, shape (columns, slots, measures).
        """
        traces = traces.copy()
        traces[:, 0] = 0  # slot 0 has rows of its own
        entry, slot = np.nonzero((traces[:, 1:] != traces[:, :-1]).any(axis=2))
        slot += 1
        brought = np.concatenate([traces[entry, slot], traces[entry, slot - 1]])
        times = np.gcd.reduce(brought, axis=1)
        some = np.flatnonzero(times)
        entry, slot = np.tile(entry, 2)[some], np.tile(slot, 2)[some]
        signs = np.repeat([1, -1], len(times) // 2)[some]
        brought, times = brought[some], times[some]
        keys = np.column_stack([where[entry], brought // times[:, None]])
        distinct, number = np.unique(keys, axis=0, return_inverse=True)
        number = number.reshape(-1)
        order = np.argsort(number, kind="stable")
        ends = np.searchsorted(number[order], np.arange(len(distinct) + 1))
        for key, first, last in zip(distinct.tolist(), ends[:-1].tolist(), ends[1:].tolist(), strict=True):
            own = order[first:last]
            gain = _ReleaseColumns(tuple(key[1:]), slot[own], columns[entry[own]], (signs * times)[own])
            self._at[places[key[0]]].append(gain)


class CapacityChanges:
    """Columns with the free amounts of a node that each leads to, or with its gain if rounded."""

    def __init__(self, slots: int, measures: int) -> None:
        self._shape = slots, measures
        self._columns: list[int] = []
        self._nodes: list[int] = []
        self._rounded: list[bool] = []
        self._states: list[Ints] = []

    def note(self, column: int, node: int, state: Ints, *, rounded: bool = False) -> None:
        """Register one column; `state` has shape (slots, measures)."""
        self._columns.append(column)
        self._nodes.append(node)
        self._states.append(state)
        self._rounded.append(rounded)

    def close(self, upper: Sequence[int]) -> None:
        """Finish collecting and build the arrays; `upper` bounds the columns."""
        self.column = np.array(self._columns, dtype=np.int64)
        self.most = np.array([upper[column] for column in self._columns], dtype=np.int64)
        self.node = np.array(self._nodes, dtype=np.int64)
        self.rounded = np.array(self._rounded, dtype=bool)
        self.states: Ints = np.array(self._states, dtype=np.int64).reshape(len(self._states), *self._shape)
