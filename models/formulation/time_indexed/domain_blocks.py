"""
Domain blocks: how many gangs with a required domain fit in later slots, as sets of GPU blocks in one domain.

A linear relaxation would clear a small fraction of every domain, wherever that is cheap. So gains count only
on the most expensive nodes of a domain: those without which its other nodes do not suffice.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from gpuplan.models.formulation.time_indexed.future_capacity import WHOLE
from gpuplan.models.units import MILLI

if TYPE_CHECKING:
    from gpuplan.models.cluster import Level
    from gpuplan.models.formulation.rows import Ints
    from gpuplan.models.formulation.time_indexed.early_release import EarlyReleases, Place
    from gpuplan.models.formulation.time_indexed.future_capacity import Area, FutureCapacity


class BlockGang(NamedTuple):
    """Attributes of a gang that decide where it can be placed."""

    level: Level
    replicas: int
    gpus: int
    """GPUs of each replica."""


class DomainBlocks:
    """Bundles for one gang on one area, by slot; a bundle is the set of blocks of one gang in one domain."""

    def __init__(self, ahead: FutureCapacity, area: Area, gang: BlockGang) -> None:
        self._ahead, self._gang, self._nodes = ahead, gang, ahead.on(area)
        self.place: Place = ("bundles", *area, *gang)
        self._of = np.array(ahead.problem.domain_of(gang.level), dtype=np.int64)
        self._blocks: Ints = np.where(self._nodes, ahead.free[:, WHOLE] // gang.gpus, 0)
        """Blocks by slot and node."""
        self._held = np.stack([self._by_domain(blocks) for blocks in self._blocks])
        self.free: Ints = (self._held // gang.replicas).sum(axis=1)
        """Bundles by slot while all running jobs stay."""

    def add_releases(self, gains: EarlyReleases) -> None:
        """
        Register the gains of columns, in thousandths of a bundle.

        A gain is at most what the column could complete alone: ⌊(a + b)/R⌋ ≤ ⌊a/R⌋ + ⌈b/R⌉.
        """
        changes = self._ahead.departing
        here = np.flatnonzero(self._nodes[changes.node])
        columns, nodes, most = changes.column[here], changes.node[here], changes.most[here]
        steps = self._ahead.blocks_gained(self._gang.gpus)[here]
        parts = np.zeros_like(steps)
        for slot in range(1, steps.shape[1]):
            brought = steps[:, slot]
            lacking = self._lacking(slot, nodes, most * np.maximum(0, brought))[nodes]
            part = np.where(lacking > 0, -(-MILLI * brought // np.maximum(1, lacking)), 0)
            alone = MILLI * -(-brought // self._gang.replicas)
            parts[:, slot] = np.where(brought < 0, alone, np.minimum(alone, part))
        gains.note([self.place], np.zeros_like(columns), columns, parts[:, :, None])

    def _lacking(self, slot: int, nodes: Ints, brought: Ints) -> Ints:
        """
        By node, the blocks that the most expensive nodes of its domain must supply for one more bundle there.

        It is 0 for the other nodes, which are as many of the cheapest as leave a shortage. It is also 0 for
        domains that are too small or have too large a shortage. Columns add at most `brought` to each
        node.
        """
        ahead, replicas, held = self._ahead, self._gang.replicas, self._held[slot]
        room = np.bincount(nodes, weights=brought, minlength=len(self._of)).astype(np.int64)
        most = np.maximum(0, ahead.gpus // self._gang.gpus - self._blocks[slot])
        room = np.where(ahead.optional, room, np.minimum(room, most))
        missing = replicas - held % replicas
        reached = held + self._by_domain(room) >= held + missing
        order = np.lexsort((ahead.cost[slot], self._of))
        domain = self._of[order]
        before = np.append(0, np.cumsum(room[order]))
        so_far = before[1:] - before[np.searchsorted(domain, domain)]
        spared = np.zeros(len(room), dtype=bool)
        spared[order] = so_far < missing[domain]
        lacking = np.where(reached, missing - self._by_domain(np.where(spared, room, 0)), 0)
        return np.where(spared, 0, lacking[self._of])

    def _by_domain(self, amounts: Ints) -> Ints:
        count = int(self._of.max()) + 1
        return np.bincount(self._of, weights=amounts, minlength=count).astype(np.int64)
