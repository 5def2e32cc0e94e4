"""
Repair of a placed answer: what found no place is asked again, node by node.

The block model sums its rows over all nodes of a group, so jobs of its answer may find no place, and running
jobs are stopped in vain. Each round takes some nodes where that happened, lifts the answer's jobs off them,
and solves the block model of these nodes, each as a group of its own, for just the jobs that were there and
those that are missing. It is a neighbourhood with few classes, so it may have more nodes than those of the
search that follows. What still finds no place is tried on other nodes in the next round.
"""

from __future__ import annotations

import time
from collections import Counter
from contextlib import suppress
from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

from gpuplan.models.formulation import formulate
from gpuplan.models.formulation.columns import Columns
from gpuplan.models.formulation.decode import decode
from gpuplan.models.formulation.encode import encode
from gpuplan.solvers.exact import milp
from gpuplan.solvers.heuristics import vacate
from gpuplan.solvers.heuristics.greedy_fill import fill_free_capacity
from gpuplan.solvers.improve.destroy import (
    apply_repair,
    destroy_part,
    destroyable_nodes,
    incumbent_target,
    repaired_part,
    unchanged_target,
)
from gpuplan.solvers.improve.subproblem import Neighbourhood, build_subproblem
from gpuplan.solvers.interface import RepairedAnswer
from gpuplan.solvers.rounding.disaggregate import disaggregate
from gpuplan.solvers.state.disruption_state import DisruptionKind
from gpuplan.solvers.targets.from_target import ledger_of
from gpuplan.solvers.targets.to_target import target_of

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from gpuplan.models.formulation.decode import Aggregate
    from gpuplan.models.placement import Placement
    from gpuplan.models.problem.problem import Problem
    from gpuplan.solvers.improve.destroy import DestroyedPart
    from gpuplan.solvers.interface import Budget, PlacedAnswer
    from gpuplan.solvers.state.ledger import Ledger


def repair_answer(
    problem: Problem,
    running: tuple[Placement, ...],
    answer: PlacedAnswer,
    budget: Budget,
    report: Callable[[object], None],
) -> None:
    """Repair until the plan is as good as the answer, or the time is up; report each better plan."""
    params = budget.params.repair
    ledger = ledger_of(problem, answer.target, params=budget.params.placement)
    if ledger is None:
        return
    wanted = Counter[int]()
    for batch in answer.aggregate.batches:
        wanted.update(dict(batch.jobs))
    chance, in_vain = np.random.default_rng(budget.seed), 0
    while in_vain < params.max_failures and time.monotonic() < budget.deadline:
        if ledger.objective >= answer.points:
            return
        lacking = _lacking(ledger, wanted)
        nodes = _nodes_to_repair(ledger, answer.aggregate, lacking, chance, params.nodes)
        if _repair(ledger, nodes, lacking, answer, budget):
            report(RepairedAnswer(target_of(ledger, running), _lacking(ledger, wanted).total()))
            in_vain = 0
        elif len(nodes) < params.nodes:
            return  # they are all
        else:
            in_vain += 1


def _lacking(ledger: Ledger, wanted: Counter[int]) -> Counter[int]:
    """Jobs of the answer without a place, by class."""
    return wanted - Counter(placed.job_class for placed in ledger.placed.values())


def _nodes_to_repair(
    ledger: Ledger, aggregate: Aggregate, lacking: Counter[int], chance: np.random.Generator, most: int
) -> list[int]:
    """
    Up to so many nodes: first those where the plan differs from the answer, then others with changes.

    The plan differs where GPUs stay free, where a running job is stopped in one of them only, and in the
    domain that a missing gang was to get.
    """
    problem = ledger.problem
    stopped = set(aggregate.stopped)
    odd = stopped ^ set(ledger.disruptions.having(DisruptionKind.STOP))
    left = {hold.node for index in odd for hold in problem.incumbents[index].holds}
    changed = {hold.node for index in stopped for hold in problem.incumbents[index].holds}
    meant, near = set[int](), set[int]()
    for batch in aggregate.batches:
        if not any(lacking[index] for index, _ in batch.jobs):
            continue
        there = {node for nodes, _ in batch.places for node in nodes}
        bound = problem.classes[batch.jobs[0][0]].together.required is not None
        (meant if bound else near).update(there)

    def order(node: int) -> tuple[bool, bool, bool, float]:
        differs = bool(ledger.capacity.gpu_left[node]) or node in left or node in meant
        active = node in changed or bool(ledger.sites.numbers_on[node])
        return not differs, not active, bool(near) and node not in near, float(chance.random())

    return sorted(sorted(destroyable_nodes(ledger), key=order)[:most])


