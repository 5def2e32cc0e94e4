"""
Large neighbourhood search: improve a plan a few nodes at a time, each time solved exactly.

This recovers what the block model counts and placement misses: with few nodes, each can be its own group.
Nodes drawn from the whole cluster, those with free GPUs more often, take turns with adjacent nodes. If there
are few kinds of nodes, plain jobs are first repacked on all nodes by column generation. A large cluster is
improved part by part instead, or after that if most jobs ask for odd shares of GPUs; each part is about as
large as a problem that is solved as a whole.
"""

from __future__ import annotations

import time
from contextlib import suppress
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING

import numpy as np

from gpuplan.models.formulation import formulate
from gpuplan.models.formulation.columns import Columns
from gpuplan.models.formulation.decode import decode
from gpuplan.models.formulation.encode import encode
from gpuplan.models.formulation.structure.replica_types import replica_types_of
from gpuplan.solvers.exact import milp
from gpuplan.solvers.heuristics.greedy_fill import fill_free_capacity
from gpuplan.solvers.heuristics.guarantees.idle_gpus import use_idle_gpus
from gpuplan.solvers.improve.column_generation import repack
from gpuplan.solvers.improve.column_generation.subproblem import covers_whole_problem
from gpuplan.solvers.improve.destroy import (
    apply_repair,
    destroy_part,
    destroyable_nodes,
    incumbent_target,
    repaired_part,
)
from gpuplan.solvers.improve.finer_model import finer_problem, solve_finer_model
from gpuplan.solvers.improve.odd_shares import asks_for_odd_shares
from gpuplan.solvers.improve.pop_partition import partition_cluster, partition_count
from gpuplan.solvers.improve.subproblem import build_subproblem
from gpuplan.solvers.interface import Budget, Headroom
from gpuplan.solvers.parallel import run_in_forks
from gpuplan.solvers.rounding.disaggregate import disaggregate
from gpuplan.solvers.targets.from_target import ledger_of
from gpuplan.solvers.targets.to_target import target_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from gpuplan.models.placement import Placement
    from gpuplan.models.plan.solution import DesiredState
    from gpuplan.models.problem.problem import Problem
    from gpuplan.solvers.improve.destroy import RepairedPart
    from gpuplan.solvers.improve.finer_model import FinerAnswer
    from gpuplan.solvers.improve.pop_partition import Partition
    from gpuplan.solvers.improve.subproblem import ResourceShare
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
    _Refinement(ledger, running, budget, report).run(params.report_seconds + params.report_factor * telling)


