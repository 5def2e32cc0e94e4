"""Place an aggregate answer on nodes, GPUs and MIG instances; jobs without a place are always counted."""

from __future__ import annotations

import time
from dataclasses import replace
from functools import cached_property
from operator import truediv
from typing import TYPE_CHECKING, TypeAlias

import numpy as np

from gpuplan.models.problem.jobs import Role, Togetherness
from gpuplan.solvers.deadline import is_late
from gpuplan.solvers.heuristics import vacate
from gpuplan.solvers.heuristics.gang_placement import place_job
from gpuplan.solvers.heuristics.greedy import greedy
from gpuplan.solvers.heuristics.greedy_fill import fill, grow, ranking
from gpuplan.solvers.heuristics.list_scheduling import foresee, mend
from gpuplan.solvers.heuristics.node_scaling import close_idle, shut_unused
from gpuplan.solvers.heuristics.preemption import Preemption, preempt, take_back
from gpuplan.solvers.heuristics.promise_reservations import start_firm
from gpuplan.solvers.heuristics.pull_forward import advance
from gpuplan.solvers.improve.squeaky_wheel import book_gangs, book_later, held
from gpuplan.solvers.rounding.domain_swaps import deal, keeps_rules
from gpuplan.solvers.rounding.swap_repair import Relief, movable
from gpuplan.solvers.state.assignment import Site
from gpuplan.solvers.state.constraints.affinity import NOBODY_MINDS
from gpuplan.solvers.state.disruption_state import Leave
from gpuplan.solvers.state.ledger import Ledger
from gpuplan.solvers.state.node_scoring import Board
from gpuplan.solvers.targets.migration_cycles import undo_circles
from gpuplan.solvers.targets.place_at import take_all

if TYPE_CHECKING:
    from collections.abc import Iterator

    from numpy.typing import NDArray

    from gpuplan.models.formulation.structure.aggregate import Aggregate, Batch
    from gpuplan.models.problem.jobs import Option
    from gpuplan.models.problem.problem import Problem
    from gpuplan.solvers.improve.squeaky_wheel import Later
    from gpuplan.solvers.state.placement_profile import Tenant

    Ints: TypeAlias = NDArray[np.int64]


def disaggregate(
    problem: Problem, aggregate: Aggregate, *, deadline: float | None = None, once: bool = False
) -> tuple[Ledger, int]:
    """
    Place the counts of an aggregate answer, then fill what is left; also returns the number of jobs missed.

    Jobs are placed by first fit decreasing; of equal sizes those come first that take most of what else is
    scarce. If sizes divide each other and no other resource is scarce, every job gets its intended place. If
    some job does not, and there is time for another pass before the deadline (an instant of
    `time.monotonic`), a second pass orders only replicas of several GPUs by size and all others by density.
    There the jobs with most points look elsewhere at once, which loses less value, and gangs that start later
    reserve their domains before other jobs. The better pass counts; with `once` there is only one. If no pass
    can restore every job that left to migrate, greedy's plan is the answer. After the deadline no later start
    is reserved.
    """
    done, began = [], time.monotonic()
    for patient in (True,) if once else (True, False):
        now = time.monotonic()
        if not patient and is_late(deadline and deadline - (now - began)):
            break
        attempt = _Realization(problem, aggregate, patient=patient, deadline=deadline)
        if attempt.run():
            done.append(attempt)
            if not attempt.strayed:
                break
    if not done:
        promised = sum(jobs for batch in aggregate.batches for _, jobs in batch.jobs)
        return greedy(problem, deadline=deadline), promised
    best = max(done, key=lambda each: (each.ledger.keeps_order, each.ledger.objective, -each.missed))
    return best.ledger, best.missed


