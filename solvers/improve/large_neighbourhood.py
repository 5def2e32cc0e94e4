"""
Large neighbourhood search: improve a plan a few nodes at a time, each time solved exactly.

This recovers what the block model counts and placement misses: with few nodes, each can be its own group.
Nodes drawn from the whole cluster, those with free GPUs more often, take turns with adjacent nodes. If there
are few kinds of nodes, plain jobs are first repacked on all nodes by column generation. A large cluster is
first improved part by part; each part is about as large as a problem that is solved as a whole.
"""

from __future__ import annotations

import time
from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

from gpuplan.solvers.heuristics.greedy_fill import fill_free_capacity
from gpuplan.solvers.improve.column_generation import repack
from gpuplan.solvers.improve.column_generation.subproblem import covers_whole_problem
from gpuplan.solvers.improve.destroy import apply_repair, destroyable_nodes
from gpuplan.solvers.improve.pop_partition import partition_count
from gpuplan.solvers.improve.pop_search import improve_partitions
from gpuplan.solvers.improve.repair import destroy_and_repair
from gpuplan.solvers.interface import Budget, Headroom
from gpuplan.solvers.targets.from_target import ledger_of
from gpuplan.solvers.targets.to_target import target_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from gpuplan.models.placement import Placement
    from gpuplan.models.plan.desired_state import DesiredState
    from gpuplan.models.problem.problem import Problem
    from gpuplan.solvers.params.improve import LnsParams
    from gpuplan.solvers.state.ledger import Ledger


def improve_by_lns(
    problem: Problem,
    running: tuple[Placement, ...],
    target: DesiredState,
    budget: Budget,
    report: Callable[[object], None],
) -> None:
    """Improve a plan until the time is up or the work is done; report each better plan."""
    began, params = time.monotonic(), budget.params.lns
    ledger = ledger_of(problem, target, params=budget.params.placement)
    if ledger is None:
        return
    # To report a plan takes about as long as to replay it.
    telling = time.monotonic() - began
    budget = replace(budget, deadline=budget.deadline - telling)

    def tell() -> None:
        report(target_of(ledger, running))

    if (parts := partition_count(problem, budget.params.partition)) > 1:
        improve_partitions(ledger, parts, budget, tell)
    elif budget.ticks is None and budget.params.column_generation.enabled:
        _repack(ledger, budget, report)
        tell()
    rounds = None if budget.ticks is None else budget.ticks * params.per_tick
    told, news = time.monotonic(), False
    in_vain, patience = 0, params.max_failures * (1 + len(problem.nodes) // params.nodes)
    neighbourhoods = _random_neighbourhoods(ledger, params, budget.seed) if params.enabled else ()
    for number, nodes in enumerate(neighbourhoods):
        if number == rounds or in_vain == patience or time.monotonic() >= budget.deadline:
            break
        if improve_neighbourhood(ledger, nodes, budget):
            in_vain, news = 0, True
        else:
            in_vain += 1
        pause = params.report_seconds + params.report_factor * telling
        if news and rounds is None and time.monotonic() > told + pause:
            tell()
            told, news = time.monotonic(), False
    tell()


def _repack(ledger: Ledger, budget: Budget, report: Callable[[object], None]) -> None:
    """Repack plain jobs on all nodes if few kinds of nodes make that a small problem."""
    params = budget.params.column_generation
    free = {(node.gpus, node.amounts) for node in ledger.problem.nodes}
    if len(free) > params.max_node_kinds:
        return
    mark, before, now = ledger.mark(), ledger.objective, time.monotonic()
    deadline = now + params.share_of_repacking * (budget.deadline - now)
    done = repack(ledger, nodes=None, deadline=deadline, seed=budget.seed, params=params)
    fill_free_capacity(ledger)
    if not ledger.meets_priority_floors:
        ledger.rollback(mark)
    if done.bound is not None and covers_whole_problem(ledger):
        report(Headroom(done.bound - before))


def improve_neighbourhood(ledger: Ledger, nodes: Sequence[int], budget: Budget) -> bool:
    """Solve the problem of some nodes anew; False, and nothing changes, if there is no better answer."""
    mark, before = ledger.mark(), ledger.objective
    deadline, params = budget.deadline, budget.params.lns
    if budget.ticks is None:
        deadline = min(deadline, time.monotonic() + params.seconds)
    ticks = None if budget.ticks is None else 1
    part = Budget(deadline, 1, budget.seed, ticks, params.gap, params=budget.params)
    answer = destroy_and_repair(ledger, nodes, part)
    if (
        answer is not None
        and apply_repair(ledger, answer)
        and ledger.objective > before
        and ledger.meets_priority_floors
    ):
        return True
    ledger.rollback(mark)
    return False


def _random_neighbourhoods(ledger: Ledger, params: LnsParams, seed: int) -> Iterator[list[int]]:
    """
    Endless sequence of neighbourhoods: in turn nodes from the whole cluster and adjacent nodes.

    Nodes with free GPUs are drawn more often, each with a chance in proportion to its weight: the largest of
    u^(1/weight), u uniform (Efraimidis and Spirakis, Information Processing Letters 97, 2006).
    """
    chance = np.random.default_rng(seed)
    nodes = np.array(destroyable_nodes(ledger), dtype=np.int64)
    if not len(nodes):
        return
    while True:
        weight = params.base_weight_milli + ledger.capacity.gpu_left[nodes]
        drawn = chance.random(len(nodes)) ** (1 / weight)
        yield sorted(nodes[np.argsort(-drawn, kind="stable")[: params.nodes]].tolist())
        first = int(chance.integers(max(1, len(nodes) - params.nodes + 1)))
        yield nodes[first : first + params.nodes].tolist()
