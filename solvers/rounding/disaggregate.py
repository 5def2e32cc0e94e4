"""Place an aggregate answer on nodes, GPUs and MIG instances; jobs without a place are always counted."""

from __future__ import annotations

import time
from collections import Counter
from dataclasses import replace
from functools import cached_property
from operator import truediv
from typing import TYPE_CHECKING, TypeAlias

import numpy as np

from gpuplan.models.eligibility.preemption_order import may_use_freed
from gpuplan.models.problem.jobs import ClassRole, LocalityRule
from gpuplan.solvers.deadline import is_late
from gpuplan.solvers.heuristics import placement, vacate
from gpuplan.solvers.heuristics.gang_placement import place_job
from gpuplan.solvers.heuristics.greedy import greedy
from gpuplan.solvers.heuristics.greedy_fill import fill_free_capacity, grow_placed_jobs
from gpuplan.solvers.heuristics.list_scheduling import (
    cancel_broken_starts,
    pull_starts_forward,
    reserve_best_starts,
)
from gpuplan.solvers.heuristics.pool_nodes import cancel_unused_nodes, close_idle_nodes
from gpuplan.solvers.heuristics.preemption import PreemptionSearch, preempt_for_waiting
from gpuplan.solvers.heuristics.promise_reservations import start_firm_reservations
from gpuplan.solvers.params.placement import PlacementParams
from gpuplan.solvers.rounding.later_starts import (
    firm_reservation_of,
    reserve_gang_starts,
    reserve_later_starts,
)
from gpuplan.solvers.rounding.priority_floors import meet_priority_floors
from gpuplan.solvers.rounding.swap_repair import (
    SwapRepair,
    distribute_sites,
    movable_classes,
)
from gpuplan.solvers.state.assignment import ReplicaSite
from gpuplan.solvers.state.disruption_state import DisruptionKind
from gpuplan.solvers.state.ledger import Ledger
from gpuplan.solvers.state.node_scores import NodeScores
from gpuplan.solvers.state.placement_profile import NO_AFFINITY
from gpuplan.solvers.targets.from_target import take_sites
from gpuplan.solvers.targets.migration_cycles import break_migration_cycles

if TYPE_CHECKING:
    from collections.abc import Iterator

    from numpy.typing import NDArray

    from gpuplan.models.formulation.decode import Aggregate, Batch
    from gpuplan.models.problem.jobs import Option
    from gpuplan.models.problem.problem import Problem
    from gpuplan.solvers.rounding.later_starts import StartRequests
    from gpuplan.solvers.state.placement_profile import PlacementProfile

    Ints: TypeAlias = NDArray[np.int64]


def disaggregate(
    problem: Problem,
    aggregate: Aggregate,
    *,
    deadline: float | None = None,
    once: bool = False,
    known: int | None = None,
    params: PlacementParams = PlacementParams(),
) -> tuple[Ledger, int]:
    """
    Place the counts of an aggregate answer, then fill what is left; also returns the number of jobs missed.

    Jobs are placed by first fit decreasing; of equal sizes those come first that take most of what else is
    scarce. If sizes divide each other and no other resource is scarce, every job gets its intended place. If
    some job does not, and there is time for another pass before the deadline (an instant of
    `time.monotonic`), a second pass orders only replicas of several GPUs by size and all others by density.
    There the jobs with most points look elsewhere at once, which loses less value, and gangs that start later
    reserve their domains before other jobs. The better pass counts; with `once` there is only one. Where it
    misses the floor of a priority, lower ones give way (`priority_floors`), unless it gains no more over no
    change than the best plan `known`. If no pass can restore every job that left to migrate, greedy's plan is
    the answer. After the deadline no later start is reserved.
    """
    done, began = [], time.monotonic()
    for patient in (True, False) if params.rounding.second_pass and not once else (True,):
        now = time.monotonic()
        if not patient and is_late(deadline and deadline - (now - began)):
            break
        attempt = _Rounding(problem, aggregate, params, patient=patient, deadline=deadline)
        if attempt.run():
            done.append(attempt)
            if not attempt.strayed:
                break
    if not done:
        promised = sum(jobs for batch in aggregate.batches for _, jobs in batch.jobs)
        return greedy(problem, deadline=deadline, params=params), promised
    best = max(
        done, key=lambda each: (each.ledger.meets_priority_floors, each.ledger.objective, -each.missed)
    )
    missed = best.missed
    if params.rounding.meet_floors and (known is None or best.ledger.objective > known):
        missed += meet_priority_floors(best.ledger, deadline=deadline)
    return best.ledger, missed


