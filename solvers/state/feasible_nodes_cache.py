"""Lookout: feasible nodes of a shape over a span of slots, with the room on each, kept up to date."""

from __future__ import annotations

from collections import OrderedDict
from typing import TYPE_CHECKING, Final, TypeAlias

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from gpuplan.models.problem.jobs import Shape
    from gpuplan.models.problem.problem import Problem
    from gpuplan.solvers.state.resource_timeline import ResourceTimeline

    Ints: TypeAlias = NDArray[np.int64]

    Key: TypeAlias = tuple[Shape, tuple[int, ...], int, int, bool]
    """(shape, groups, first slot, slot after the last, whether room must be undisturbed too)."""

_NODE_WITH_GPUS: Final = 2**60
"""Jobs without GPUs use nodes with GPUs last."""


class FeasibleNodes:
    """Room for one shape on some nodes over one span; nodes of least `tightness` are taken first."""

    def __init__(
        self,
        timeline: ResourceTimeline,
        undisturbed: ResourceTimeline | None,
        nodes: Ints,
        shape: Shape,
        span: tuple[int, int],
    ) -> None:
        """Nodes with room on both timelines."""
        self.nodes = nodes
        self._timetable = timeline
        self._undisturbed = undisturbed
        self._shape = shape
        self._span = span
        self.room: Ints = np.zeros(len(nodes), dtype=np.int64)
        self.tightness: Ints = np.zeros(len(nodes), dtype=np.int64)
        """
        The least is taken first: the fewest wholly free GPUs, then the fewest cores.

        GPUs of the worst slot count twice. GPUs right before and after the span count once: they should stay
        useful to other jobs.
        """
        self._seen = timeline.version
        self._look(np.arange(len(nodes)))

    def refresh(self) -> None:
        """Look again at the nodes that changed."""
        timeline = self._timetable
        if timeline.version > self._seen:
            self._look(np.flatnonzero(timeline.changed_at[self.nodes] > self._seen))
            self._seen = timeline.version

    def shut(self, position: int) -> None:
        """Set the room on a node to 0 until the node changes, since nothing fits there."""
        self.room[position] = 0

    def _look(self, positions: Ints) -> None:
        if not len(positions):
            return
        nodes, timeline, (first, until) = self.nodes[positions], self._timetable, self._span
        room = timeline.room_in(self._shape, nodes, first, until)
        if self._undisturbed is not None:
            room = np.minimum(room, self._undisturbed.room_in(self._shape, nodes, first, until))
        self.room[positions] = room
        cores = timeline.left[first:until, nodes, 0].min(axis=0) if timeline.left.shape[2] else 0
        if self._shape.quota_milli:
            whole, slots = timeline.whole, len(timeline.whole)
            around = whole[first - 1, nodes] + (whole[until, nodes] if until < slots else 0)
            self.tightness[positions] = (2 * whole[first:until, nodes].min(axis=0) + around) * 2**40 + cores
        else:
            self.tightness[positions] = cores + np.where(timeline.has_gpus[nodes], _NODE_WITH_GPUS, 0)


class FeasibleNodesCache:
    """The lookouts of one ledger; recently used ones are kept."""

    def __init__(
        self, problem: Problem, timeline: ResourceTimeline, undisturbed: ResourceTimeline | None, most: int
    ) -> None:
        """At most `most` lookouts are kept."""
        self._problem = problem
        self._timetable = timeline
        self._undisturbed = undisturbed
        self._most = most
        self._found: OrderedDict[Key, FeasibleNodes] = OrderedDict()

    def of(self, key: Key) -> FeasibleNodes:
        """The feasible of a shape on the nodes of some groups over a span, up to date."""
        if (found := self._found.get(key)) is None:
            shape, groups, first, until, beside_all = key
            nodes = sorted(node for group in groups for node in self._problem.groups[group].nodes)
            where = np.array(nodes, dtype=np.int64)
            undisturbed = self._undisturbed if beside_all else None
            found = FeasibleNodes(self._timetable, undisturbed, where, shape, (first, until))
            self._found[key] = found
            if len(self._found) > self._most:
                self._found.popitem(last=False)
        self._found.move_to_end(key)
        found.refresh()
        return found
