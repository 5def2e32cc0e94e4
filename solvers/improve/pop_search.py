"""
Improve all parts of a large cluster in parallel, round after round.

The combined plan breaks no rule, since each part keeps to its share. The bound is that of the whole problem.
"""

from __future__ import annotations

import time
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING

import numpy as np

from gpuplan.solvers.heuristics.greedy_fill import fill_free_capacity
from gpuplan.solvers.improve.destroy import apply_repair, destroy_part
from gpuplan.solvers.improve.pop_partition import partition_cluster
from gpuplan.solvers.improve.repair import destroy_and_repair
from gpuplan.solvers.parallel import run_in_forks

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from gpuplan.solvers.improve.pop_partition import Partition
    from gpuplan.solvers.interface import Budget
    from gpuplan.solvers.state.ledger import Ledger


def improve_partitions(ledger: Ledger, parts: int, budget: Budget, report: Callable[[], None]) -> None:
    """Improve all parts until that is no longer worthwhile; report after each round that gains."""
    chance, params = np.random.default_rng(budget.seed), budget.params.partition
    while time.monotonic() < budget.deadline:
        before = ledger.objective
        _improve_each(ledger, partition_cluster(ledger, parts, chance), budget)
        if ledger.objective > before:
            report()
        least = params.least_gain * abs(ledger.objective)
        if budget.ticks is not None or ledger.objective - before <= least:
            return


def _improve_each(ledger: Ledger, parts: list[Partition], budget: Budget) -> None:
    """Apply the better answers of the parts, and fill what remains."""
    calls = [
        partial(destroy_and_repair, ledger, part.nodes, each, part.share)
        for part, each in zip(parts, _budgets(budget, len(parts)), strict=True)
    ]
    answers = dict(run_in_forks(calls, workers=budget.workers, deadline=budget.deadline))
    for number, part in enumerate(parts):
        mark, before = ledger.mark(), ledger.objective
        if (answer := answers.get(number)) is None:
            continue
        destroy_part(ledger, part.nodes)
        if not apply_repair(ledger, answer) or ledger.objective < before or not ledger.meets_priority_floors:
            ledger.rollback(mark)
    fill_free_capacity(ledger)


def _budgets(budget: Budget, parts: int) -> Iterator[Budget]:
    """Budget of each part: the workers take turns, and each turn leaves some time to place its answer."""
    began, turns = time.monotonic(), max(1, -(-parts // budget.workers))
    turn, params = (budget.deadline - began) / turns, budget.params.partition
    for number in range(parts):
        deadline = began + turn * (number // budget.workers + 1 - params.share_of_placing)
        yield replace(budget, deadline=deadline, workers=1, stop_gap=params.gap)
