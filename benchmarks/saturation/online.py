"""
Fill a cluster pod by pod by a policy: no pod moves and no pod ends.

A pod that does not fit is not tried again: resources are never freed, so it would not fit later either.
"""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Final

import numpy as np

from benchmarks.saturation.packing import Packing
from benchmarks.saturation.policies import policy_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from benchmarks.saturation.policies import Policy
    from benchmarks.saturation.trace import Arrivals, Bools, Ints, Shape, Trace


class Scoreboard:
    """
    Scores of all nodes for each shape that has arrived, kept up to date.

    A pod changes one node: a shape is scored again only on nodes that changed since its last arrival.
    """

    def __init__(self, packing: Packing, policy: Policy) -> None:
        self.packing = packing
        self.policy = policy
        self._scores: dict[Shape, Ints] = {}
        self._allowed: dict[Shape, Bools] = {}
        self._seen: dict[Shape, int] = {}

    def scores(self, shape: Shape) -> Ints:
        """Scores of all nodes; −1 if the node has no room."""
        packing = self.packing
        if shape not in self._scores:
            self._scores[shape] = np.full(len(packing.cpu), -1, dtype=np.int64)
            self._allowed[shape] = packing.allowed(shape)
            stale = np.flatnonzero(self._allowed[shape])
        else:
            stale = np.flatnonzero(self._allowed[shape] & (packing.changed_at > self._seen[shape]))
        self._seen[shape] = packing.version
        if len(stale):
            room = packing.room(shape, stale)
            self._scores[shape][stale[~room]] = -1
            if room.any():
                self._scores[shape][stale[room]] = self.policy.scores(packing, shape, stale[room])
        return self._scores[shape]


def as_arrived(trace: Trace, pods: list[int]) -> list[int]:  # noqa: ARG001
    """First come, first served."""
    return pods


def largest_first(trace: Trace, pods: list[int]) -> list[int]:
    """First fit decreasing: most GPUs first, then most CPU."""
    return sorted(
        pods, key=lambda pod: (-trace.shapes[pod].total_gpu_milli, -trace.shapes[pod].cpu_milli, pod)
    )


def interleaved(trace: Trace, pods: list[int]) -> list[int]:
    """Spread each shape evenly over the batch, so that different pods share nodes; deterministic."""
    turns = (
        ((turn + 0.5) / count, -trace.shapes[pod].total_gpu_milli, pod)
        for pod, count in Counter(pods).items()
        for turn in range(count)
    )
    return [pod for _, _, pod in sorted(turns)]


ORDERS: Final[dict[str, Callable[[Trace, list[int]], list[int]]]] = {
    "as arrived": as_arrived,
    "largest first": largest_first,
    "interleaved": interleaved,
}


def in_batches(
    trace: Trace, pods: Ints, batch: int, order: Callable[[Trace, list[int]], list[int]]
) -> list[int]:
    """Shapes of pods in the order in which a planner that waits for whole batches places them."""
    listed = pods.tolist()
    batches = (listed[first : first + batch] for first in range(0, len(listed), batch))
    return [pod for each in batches for pod in order(trace, each)]


def fill(trace: Trace, arrivals: Arrivals, pods: Iterable[int], name: str, seed: int) -> Ints:
    """Thousandths of GPUs allocated after each pod; pods are given by their shapes in placement order."""
    packing = Packing([trace.machines[index] for index in arrivals.nodes])
    policy = policy_of(name, trace, packing, seed)
    board = Scoreboard(packing, policy)
    draws = np.random.default_rng((seed, 2))
    allocated = []
    for pod in pods:
        shape = trace.shapes[pod]
        scores = board.scores(shape)
        node = int(scores.argmax())
        if scores[node] >= 0:
            if policy.random_ties:
                node = int(draws.choice(np.flatnonzero(scores == scores[node])))
            packing.place(shape, node, policy.gpu(packing, shape, node) if shape.is_share else None)
        allocated.append(packing.allocated)
    return np.array(allocated, dtype=np.int64)