class _Refinement:
    """A plan that becomes better step by step."""

    def __init__(
        self,
        ledger: Ledger,
        running: tuple[Placement, ...],
        budget: Budget,
        report: Callable[[object], None],
    ) -> None:
        self.ledger, self._running, self._budget, self._report = ledger, running, budget, report
        self._first = ledger.objective
        self._bound: int | None = None
        """Least upper bound, in the points of `ledger`."""

    def run(self, pause: float) -> None:
        """Improve the plan; while neighbourhoods are solved, report it after each pause in seconds."""
        problem, budget = self.ledger.problem, self._budget
        if use_idle_gpus(self.ledger, deadline=None if budget.ticks is not None else budget.deadline):
            self._tell()
        parts = partition_count(problem, budget.params.partition)
        odd = asks_for_odd_shares(problem)
        finer = finer_problem(problem, budget)
        packs = budget.ticks is None and budget.params.column_generation.enabled
        if finer is not None:
            self._solve_by_kind(finer)
        # The block model of a part counts odd shares no better than that of the whole.
        elif packs and (parts == 1 or odd):
            self._repack()
        if self._is_best:
            return
        if parts > 1:
            improve_partitions(self.ledger, parts, budget, self._tell)
        if budget.params.lns.enabled:
            self._refine(pause)
        self._tell()

    @property
    def _is_best(self) -> bool:
        """True if no plan is better."""
        return self._bound is not None and self.ledger.objective >= self._bound

    def _tell(self) -> None:
        self._report(target_of(self.ledger, self._running))

    def _limit(self, bound: int | None) -> None:
        """Take over an upper bound on all plans."""
        if bound is not None and (self._bound is None or bound < self._bound):
            self._bound = bound
            self._report(Headroom(bound - self._first))

    def _solve_by_kind(self, finer: Problem) -> None:
        """Solve the finer model, in most of the time."""
        ledger, now, params = self.ledger, time.monotonic(), self._budget.params.finer_model
        part = replace(self._budget, deadline=now + params.share_of_time * (self._budget.deadline - now))
        known = target_of(ledger, self._running)
        self._take(solve_finer_model(ledger.problem, finer, self._running, known, part, self._take))

    def _take(self, found: FinerAnswer) -> None:
        """Take over what the finer model found."""
        self._limit(found.bound)
        plan = found.plan
        if plan is not None and plan.objective > self.ledger.objective and plan.meets_priority_floors:
            self.ledger = plan
            self._tell()

    def _repack(self) -> None:
        """Repack plain jobs on all nodes if there are few kinds of these."""
        ledger, budget = self.ledger, self._budget
        params = budget.params.column_generation
        free = {(node.gpus, node.amounts) for node in ledger.problem.nodes}
        if len(free) > params.max_node_kinds:
            return
        mark, now = ledger.undo.mark(), time.monotonic()
        deadline = now + params.share_of_repacking * (budget.deadline - now)
        done = repack(ledger, nodes=None, deadline=deadline, seed=budget.seed, params=params)
        fill_free_capacity(ledger)
        if not ledger.meets_priority_floors:
            ledger.undo.rollback(mark)
        # What is repacked has an optimum of its own; only if that is all there is does it bound the plan.
        if covers_whole_problem(ledger):
            self._limit(done.bound)
        self._tell()

    def _refine(self, pause: float) -> None:
        """Solve neighbourhoods until the time is up, or there is no use in more."""
        ledger, budget, params = self.ledger, self._budget, self._budget.params.lns
        rounds = None if budget.ticks is None else budget.ticks * params.per_tick
        told, news = time.monotonic(), False
        neighbourhoods = _Neighbourhoods(ledger, params, budget.seed)
        for number, nodes in enumerate(neighbourhoods):
            if number == rounds or time.monotonic() >= budget.deadline or self._is_best:
                break
            better = improve_neighbourhood(ledger, nodes, budget)
            neighbourhoods.learn(better=better)
            news |= better
            if news and rounds is None and time.monotonic() > told + pause:
                self._tell()
                told, news = time.monotonic(), False


def improve_neighbourhood(ledger: Ledger, nodes: Sequence[int], budget: Budget) -> bool:
    """Solve the problem of some nodes anew; False, and nothing changes, if there is no better answer."""
    mark, before = ledger.undo.mark(), ledger.objective
    deadline, params = budget.deadline, budget.params.lns
    if budget.ticks is None:
        deadline = min(deadline, time.monotonic() + params.seconds * max(1.0, len(nodes) / params.nodes))
    ticks = None if budget.ticks is None else 1  # the unit of work, which `per_tick` counts
    part = Budget(deadline, 1, budget.seed, ticks, params.gap, params=budget.params)
    answer = destroy_and_repair(ledger, nodes, part)
    if (
        answer is not None
        and apply_repair(ledger, answer)
        and ledger.objective > before
        and ledger.meets_priority_floors
    ):
        return True
    ledger.undo.rollback(mark)
    return False