class _Rounding:
    """One pass over an aggregate answer."""

    def __init__(
        self,
        problem: Problem,
        aggregate: Aggregate,
        params: PlacementParams,
        *,
        patient: bool,
        deadline: float | None,
    ) -> None:
        """If patient, every job with an intended place takes it before others look elsewhere, all by size."""
        self.ledger = Ledger(problem, params)
        self._problem = problem
        self._aggregate = aggregate
        self._patient = patient
        self._deadline = deadline
        amounts = zip(*(node.amounts for node in problem.nodes), strict=True)
        self._totals = [max(1, sum(column)) for column in amounts]  # 1: nothing is divided by 0
        self._rank = {index: position for position, index in enumerate(problem.placement_order)}
        self._astray: dict[int, int] = {}
        """Jobs by class that missed their intended place and look for another at the end."""
        self._preemption = PreemptionSearch(self.ledger)
        self.strayed = False
        """True if a job missed its intended place or slot."""
        self._boards: dict[tuple[PlacementProfile, tuple[int, ...]], NodeScores] = {}
        self.missed = 0
        """Jobs that found no place at all."""

    def run(self) -> bool:
        """Place everything; False if a job that left can neither migrate nor return."""
        ledger, aggregate = self.ledger, self._aggregate
        self._make_way()
        for batch in sorted(self._batches(), key=self._order):
            self._realize(batch)
        # From here on places that were kept for instances of the answer are open to any job.
        for node, gpu in sorted(aggregate.instances):
            ledger.capacity.release(node, gpu)
        self._place_astray()
        if not self._settle_moves() or not break_migration_cycles(ledger):
            return False
        cancel_unused_nodes(ledger)
        # Replicas of the answer come before jobs that may return to their places.
        grow_placed_jobs(ledger)
        # No job is preempted now for a start that comes later, unless that is its own restart.
        reserve_later_starts(ledger, self._resumptions(), deadline=self._deadline)
        vacate.restore_preempted(ledger)
        self._book()
        fill_free_capacity(ledger)
        # A missed job may be worth another preemption.
        if (
            self.missed
            and not is_late(self._deadline)
            and preempt_for_waiting(ledger, self._rank, self._preemption, deadline=self._deadline)
        ):
            vacate.restore_preempted(ledger)
            fill_free_capacity(ledger)
        close_idle_nodes(ledger)
        cancel_broken_starts(ledger)
        pull_starts_forward(ledger, deadline=self._deadline)
        reserve_best_starts(ledger, deadline=self._deadline)
        return True

    def _resumptions(self) -> list[StartRequests]:
        """Later restarts of preempted jobs."""
        classes = self._problem.classes
        return [each for each in self._aggregate.later if classes[each[0]].role is ClassRole.RESUME]

    def _book(self) -> None:
        """Reserve starts in later slots: in the slot of the answer, or in the first later one with room."""
        late, missed = reserve_later_starts(self.ledger, self._aggregate.later, deadline=self._deadline)
        self.missed += missed
        self.strayed |= late > 0

    def _make_way(self) -> None:
        """Take leaving jobs off, open and close nodes, and keep MIG instances for the jobs that need them."""
        ledger, aggregate = self.ledger, self._aggregate
        if self._problem.firm_reservations:
            start_firm_reservations(ledger)
        if not self._patient:
            reserve_gang_starts(self.ledger, aggregate.later)
        for index in aggregate.stopped:
            vacate.stop_incumbent(ledger, index)
        for index in aggregate.moved:
            vacate.vacate_for_move(ledger, index)
        for index, positions in aggregate.shrunk:
            vacate.shrink_incumbent(ledger, index, positions)
        for pool, nodes in aggregate.opened:
            for _ in range(nodes):
                ledger.pools.open(pool)
        for pool, nodes in aggregate.closed:
            left = nodes
            for node in self._problem.pools[pool].closable:
                left -= left > 0 and ledger.pools.close(node)
        for (node, gpu), instances in sorted(aggregate.instances.items()):
            places = {(instance.profile, instance.start) for instance in instances}
            ledger.capacity.reserve(node, gpu, places)

    def _order(self, batch: Batch) -> tuple[bool, int, int, float, int]:
        """
        Sort key: jobs with locality rules, then the largest replicas, then the most points.

        If patient, of equal sizes those come first that take most of another resource. If not, all replicas
        of at most one GPU count as equal, whatever else they take.
        """
        job_class = self._problem.classes[batch.jobs[0][0]]
        shape, bound = job_class.shape, job_class.together != LocalityRule()
        size = shape.quota_milli if self._patient else max(1, shape.gpus)
        share = max(map(truediv, shape.amounts, self._totals), default=0.0) if self._patient else 0.0
        # Of equal sizes, those that may follow few of the stopped jobs have the fewest places.
        followed = self._followed[job_class.rank, job_class.claim]
        return not bound, -size, followed, -share, min(self._rank[index] for index, _ in batch.jobs)

    def _realize(self, batch: Batch) -> None:
        """Place the jobs of a batch on the nodes of the answer."""
        first = batch.jobs[0][0]
        waiting = []
        for index, jobs in sorted(batch.jobs, key=self._by_rank):
            if (number := firm_reservation_of(self.ledger, index)) is not None:
                # A held job keeps its later start if it cannot start now.
                placement.start_reserved(self.ledger, number)
            else:
                waiting += [index] * min(jobs, self.ledger.jobs_left(index))
        if not waiting:
            return
        if self.ledger.tenants[first].affinity != NO_AFFINITY:
            waiting = self._one_by_one(batch, waiting)
        else:
            sites = list[ReplicaSite]()
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
        allowed = self.ledger.params.rounding.swap_repair
        if not waiting or hopeless or not allowed or is_late(self._deadline):
            return waiting
        ledger, nodes = self.ledger, sorted({node for places, _ in batch.places for node in places})
        relief = SwapRepair(ledger, np.array(nodes, dtype=np.int64), self._movable)
        over, node = list[int](), None
        for index in waiting:
            # An exchange may make room for more than one.
            if is_late(self._deadline):
                over.append(index)
            elif node is None or not self._placed_on(batch, index, node):
                node = relief.swap_for_room(index)
                if node is None or not self._placed_on(batch, index, node):
                    over.append(index)
        return over

    @cached_property
    def _followed(self) -> dict[tuple[int, int], int]:
        """Stopped jobs that each class, by rank and claim, may follow."""
        gone = [self._problem.incumbents[index] for index in self._aggregate.stopped]
        kinds = Counter((each.rank, frozenset(each.claims)) for each in gone)
        takers = {(each.rank, each.claim): each for each in self._problem.classes}
        return {
            key: sum(number for order, number in kinds.items() if may_use_freed(taker, order))
            for key, taker in takers.items()
        }

    @cached_property
    def _movable(self) -> frozenset[int]:
        return movable_classes(self.ledger)

    def _placed_on(self, batch: Batch, index: int, node: int) -> bool:
        option = self._option(batch, index, [ReplicaSite(node)])
        return option is not None and bool(
            placement.place(self.ledger, index, option, jobs=1, nodes=np.array([node]))
        )

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
        free = self._problem.classes[first].together == LocalityRule()
        return free and self.ledger.tenants[first].affinity == NO_AFFINITY

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
        headroom = self.ledger.queues.headroom_now(job_class, option, job_class.minimum)
        return headroom > 0 and place_job(self.ledger, index, option, nodes)

    def _take(self, index: int, nodes: tuple[int, ...], replicas: int, jobs: int) -> list[ReplicaSite]:
        """Sites on some nodes, in each domain at most as many as `jobs` jobs may have there."""
        ledger, rules = self.ledger, self._problem.classes[index].together
        tenant = ledger.tenants[index]
        if rules.spread is None:
            if (tenant, nodes) not in self._boards:
                self._boards[tenant, nodes] = NodeScores(
                    ledger.feasibility, tenant, np.array(nodes, dtype=np.int64)
                )
            return ledger.take(index, self._boards[tenant, nodes], replicas)
        board = NodeScores(ledger.feasibility, tenant, np.array(nodes, dtype=np.int64))
        of, sites = ledger.domains.of(rules.spread), list[ReplicaSite]()
        count = np.zeros(ledger.domains.count(rules.spread), dtype=np.int64)
        while len(sites) < replicas and (node := board.best(ledger.feasibility)) is not None:
            sites.append(ledger.take_site_on(index, node))
            count[of[node]] += 1
            if count[of[node]] >= rules.most * jobs:
                board.close(of[board.nodes] == of[node])
        return sites

    def _settle(self, batch: Batch, sites: list[ReplicaSite], waiting: list[int], jobs: int) -> list[int]:
        """Form up to `jobs` jobs from sites; returns the jobs left over."""
        ledger, taker = self.ledger, batch.jobs[0][0]
        first = self._problem.classes[taker]
        jobs = min(jobs, len(waiting), len(sites) // first.minimum)
        hands, rest = distribute_sites(ledger, first.together, sites, jobs, first.minimum, first.maximum)
        for site in rest:
            ledger.sites.release(taker, site)
        over = []
        for position, index in enumerate(waiting):
            hand = hands[position] if position < len(hands) else []
            option = self._option(batch, index, hand)
            if option is None or not ledger.domains.satisfies(first.together, hand):
                for site in hand:
                    ledger.sites.release(taker, site)
                over.append(index)
            elif not self._hand_over(taker, index, hand) or not ledger.settle(index, option, hand, jobs=1):
                over.append(index)
        return over

    def _hand_over(self, taker: int, index: int, sites: list[ReplicaSite]) -> bool:
        """Hand sites taken for one class to another, which may run longer; False if that is not allowed."""
        ledger = self.ledger
        if ledger.tenants[taker] == ledger.tenants[index]:
            return True
        for site in sites:
            ledger.sites.release(taker, site)
        return take_sites(ledger, index, sites)

    def _option(self, batch: Batch, index: int, sites: list[ReplicaSite]) -> Option | None:
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
                    jobs -= placement.place(self.ledger, index, option, jobs=jobs)
            self.missed += jobs
        self._astray.clear()

    def _settle_moves(self) -> bool:
        """Restore or preempt jobs that left and found no other place; False if a job allows neither."""
        ledger = self.ledger
        for number, placed in sorted(ledger.placed.items()):
            index = self._problem.classes[placed.job_class].incumbent
            if index is not None and vacate.is_at_old_sites(ledger, index, placed):
                ledger.remove(number)
        for index in ledger.disruptions.having(DisruptionKind.MOVE):
            job_class = self._problem.incumbents[index].move
            if job_class is None or ledger.is_placed(job_class):
                continue
            if not vacate.restore_incumbent(ledger, index) and not vacate.stop_incumbent(ledger, index):
                mark = ledger.undo.mark()
                if not vacate.restore_by_eviction(ledger, index):
                    ledger.undo.rollback(mark)
                    return False
        return True
