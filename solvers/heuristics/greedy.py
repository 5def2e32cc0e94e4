"""Greedy heuristic: a feasible plan for every problem, within milliseconds for most."""

from __future__ import annotations

import time
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, NamedTuple

from gpuplan.solvers.deadline import is_late
from gpuplan.solvers.heuristics.bulk_preemption import preempt_in_bulk
from gpuplan.solvers.heuristics.greedy_fill import fill_free_capacity, fill_orders
from gpuplan.solvers.heuristics.guarantees.early_starts import settle_early_starts
from gpuplan.solvers.heuristics.guarantees.idle_gpus import use_idle_gpus
from gpuplan.solvers.heuristics.guarantees.quota_exchange import exchange_for_guarantees
from gpuplan.solvers.heuristics.guarantees.several_for_one import start_several_for_one
from gpuplan.solvers.heuristics.list_scheduling import (
    ListScheduler,
    cancel_broken_starts,
    pull_starts_forward,
    reserve_best_starts,
    schedule_in_order,
)
from gpuplan.solvers.heuristics.placement import is_single_replica
from gpuplan.solvers.heuristics.pool_nodes import close_idle_nodes, open_pool_nodes
from gpuplan.solvers.heuristics.preemption import PreemptionSearch, preempt_for_waiting
from gpuplan.solvers.heuristics.promise_reservations import start_firm_reservations
from gpuplan.solvers.heuristics.vacate import restore_preempted, vacate_drained_nodes
from gpuplan.solvers.params.placement import FillOrder, PlacementParams
from gpuplan.solvers.state.disruption_state import DisruptionKind
from gpuplan.solvers.state.ledger import Ledger
from gpuplan.solvers.targets.migration_cycles import break_migration_cycles
from gpuplan.solvers.targets.to_target import target_of

if TYPE_CHECKING:
    from gpuplan.models.placement import Placement
    from gpuplan.models.plan.solution import DesiredState
    from gpuplan.models.problem.problem import Problem


def greedy(
    problem: Problem,
    *,
    deadline: float | None = None,
    thorough: bool = False,
    params: PlacementParams = PlacementParams(),
) -> Ledger:
    """
    Plan in one pass: drain, fill, open nodes of pools, preempt, and clean up.

    If priorities are tiers, this is done for one priority after the other, the highest first. Of several
    plans the result is the one that is best for the highest priority in which they differ.

    If running jobs may be preempted, greedy preempts in bulk (`bulk_preemption`). It also makes plans with
    preemption one by one alone, if running jobs are few, a guarantee stays unmet, or the plan must be
    `thorough` since no solver improves it. Then running jobs are stopped, each for several jobs that a quota
    keeps out (`several_for_one`), starts are exchanged for jobs that a guarantee is owed to
    (`quota_exchange`), and jobs are exchanged where GPUs are idle (`idle_gpus`). Where a job may get its
    place either way, new nodes or preemption may be cheaper: both orders are tried. Jobs migrate only off
    nodes that should be drained.

    With several slots, one pass decides starts now and later. Further passes place gangs that need one domain
    before all other jobs, if preemption is allowed; decide the starts of now first; and do so again on the
    assumption that preempted jobs resume later.

    If the plan must be `thorough` and many jobs of one replica find no place, these are placed in other
    orders too (`FillOrder`).

    After the first order, no order begins that would not end by the deadline (an instant of
    `time.monotonic`). After the deadline no job is preempted, no node is opened and no later start is
    planned; the first filling always ends.
    """
    return _best_plan(problem, deadline, params, thorough=thorough).ledger


class PlansByPriority(NamedTuple):
    """Plans of greedy."""

    targets: dict[int, DesiredState]
    """By priority, after its turn."""
    objective: int
    """Gain of the last one over no change."""