class _Neighbourhoods:
    """
    Neighbourhoods, in turn of nodes from the whole cluster and of adjacent nodes, until there is no use in
    more.

    Nodes with free GPUs are drawn more often, each with a chance in proportion to its weight: the largest of
    u^(1/weight), u uniform (Efraimidis and Spirakis, Information Processing Letters 97, 2006). If none has
    helped for long, they grow; once they have all nodes that the search ends, or begins again with small ones
    if all nodes together would be too many.
    """

    def __init__(self, ledger: Ledger, params: LnsParams, seed: int) -> None:
        self._ledger, self._params = ledger, params
        self._chance = np.random.default_rng(seed)
        self._nodes = np.array(destroyable_nodes(ledger), dtype=np.int64)
        share = int(params.share_of_nodes * len(self._nodes))
        self._fewest = max(params.nodes, min(share, params.most_nodes))
        types = len(replica_types_of(ledger.problem))
        self._most = max(self._fewest, params.most_size // max(1, types))
        self._size, self._in_vain = self._fewest, 0

    def learn(self, *, better: bool) -> None:
        """Whether the last neighbourhood helped."""
        self._in_vain = 0 if better else self._in_vain + 1

    def __iter__(self) -> Iterator[list[int]]:
        nodes, chance = self._nodes, self._chance
        while len(nodes) and self._go_on():
            weight = self._params.base_weight_milli + self._ledger.capacity.gpu_left[nodes]
            drawn = chance.random(len(nodes)) ** (1 / weight)
            yield sorted(nodes[np.argsort(-drawn, kind="stable")[: self._size]].tolist())
            if not self._go_on():
                return
            first = int(chance.integers(max(1, len(nodes) - self._size + 1)))
            yield nodes[first : first + self._size].tolist()

    def _go_on(self) -> bool:
        """False if there is no use in more; changes the size where that is due."""
        # In a large cluster one neighbourhood says little of the others: some of them fail for each.
        if self._in_vain < self._params.max_failures * (1 + len(self._nodes) // self._size):
            return True
        if self._size >= len(self._nodes):
            return False
        self._size, self._in_vain = self._size * 2 if 2 * self._size <= self._most else self._fewest, 0
        return True


def improve_partitions(ledger: Ledger, parts: int, budget: Budget, report: Callable[[], None]) -> None:
    """
    Improve all parts in parallel until that is no longer worthwhile; report after each round that gains.

    The combined plan breaks no rule, since each part keeps to its share. The bound is that of the whole
    problem.
    """
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
        mark, before = ledger.undo.mark(), ledger.objective
        if (answer := answers.get(number)) is None:
            continue
        # The answer was found in a fork, on a copy of this ledger: lifting the same part makes way for it.
        destroy_part(ledger, part.nodes)
        if not apply_repair(ledger, answer) or ledger.objective < before or not ledger.meets_priority_floors:
            ledger.undo.rollback(mark)
    fill_free_capacity(ledger)


def _budgets(budget: Budget, parts: int) -> Iterator[Budget]:
    """Budget of each part: the workers take turns, and each turn leaves some time to place its answer."""
    began, turns = time.monotonic(), max(1, -(-parts // budget.workers))
    turn, params = (budget.deadline - began) / turns, budget.params.partition
    for number in range(parts):
        deadline = began + turn * (number // budget.workers + 1 - params.share_of_placing)
        yield replace(budget, deadline=deadline, workers=1, stop_gap=params.gap)


def destroy_and_repair(
    ledger: Ledger, nodes: Sequence[int], budget: Budget, share: ResourceShare | None = None
) -> RepairedPart | None:
    """
    Lift the jobs off some nodes and assign these anew; None if there is no better answer than before.

    With a share the nodes are a part of the cluster. The ledger stays lifted; the caller rolls it back.
    """
    before = ledger.objective
    lifted = destroy_part(ledger, nodes)
    asked = build_subproblem(ledger, nodes, share, budget.params.lns)
    x = Columns(asked.problem, budget.params.formulation)
    formulation = formulate(asked.problem, x)
    hint = np.zeros(len(formulation.upper), dtype=np.int64)
    if (known := incumbent_target(asked, lifted, ledger.params)) is not None:
        with suppress(KeyError):  # a column of the known answer is missing
            hint = encode(x, known)
            # Of what these nodes bring: guarantees that are missed anyway would make any answer seem close.
            brings, points = before - ledger.objective, abs(formulation.points(hint))
            budget = replace(budget, stop_gap=budget.stop_gap * min(1.0, abs(brings) / max(1, points)))
    answer = milp.solve(formulation, budget, hint, lambda _: None)
    if answer.values is None:
        return None
    found, _ = disaggregate(asked.problem, decode(x, answer.values), params=ledger.params)
    return repaired_part(asked, found) if found.objective > before - ledger.objective else None
