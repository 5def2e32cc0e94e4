"""
Gains: what is free more in later slots because of who leaves now, and of nodes opened and closed.

Columns that bring the same, or multiples of it, to the same place are counted together, slot by slot: so
each has a coefficient where that begins and one where it ends, and none in the long rows.
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeAlias

import numpy as np

from planner.models.formulation.flow import flow

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence

    from planner.models.formulation.flow import Flow
    from planner.models.formulation.rows import Ints

    Place: TypeAlias = tuple[int | str, ...]
    """What a gain is part of, such as the sums over one group."""


@dataclass(frozen=True, slots=True)
class Gain:
    """What one unit of a flow brings."""

    unit: tuple[int, ...]
    """By what is measured at its place."""
    flow: Flow


class Gains:
    """All gains by place."""

    def __init__(self, slots: int, upper: Sequence[int], new: Callable[[int], int]) -> None:
        """`upper` bounds the columns there are, `new` makes one with an upper bound."""
        self._slots, self._upper, self._new = slots, upper, new
        self._at: dict[Place, list[Gain]] = defaultdict(list)

    def __iter__(self) -> Iterator[Flow]:
        """The flows."""
        return (gain.flow for gains in self._at.values() for gain in gains)

    def of(self, places: Iterable[Place], measure: int, slot: int) -> tuple[Ints, Ints]:
        """Columns, and what one unit of each brings in a slot of one measure to some places in all."""
        found = [
            (gain.flow.there[slot], gain.unit[measure])
            for place in places
            for gain in self._at.get(place, ())
            if gain.unit[measure]
        ]
        pairs = np.array(found, dtype=np.int64).reshape(-1, 2)
        return pairs[:, 0], pairs[:, 1]

    def note(self, places: Sequence[Place], where: Ints, columns: Ints, traces: Ints) -> None:
        """
        Take in columns, each with the number of its place and its trace: what it brings by slot and measure.

        `traces` has shape (columns, slots, measures).
        """
        traces = traces.copy()
        traces[:, 0] = 0  # that slot has rows of its own
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
            changes = slot[own], columns[entry[own]], (signs * times)[own]
            if (found := flow(changes, self._slots, self._upper, self._new)) is not None:
                self._at[places[key[0]]].append(Gain(tuple(key[1:]), found))


class Changes:
    """Columns, each with a node and what is free there then, or what the node gains if rounded."""

    def __init__(self, slots: int, measures: int) -> None:
        self._shape = slots, measures
        self._columns: list[int] = []
        self._nodes: list[int] = []
        self._rounded: list[bool] = []
        self._states: list[Ints] = []

    def note(self, column: int, node: int, state: Ints, *, rounded: bool = False) -> None:
        """Take in one column; `state` has shape (slots, measures)."""
        self._columns.append(column)
        self._nodes.append(node)
        self._states.append(state)
        self._rounded.append(rounded)

    def close(self, upper: Sequence[int]) -> None:
        """No more are coming: make arrays of them; `upper` bounds the columns."""
        self.column = np.array(self._columns, dtype=np.int64)
        self.most = np.array([upper[column] for column in self._columns], dtype=np.int64)
        self.node = np.array(self._nodes, dtype=np.int64)
        self.rounded = np.array(self._rounded, dtype=bool)
        self.states: Ints = np.array(self._states, dtype=np.int64).reshape(len(self._states), *self._shape)