def greedy_by_priority(
    problem: Problem,
    running: tuple[Placement, ...],
    *,
    deadline: float | None = None,
    thorough: bool = False,
    params: PlacementParams = PlacementParams(),
) -> PlansByPriority:
    """
    Greedy's plan after the turn of each priority, without jobs of lower priority.

    It is the plan that greedy makes if jobs of lower priority do not exist.
    """
    # Going back takes as long as a part of the plan. Over several slots, completing each turn takes longer.
    at_once = running if problem.slots == 1 else None
    done = _best_plan(problem, deadline, params, thorough=thorough, running=at_once)
    ledger, last = done.ledger, problem.priorities[-1]
    found = {**done.targets, last: target_of(ledger, running)}
    planned = PlansByPriority(found, ledger.objective)
    if at_once is not None:
        return planned
    for priority, mark in reversed(list(zip(problem.priorities[:-1], done.marks, strict=False))):
        ledger.undo.rollback(mark)
        ledger.current_priority = priority
        if not _finish(ledger, deadline):
            break
        found[priority] = target_of(ledger, running)
    ledger.current_priority = None
    return planned


def _best_plan(
    problem: Problem,
    deadline: float | None,
    params: PlacementParams,
    *,
    thorough: bool,
    running: tuple[Placement, ...] | None = None,
) -> _GreedyPlan:
    orders = greedy_orders(problem, params, thorough=thorough)
    contest = _Contest(problem, deadline, params, orders[0], running)
    for way in (*orders[1:], *_orders_for_owed(contest.best.ledger, orders)):
        contest.enter(way, params)
    leader = contest.best
    for order in _other_fill_orders(leader.ledger) if thorough else ():
        contest.enter(leader.way, replace(params, greedy=replace(params.greedy, fill_order=order)))
    return contest.best


class _Contest:
    """The best of several plans of one problem; the first one always ends."""

    def __init__(
        self,
        problem: Problem,
        deadline: float | None,
        params: PlacementParams,
        first: GreedyOrder,
        running: tuple[Placement, ...] | None,
    ) -> None:
        self._problem, self._deadline, self._running = problem, deadline, running
        self._began = time.monotonic()
        self.best = _plan(problem, first, deadline, params, running=running)
        self._made = 1

    def enter(self, way: GreedyOrder, params: PlacementParams) -> None:
        """Make one more plan, unless it is too late for one that takes as long as the average so far."""
        took = (time.monotonic() - self._began) / self._made
        if is_late(self._deadline and self._deadline - took):
            return
        with suppress(_BehindError):
            plan = _plan(self._problem, way, self._deadline, params, running=self._running, rival=self.best)
            self.best = max(self.best, plan, key=lambda each: each.points)
        self._made += 1


class _BehindError(Exception):
    """Another plan is better for a priority, and no worse for those before it."""


def _orders_for_owed(ledger: Ledger, tried: list[GreedyOrder]) -> list[GreedyOrder]:
    """Preemption one by one, if all orders tried are without, and the first plan leaves a guarantee unmet."""
    alone = any(not way.bulk_preemption for way in tried)
    unmet = any(each > 0 for each in ledger.queues.quota.missing)
    many = len(ledger.problem.incumbents) > ledger.params.greedy.owed_incumbents
    return [] if alone or many or not unmet else [GreedyOrder(pools_first=True)]


def _other_fill_orders(ledger: Ledger) -> list[FillOrder]:
    """Other orders of the jobs of one replica, if many find no place; none that comes to the same."""
    problem, params = ledger.problem, ledger.params.greedy
    singles = [index for index in range(len(problem.classes)) if is_single_replica(ledger, index)]
    jobs = sum(len(problem.classes[index].jobs) for index in singles)
    left = sum(ledger.jobs_left(index) for index in singles)
    if len(singles) < 2 or not left or left < params.crowded_share * jobs:
        return []
    return [order for order in fill_orders(problem, singles) if order is not params.fill_order]


