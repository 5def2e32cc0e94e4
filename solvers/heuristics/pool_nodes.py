"""Open nodes of pools where the jobs on them pay more than the nodes cost, and remove idle ones."""

from __future__ import annotations

from collections import defaultdict
from typing import TYPE_CHECKING

from gpuplan.models.problem.jobs import ClassRole
from gpuplan.solvers.heuristics.greedy_fill import fill_free_capacity

if TYPE_CHECKING:
    from gpuplan.solvers.state.ledger import Ledger


def open_pool_nodes(ledger: Ledger) -> None:
    """
    Open nodes of pools, cheapest per GPU first, while the jobs on them pay for them.

    All nodes of a pool are opened and filled; then nodes that do not earn their price are given up.
    """
    problem = ledger.problem
    groups = {group.pool: group for group in problem.groups if group.pool is not None}
    order = sorted(
        groups, key=lambda pool: (problem.pools[pool].opening_points / max(1, groups[pool].gpus), pool)
    )
    for pool in order:
        mark, before = ledger.undo.mark(), ledger.objective
        while ledger.pools.open(pool) is not None:
            pass
        fill_free_capacity(ledger)
        cancel_unused_nodes(ledger)
        _cancel_unpaid_nodes(ledger, pool)
        fill_free_capacity(ledger)
        if ledger.objective <= before:
            ledger.undo.rollback(mark)


def cancel_unused_nodes(ledger: Ledger) -> None:
    """Cancel the opening of nodes that stay empty."""
    for node in sorted(ledger.pools.opened):
        if not ledger.capacity.replicas[node]:
            ledger.pools.cancel_open(node)


def close_idle_nodes(ledger: Ledger) -> None:
    """Remove empty nodes of pools, while the pool may lose them and that pays."""
    for pool in ledger.problem.pools:
        for node in pool.closable:
            mark, before = ledger.undo.mark(), ledger.objective
            if ledger.pools.close(node) and ledger.objective <= before:
                ledger.undo.rollback(mark)


def _cancel_unpaid_nodes(ledger: Ledger, pool: int) -> None:
    """Give up opened nodes with jobs that bring less than the node costs, the lowest earnings first."""
    earned: dict[int, float] = defaultdict(float)
    on_node: dict[int, set[int]] = defaultdict(set)
    for number, placed in ledger.placed.items():
        worth = ledger.worth(placed) / len(placed.sites)
        for site in placed.sites:
            earned[site.node] += worth
            on_node[site.node].add(number)
    settled = {
        site.node
        for placed in ledger.placed.values()
        if ledger.problem.classes[placed.job_class].role is ClassRole.MOVE
        or ledger.problem.classes[placed.job_class].firm
        for site in placed.sites
    }
    opened = [node for node, of in ledger.pools.opened.items() if of == pool and node not in settled]
    for node in sorted(opened, key=lambda node: (earned[node], node)):
        mark, before = ledger.undo.mark(), ledger.objective
        for number in sorted(on_node[node] & ledger.placed.keys()):
            ledger.remove_from_node(number, node)
        cancel_unused_nodes(ledger)
        if ledger.objective <= before:
            ledger.undo.rollback(mark)