def _repair(
    ledger: Ledger, nodes: Sequence[int], lacking: Counter[int], answer: PlacedAnswer, budget: Budget
) -> bool:
    """Assign some nodes anew to jobs of the answer; False, and nothing changes, if that brings nothing."""
    mark, before, params = ledger.undo.mark(), ledger.objective, budget.params.repair
    lifted = destroy_part(ledger, nodes)
    asked = _narrowed(
        build_subproblem(ledger, nodes, params=budget.params.lns),
        lacking + Counter(placed.job_class for placed in lifted.placed),
        {
            *answer.aggregate.stopped,
            *(index for index, _ in answer.aggregate.shrunk),
            *(index for index, _ in lifted.disruptions),
        },
    )
    deadline = budget.deadline
    if budget.ticks is None:
        deadline = min(deadline, time.monotonic() + params.seconds)
    part = replace(budget, deadline=deadline, workers=1, ticks=None if budget.ticks is None else 1)
    found = _solved(asked, lifted, ledger, answer.points, part)
    if (
        found is not None
        and apply_repair(ledger, repaired_part(asked, found))
        and ledger.meets_priority_floors
    ):
        vacate.restore_preempted(ledger)
        fill_free_capacity(ledger)
        if ledger.objective > before and ledger.meets_priority_floors:
            return True
    ledger.undo.rollback(mark)
    return False


def _narrowed(asked: Neighbourhood, jobs: Counter[int], victims: set[int]) -> Neighbourhood:
    """The same neighbourhood with so many jobs of each class at most, and only these running jobs to stop."""
    classes = [at for at, index in enumerate(asked.classes) if jobs[index]]
    incumbents = [at for at, index in enumerate(asked.incumbents) if index in victims]
    problem, kept = asked.problem, {at: position for position, at in enumerate(incumbents)}
    limits = (
        replace(limit, members=tuple(kept[at] for at in limit.members if at in kept))
        for limit in problem.disruption_limits
    )
    return Neighbourhood(
        replace(
            problem,
            classes=tuple(
                replace(problem.classes[at], jobs=problem.classes[at].jobs[: jobs[asked.classes[at]]])
                for at in classes
            ),
            incumbents=tuple(problem.incumbents[at] for at in incumbents),
            disruption_limits=tuple(limit for limit in limits if limit.members),
        ),
        asked.nodes,
        tuple(asked.classes[at] for at in classes),
        tuple(asked.incumbents[at] for at in incumbents),
    )


def _solved(
    asked: Neighbourhood, lifted: DestroyedPart, ledger: Ledger, points: int, budget: Budget
) -> Ledger | None:
    """The best answer found for a neighbourhood, placed on its nodes; None if there is none."""
    x = Columns(asked.problem, budget.params.formulation)
    formulation = formulate(asked.problem, x)
    hint = nothing = encode(x, unchanged_target(asked.problem))
    if (known := incumbent_target(asked, lifted, ledger.params)) is not None:
        with suppress(KeyError):  # a column of the known answer is missing
            hint = encode(x, known)
    enough = points - ledger.objective + formulation.points(nothing)
    answer = milp.improve(formulation, budget, hint, enough=enough)
    if answer.values is None:
        return None
    return disaggregate(asked.problem, decode(x, answer.values), params=ledger.params)[0]