def greedy_orders(
    problem: Problem, params: PlacementParams = PlacementParams(), *, thorough: bool = False
) -> list[GreedyOrder]:
    """The orders of decisions that greedy tries."""
    may_open = any(pool.nodes for pool in problem.pools)
    may_preempt = any(each.stop_points is not None or each.shrinkable for each in problem.incumbents)
    orders = (True, False) if may_open and may_preempt else (True,)
    if problem.slots > 1:
        ahead = params.greedy.gangs_first and may_preempt and bool(single_domain_gangs(problem))
        in_one_pass = [(True, False), *([(True, True)] if ahead else [])]
        listings = [*(in_one_pass if params.greedy.list_scheduling else []), (False, False)]
        found = [
            GreedyOrder(pools_first=pools_first, list_scheduling=listed, gangs_first=gangs_first)
            for listed, gangs_first in listings
            for pools_first in orders
        ]
        may_resume = params.greedy.resuming and any(each.resume is not None for each in problem.incumbents)
        return [*found, *([GreedyOrder(pools_first=True, resuming=True)] if may_resume else [])]
    if not may_preempt:
        return [GreedyOrder(pools_first=True)]
    if not params.bulk_preemption.enabled:
        return [GreedyOrder(pools_first=each) for each in orders]
    few = len(problem.incumbents) <= params.greedy.few_incumbents
    alone = orders if thorough or few else orders[:-1]
    return [
        GreedyOrder(pools_first=not may_open, bulk_preemption=True),
        *(GreedyOrder(pools_first=each) for each in alone),
    ]


@dataclass(frozen=True)
class GreedyOrder:
    """One order of decisions."""

    pools_first: bool
    """Open new nodes before preempting."""
    list_scheduling: bool = False
    """Plan later starts together with those of now."""
    gangs_first: bool = False
    """Before that, place gangs that need one domain."""
    bulk_preemption: bool = False
    """Preempt running jobs in bulk before any job starts."""
    resuming: bool = False
    """Choose victims by what is lost if each resumes at its best later start."""
    moving: bool = True


@dataclass(frozen=True)
class _GreedyPlan:
    """A plan made with one order of decisions."""

    ledger: Ledger
    way: GreedyOrder
    points: tuple[int, ...]
    """Objective after the turn of each priority; the last one after clean-up."""
    marks: tuple[int, ...]
    """Marks of the ledger after the turn of each priority."""
    targets: dict[int, DesiredState]
    """The plan after the turn of each priority but the last, where that was asked for."""


def _plan(
    problem: Problem,
    way: GreedyOrder,
    deadline: float | None,
    params: PlacementParams,
    *,
    running: tuple[Placement, ...] | None = None,
    rival: _GreedyPlan | None = None,
) -> _GreedyPlan:
    """
    Plan in one order; with the placements of `running` jobs, also note the plan after each turn.

    Raises
    ------
    _BehindError
        The `rival` is better whatever follows. Not raised while jobs migrate: they may have to stay, and then
        the plan is made anew.
    """
    ledger = Ledger(problem, params)
    start_firm_reservations(ledger)
    vacate_drained_nodes(ledger, moving=way.moving)
    points, marks, targets, early = [], [], dict[int, "DesiredState"](), set[int]()
    for ledger.current_priority in problem.priorities or (None,):
        _plan_priority(ledger, way, deadline)
        settle_early_starts(ledger, early)
        points.append(ledger.objective)
        marks.append(ledger.undo.mark())
        # Clean-up still changes the points of the last turn.
        turns = len(points) if len(points) < len(problem.priorities) else 0
        behind = rival is not None and tuple(points[:turns]) < rival.points[:turns]
        if behind and not ledger.disruptions.having(DisruptionKind.MOVE):
            raise _BehindError
        turn = ledger.current_priority
        if running is not None and turn is not None and turn != problem.priorities[-1]:
            if _finish(ledger, deadline):
                targets[turn] = target_of(ledger, running)
            else:
                targets.clear()
            ledger.undo.rollback(marks[-1])
    ledger.current_priority = None
    if not _finish(ledger, deadline):
        still = replace(way, moving=False)
        return _plan(problem, still, deadline, params, running=running, rival=rival)
    return _GreedyPlan(ledger, way, (*points[:-1], ledger.objective), tuple(marks), targets)


def _finish(ledger: Ledger, deadline: float | None) -> bool:
    """Complete a plan; False if jobs would have to migrate in a cycle."""
    if not break_migration_cycles(ledger):
        return False
    cancel_broken_starts(ledger)
    reserve_best_starts(ledger, deadline=deadline)
    close_idle_nodes(ledger)
    return True