class _Realization:
    """One pass over an aggregate answer."""

    def __init__(
        self, problem: Problem, aggregate: Aggregate, *, patient: bool, deadline: float | None
    ) -> None:
        """If patient, every job with an intended place takes it before others look elsewhere, all by size."""
        self.ledger = Ledger(problem)
        self._problem = problem
        self._aggregate = aggregate
        self._patient = patient
        self._deadline = deadline
        amounts = zip(*(node.amounts for node in problem.nodes), strict=True)
        self._totals = [max(1, sum(column)) for column in amounts]
        self._rank = {index: position for position, index in enumerate(ranking(problem))}
        self._astray: dict[int, int] = {}
        """Jobs by class that missed their intended place and look for another at the end."""
        self._preemption = Preemption(self.ledger)
        self.strayed = False
        """True if a job missed its intended place or slot."""
        self._boards: dict[tuple[Tenant, tuple[int, ...]], Board] = {}
        self.missed = 0
        """Jobs that found no place at all."""

    def run(self) -> bool:
        """Place everything; False if a job that left can neither migrate nor return."""
        ledger, aggregate = self.ledger, self._aggregate
        self._make_way()
        for batch in sorted(self._batches(), key=self._order):
            self._realize(batch)
        for node, gpu in sorted(aggregate.instances):
            ledger.capacity.release(node, gpu)
        self._place_astray()
        if not self._settle_moves() or not undo_circles(ledger):
            return False
        shut_unused(ledger)
        # Replicas of the answer come before jobs that may return to their places.
        grow(ledger)
        # No job is preempted now for a start that comes later, unless that is its own restart.
        book_later(ledger, self._resumptions(), deadline=self._deadline)
        take_back(ledger)
        self._book()
        fill(ledger)
        # A missed job may be worth another preemption.
        if (
            self.missed
            and not is_late(self._deadline)
            and preempt(ledger, self._rank, self._preemption, deadline=self._deadline)
        ):
            take_back(ledger)
            fill(ledger)
        close_idle(ledger)
        mend(ledger)
        if self._problem.slots > 1:
            advance(ledger, deadline=self._deadline)
            foresee(ledger, deadline=self._deadline)
        return True

    def _resumptions(self) -> list[Later]:
        """Later restarts of preempted jobs."""
        classes = self._problem.classes
        return [each for each in self._aggregate.later if classes[each[0]].role is Role.RESUME]

    def _book(self) -> None:
        """Reserve starts in later slots: in the slot of the answer, or in the first later one with room."""
        late, missed = book_later(self.ledger, self._aggregate.later, deadline=self._deadline)
        self.missed += missed
        self.strayed |= late > 0

    def _make_way(self) -> None:
        """Take leaving jobs off, open and close nodes, and keep MIG instances for the jobs that need them."""
        ledger, aggregate = self.ledger, self._aggregate
        if self._problem.bookings:
            start_firm(ledger)
        if not self._patient:
            book_gangs(self.ledger, aggregate.later)
        for index in aggregate.stopped:
            vacate.stop(ledger, index)
        for index in aggregate.moved:
            vacate.leave_to_move(ledger, index)
        for index, positions in aggregate.shrunk:
            vacate.shrink(ledger, index, positions)
        for pool, nodes in aggregate.opened:
            for _ in range(nodes):
                ledger.open(pool)
        for pool, nodes in aggregate.closed:
            left = nodes
            for node in self._problem.pools[pool].closable:
                left -= left > 0 and ledger.close(node)
        for (node, gpu), instances in sorted(aggregate.instances.items()):
            places = {(instance.profile, instance.start) for instance in instances}
            ledger.capacity.reserve(node, gpu, places)

    def _order(self, batch: Batch) -> tuple[bool, int, float, int]:
        """
        Sort key: jobs with locality rules, then the largest replicas, then the most points.

        If patient, of equal sizes those come first that take most of another resource. If not, all replicas
        of at most one GPU count as equal, whatever else they take.
        """
        job_class = self._problem.classes[batch.jobs[0][0]]
        shape, bound = job_class.shape, job_class.together != Togetherness()
        size = shape.quota_milli if self._patient else max(1, shape.gpus)
        share = max(map(truediv, shape.amounts, self._totals), default=0.0) if self._patient else 0.0
        return not bound, -size, -share, min(self._rank[index] for index, _ in batch.jobs)

    def _realize(self, batch: Batch) -> None:
        """Place the jobs of a batch on the nodes of the answer."""
        first = batch.jobs[0][0]
        waiting = []
        for index, jobs in sorted(batch.jobs, key=self._by_rank):
            if (number := held(self.ledger, index)) is not None:
                # A held job keeps its later start if it cannot start now.
                self.ledger.start_booked(number)
            else:
                waiting += [index] * min(jobs, self.ledger.jobs_left(index))
        if not waiting:
            return
        if self.ledger.tenants[first].manners != NOBODY_MINDS:
            waiting = self._one_by_one(batch, waiting)
        else:
            sites = list[Site]()
            for nodes, replicas in batch.places:
                sites += self._take(first, nodes, replicas, len(waiting))
            waiting = self._settle(batch, sites, waiting, len(waiting))
            waiting = self._relieved(batch, waiting)
        self.strayed |= bool(waiting)
        for index in self._make_room(batch, waiting):
            self._astray[index] = self._astray.get(index, 0) + 1
        if self._is_plain(batch) and not self._patient:
            # Jobs with most points look for another place before other jobs take it.
            self._place_astray()

    def _relieved(self, batch: Batch, waiting: list[int]) -> list[int]:
        """Place jobs of one replica by exchanging others; returns the jobs left over."""
        first = self._problem.classes[batch.jobs[0][0]]
        hopeless = first.maximum > 1 or not first.shape.gpus + first.shape.gpu_milli
        if not waiting or hopeless or is_late(self._deadline):
            return waiting
        ledger, nodes = self.ledger, sorted({node for places, _ in batch.places for node in places})
        relief = Relief(ledger, np.array(nodes, dtype=np.int64), self._movable)
        over, node = list[int](), None
        for index in waiting:
            # An exchange may make room for more than one.
            if is_late(self._deadline):
                over.append(index)
            elif node is None or not self._placed_on(batch, index, node):
                node = relief.node_for(index)
                if node is None or not self._placed_on(batch, index, node):
                    over.append(index)
        return over

    @cached_property
    def _movable(self) -> frozenset[int]:
        return movable(self.ledger)

    def _placed_on(self, batch: Batch, index: int, node: int) -> bool:
        option = self._option(batch, index, [Site(node)])
        return option is not None and bool(self.ledger.place(index, option, jobs=1, nodes=np.array([node])))

    def _make_room(self, batch: Batch, waiting: list[int]) -> list[int]:
        """Preempt further jobs for those without their intended place, where that pays; returns the rest."""
        nodes = np.array(sorted({node for places, _ in batch.places for node in places}), dtype=np.int64)
        hopeless, over = set[int](), []
        for index in waiting:
            if index in hopeless or not self._preemption.make_room(index, nodes):
                hopeless.add(index)
                over.append(index)
        return over

    def _is_plain(self, batch: Batch) -> bool:
        """True if only room and price decide where the jobs go."""
        first = batch.jobs[0][0]
        free = self._problem.classes[first].together == Togetherness()
        return free and self.ledger.tenants[first].manners == NOBODY_MINDS

    def _batches(self) -> Iterator[Batch]:
        """The batches; unless patient, plain ones class by class, so that the most points go first."""
        for batch in self._aggregate.batches:
            if self._patient or len(batch.jobs) == 1 or not self._is_plain(batch):
                yield batch
                continue
            left = [replicas for _, replicas in batch.places]
            for index, jobs in sorted(batch.jobs, key=self._by_rank):
                wanted = jobs * self._problem.classes[index].maximum
                places = []
                for position, (nodes, _) in enumerate(batch.places):
                    if taken := min(wanted, left[position]):
                        places.append((nodes, taken))
                        left[position] -= taken
                        wanted -= taken
                yield replace(batch, jobs=((index, jobs),), places=tuple(places))

    def _by_rank(self, jobs: tuple[int, int]) -> int:
        return self._rank[jobs[0]]

    def _one_by_one(self, batch: Batch, waiting: list[int]) -> list[int]:
        """Place jobs with affinity rules one at a time; returns the jobs left over."""
        nodes = sorted({node for places, _ in batch.places for node in places})
        where, over = np.array(nodes, dtype=np.int64), []
        for index in waiting:
            options = [self._problem.classes[index].options[position] for position in batch.options]
            if not any(self._one(index, option, where) for option in options):
                over.append(index)
        return over

    def _one(self, index: int, option: Option, nodes: Ints) -> bool:
        job_class = self._problem.classes[index]
        headroom = self.ledger.headroom_now(job_class, option, job_class.minimum)
        return headroom > 0 and place_job(self.ledger, index, option, nodes)

    def _take(self, index: int, nodes: tuple[int, ...], replicas: int, jobs: int) -> list[Site]:
        """Sites on some nodes, in each domain at most as many as `jobs` jobs may have there."""
        ledger, rules = self.ledger, self._problem.classes[index].together
        tenant = ledger.tenants[index]
        if rules.spread is None:
            if (tenant, nodes) not in self._boards:
                self._boards[tenant, nodes] = Board(ledger, tenant, np.array(nodes, dtype=np.int64))
            return ledger.take(index, self._boards[tenant, nodes], replicas)
        board = Board(ledger, tenant, np.array(nodes, dtype=np.int64))
        of, sites = ledger.domains.of(rules.spread), list[Site]()
        count = np.zeros(ledger.domains.count(rules.spread), dtype=np.int64)
        while len(sites) < replicas and (node := board.best(ledger)) is not None:
            sites.append(ledger.take_one(index, node))
            count[of[node]] += 1
            if count[of[node]] >= rules.most * jobs:
                board.close(of[board.nodes] == of[node])
        return sites

    def _settle(self, batch: Batch, sites: list[Site], waiting: list[int], jobs: int) -> list[int]:
        """Form up to `jobs` jobs from sites; returns the jobs left over."""
        ledger, taker = self.ledger, batch.jobs[0][0]
        first = self._problem.classes[taker]
        jobs = min(jobs, len(waiting), len(sites) // first.minimum)
        hands, rest = deal(ledger, first.together, sites, jobs, first.minimum, first.maximum)
        for site in rest:
            ledger.give(taker, site)
        over = []
        for position, index in enumerate(waiting):
            hand = hands[position] if position < len(hands) else []
            option = self._option(batch, index, hand)
            if option is None or not keeps_rules(ledger, first.together, hand):
                for site in hand:
                    ledger.give(taker, site)
                over.append(index)
            elif not self._hand_over(taker, index, hand) or not ledger.settle(index, option, hand, jobs=1):
                over.append(index)
        return over

    def _hand_over(self, taker: int, index: int, sites: list[Site]) -> bool:
        """Hand sites taken for one class to another, which may run longer; False if that is not allowed."""
        ledger = self.ledger
        if ledger.tenants[taker] == ledger.tenants[index]:
            return True
        for site in sites:
            ledger.give(taker, site)
        return take_all(ledger, index, sites)

    def _option(self, batch: Batch, index: int, sites: list[Site]) -> Option | None:
        """The option of a class to which its sites belong."""
        options = self._problem.classes[index].options
        for position in batch.options:
            if sites and self.ledger.group_of[sites[0].node] in options[position].groups:
                return options[position]
        return None

    def _place_astray(self) -> None:
        """Place jobs without their intended place wherever they fit."""
        for index in sorted(self._astray, key=lambda index: self._rank[index]):
            jobs = self._astray[index]
            for option in self._problem.classes[index].options:
                if jobs:
                    jobs -= self.ledger.place(index, option, jobs=jobs)
            self.missed += jobs
        self._astray.clear()

    def _settle_moves(self) -> bool:
        """Restore or preempt jobs that left and found no other place; False if a job allows neither."""
        ledger = self.ledger
        for number, placed in sorted(ledger.placed.items()):
            index = self._problem.classes[placed.job_class].incumbent
            if index is not None and vacate.is_back(ledger, index, placed):
                ledger.remove(number)
        for index in ledger.fates.having(Leave.MOVE):
            job_class = self._problem.incumbents[index].move
            if job_class is None or ledger.is_placed(job_class):
                continue
            if not vacate.restore(ledger, index) and not vacate.stop(ledger, index):
                mark = ledger.mark()
                if not vacate.put_back(ledger, index):
                    ledger.rollback(mark)
                    return False
        return True