def _plan_priority(ledger: Ledger, way: GreedyOrder, deadline: float | None) -> None:
    """Place the jobs of the current turn."""
    problem, bulk = ledger.problem, way.bulk_preemption and not is_late(deadline)
    if problem.firm_reservations:
        pull_starts_forward(ledger, deadline=deadline)
    if way.gangs_first:
        place_gangs_first(ledger, deadline=deadline)
    if way.list_scheduling:
        schedule_in_order(ledger, deadline=deadline)
    elif bulk:
        mark, before = ledger.undo.mark(), ledger.objective
        preempt_in_bulk(ledger, deadline=deadline)
        if ledger.objective < before:
            # The market knows no quotas: jobs that pay its price may find none where it stopped others.
            ledger.undo.rollback(mark)
            bulk = False
    if not (bulk or way.list_scheduling):
        fill_free_capacity(ledger)
    if way.pools_first and not is_late(deadline):
        open_pool_nodes(ledger)
    if problem.incumbents and not bulk and not is_late(deadline):
        preemption = PreemptionSearch(ledger, hopeful=way.resuming)
        preempted = preempt_for_waiting(ledger, problem.placement_order, preemption, deadline=deadline)
        if preempted or way.gangs_first:
            restore_preempted(ledger)
            fill_free_capacity(ledger)
    if not way.pools_first and not is_late(deadline):
        open_pool_nodes(ledger)
        restore_preempted(ledger)
    if way.resuming:
        schedule_in_order(ledger, deadline=deadline)
    if problem.slots == 1:
        _exchange_jobs(ledger, deadline)


def _exchange_jobs(ledger: Ledger, deadline: float | None) -> None:
    """Exchange jobs for others that a quota keeps out, or that a guarantee is owed to."""
    if ledger.problem.incumbents and ledger.params.preemption.enabled:
        start_several_for_one(ledger, deadline=deadline)
    if not ledger.problem.guarantees:
        return
    if ledger.params.greedy.exchanges:
        exchange_for_guarantees(ledger, deadline=deadline)
    # In an earlier turn, jobs of lower priority would take what those of the next turns can use.
    is_last = ledger.current_priority in (None, *ledger.problem.priorities[-1:])
    if is_last:
        use_idle_gpus(ledger, deadline=deadline)


def place_gangs_first(ledger: Ledger, *, deadline: float | None) -> None:
    """
    Start gangs that need one domain or reserve their start, each in the way worth most, until the deadline.

    They come before all other jobs, and may preempt rather than wait: a domain rarely becomes free as a
    whole, since small jobs keep taking what becomes free in it. Such a gang would lose more by waiting than
    its victims are worth, and later jobs find other nodes.
    """
    listing = ListScheduler(ledger, now=True, most=ledger.problem.depth, deadline=deadline)
    preemption = PreemptionSearch(ledger)
    for index in single_domain_gangs(ledger.problem):
        while ledger.jobs_left(index, now=False):
            if is_late(deadline):
                return
            if not _plan_gang(listing, preemption, index):
                break


def single_domain_gangs(problem: Problem) -> list[int]:
    """Classes of gangs that need one domain and start alone, in the order of placement."""
    classes = problem.classes
    return [
        index
        for index in problem.placement_order
        if classes[index].starts_alone and classes[index].needs_one_domain
    ]


def _plan_gang(listing: ListScheduler, preemption: PreemptionSearch, index: int) -> bool:
    """Start or reserve one job, or preempt for it if that is worth more; False if it finds no place."""
    ledger = preemption.ledger
    mark, before = ledger.undo.mark(), ledger.objective
    found = listing.plan_one(index)
    brought = ledger.objective - before
    if brought >= ledger.problem.classes[index].most_points:
        return found
    ledger.undo.rollback(mark)
    if preemption.make_room(index) and ledger.objective - before > brought:
        return True
    ledger.undo.rollback(mark)
    return listing.plan_one(index)
