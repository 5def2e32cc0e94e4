"""
Preempt running jobs so that better jobs find a place.

Victims are chosen node by node: jobs that lose least per GPU leave first until the waiting job fits. Then
each victim stays if the job fits without its preemption. The whole trade is kept only if the objective rises,
so no job is preempted unless another job gains by it.
"""

from __future__ import annotations

from heapq import merge
from itertools import islice
from typing import TYPE_CHECKING, TypeAlias

import numpy as np

from gpuplan.models.units import MILLI
from gpuplan.solvers.deadline import is_late
from gpuplan.solvers.heuristics import placement, vacate
from gpuplan.solvers.heuristics.list_scheduling import reserve_resumptions
from gpuplan.solvers.state.constraints.capacity import HypotheticalNode
from gpuplan.solvers.state.disruption_state import DisruptionKind
from gpuplan.solvers.state.placement_profile import NO_AFFINITY
from gpuplan.solvers.state.preemption_candidates import (
    PreemptionCandidate,
    PreemptionCandidates,
    PreemptionCosts,
    resumption_points,
)

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Iterator, Mapping

    from numpy.typing import NDArray

    from gpuplan.models.problem.jobs import HeldResources, JobClass, Option
    from gpuplan.solvers.state.constraints.quota import QuotaDemand
    from gpuplan.solvers.state.ledger import Ledger
    from gpuplan.solvers.state.placement_profile import PlacementProfile

    Ints: TypeAlias = NDArray[np.int64]


def preempt_for_waiting(
    ledger: Ledger,
    order: Iterable[int],
    preemption: PreemptionSearch | None = None,
    *,
    deadline: float | None = None,
) -> bool:
    """Preempt for waiting jobs of classes in the given order until the deadline; True if a job was placed."""
    preemption = preemption or PreemptionSearch(ledger)
    changed, failures = False, 0
    for index in order:
        # No job is preempted for only part of the jobs that start together.
        if failures > ledger.params.preemption.max_failures or not ledger.problem.classes[index].starts_alone:
            continue
        while ledger.jobs_left(index):
            if is_late(deadline):
                return changed
            if not preemption.make_room(index):
                failures += 1
                break
            changed = True
    return changed


class PreemptionSearch:
    """Trades of running jobs for waiting ones; remembers jobs for which no trade exists."""

    def __init__(self, ledger: Ledger, *, hopeful: bool = False) -> None:
        """If hopeful, a preempted job counts as resumed at its best until that proves infeasible."""
        self.ledger = ledger
        self._hopes = resumption_points(ledger.problem) if hopeful else {}
        self.victims = (
            PreemptionCandidates(ledger, self._hopes) if hopeful else PreemptionCandidates.shared(ledger)
        )
        self._hopeless: dict[int, int] = {}
        self._offers: dict[tuple[int, tuple[int, ...]], PreemptionCosts] = {}
        self._jointly_limited = bool(ledger.problem.jointly_limited)
        fragmentation = ledger.problem.charges.fragmentation
        self._only_jobs_and_guarantees = not (hopeful or fragmentation) and ledger.affinity.is_idle
        """True if, apart from MIG layouts, nothing else than jobs and guarantees has points."""
        self._in_sight = self._sees_all()
        """True if only free amounts decide what fits on a node, apart from affinity rules and MIG layouts."""

    def _sees_all(self) -> bool:
        reserved = self.ledger.timeline is not None and bool(self.ledger.timeline.reservations)
        return not self._jointly_limited and not reserved

    def make_room(self, index: int, nodes: Ints | None = None) -> bool:
        """Place one more job of a class, on some nodes if given, by preempting others, if that pays."""
        ledger, job_class = self.ledger, self.ledger.problem.classes[index]
        if not ledger.params.preemption.enabled or not self.victims.has_any_for(ledger.tenants[index]):
            return False
        worth = self._worth(index)
        alike = ledger.alike[index]
        if nodes is None and worth <= self._hopeless.get(alike, 0):
            return False
        for option in job_class.options:
            for offers in self._scopes(index, option, nodes):
                mark, before = ledger.undo.mark(), ledger.objective
                gone = set(ledger.disruptions.having(DisruptionKind.STOP)) if self._hopes else set()
                if self._place(index, option, offers):
                    if self._hopes:
                        reserve_resumptions(
                            ledger, set(ledger.disruptions.having(DisruptionKind.STOP)) - gone
                        )
                        self._in_sight = self._sees_all()
                    if ledger.objective > before:
                        return True
                ledger.undo.rollback(mark)
        if nodes is None:
            self._hopeless[alike] = worth
        return False

    @property
    def _expected_objective(self) -> int:
        """Objective, with the expected points of preempted jobs that have no reservation yet."""
        ledger, found = self.ledger, self.ledger.objective
        for index in ledger.disruptions.having(DisruptionKind.STOP) if self._hopes else ():
            again = ledger.problem.incumbents[index].resume
            if again is not None and not ledger.is_placed(again):
                found += self._hopes.get(index, 0)
        return found

    def _worth(self, index: int) -> int:
        """Upper bound on the points that a job of a class brings."""
        job_class, ledger = self.ledger.problem.classes[index], self.ledger
        milli = job_class.shape.quota_milli * job_class.maximum
        model = job_class.options[0].gpu_model if job_class.options else None
        owed = ledger.queues.quota.owed(job_class.queue, model)
        # One GPU more each, since missing GPUs are rounded up.
        return (
            job_class.most_points + sum(price * (min(milli, lack) + MILLI) for lack, price in owed) // MILLI
        )

    def _scopes(self, index: int, option: Option, nodes: Ints | None) -> Iterator[PreemptionCosts]:
        """Nodes that one trade may use: all, or one domain of the required level after the other."""
        ledger, job_class = self.ledger, self.ledger.problem.classes[index]
        offers, level = self._offers_of(index, option, nodes), job_class.together.required
        if level is None:
            yield offers
            return
        of = ledger.domains.of(level)[offers.nodes]
        losses = offers.lower_bounds()
        room = ledger.feasibility.room(index, offers.nodes, job_class.minimum)
        missing = np.maximum(0, job_class.minimum - np.bincount(of, weights=room))
        order = np.lexsort((losses, of))
        of, losses = of[order], losses[order]
        place = np.arange(len(of)) - np.searchsorted(of, of)
        # bincount of an empty array has integer type.
        least = np.bincount(of, weights=np.where(place < missing[of], losses, 0)).astype(np.float64)
        least[np.bincount(of, minlength=len(least)) == 0] = np.inf
        domains = np.argsort(least, kind="stable")[: ledger.params.preemption.domains_tried]
        scopes = [offers.nodes[ledger.domains.of(level)[offers.nodes] == domain] for domain in domains]
        for domain, scope in zip(domains.tolist(), scopes, strict=True):
            if least[domain] < np.inf:
                yield offers.restricted_to(scope)

    def _offers_of(self, index: int, option: Option, nodes: Ints | None) -> PreemptionCosts:
        ledger, tenant = self.ledger, self.ledger.tenants[index]
        if nodes is not None:
            return PreemptionCosts(
                ledger, self.victims, tenant, ledger.feasibility.nodes_within(option, nodes)
            )
        key = id(ledger.endless[index]), option.groups
        if key not in self._offers:
            self._offers[key] = PreemptionCosts(
                ledger, self.victims, tenant, ledger.feasibility.nodes_of(option)
            )
        return self._offers[key]

    def _place(self, index: int, option: Option, offers: PreemptionCosts) -> bool:
        """Preempt node by node until a job of a class can be placed; False if that costs too much."""
        ledger, minimum = self.ledger, self.ledger.problem.classes[index].minimum
        before = self._expected_objective
        if not self._free_quota(index, option, before):
            return False
        everywhere = len(offers.nodes) == len(ledger.feasibility.nodes_of(option))
        # Whether a single replica fits is known by placing it.
        missing = (
            0 if minimum == 1 else minimum - int(ledger.feasibility.room(index, offers.nodes, minimum).sum())
        )
        for _ in range(minimum + 1):
            if missing <= 0 and placement.place(
                ledger, index, option, jobs=1, nodes=None if everywhere else offers.nodes
            ):
                return True
            gone = self._free_a_node(index, offers, before)
            if gone and all(len(victim.positions) == len(self._holds(victim)) for victim in gone):
                missing -= 1
                continue
            if not gone and missing <= 0:
                return False
            # Victims that leave other nodes as well may make room there too. If no more may leave, one node
            # may take several replicas in the place of one victim.
            missing = minimum - int(ledger.feasibility.room(index, offers.nodes, minimum).sum())
            if not gone and missing > 0:
                return False
        return False

    def _holds(self, victim: PreemptionCandidate) -> tuple[HeldResources, ...]:
        return self.ledger.problem.incumbents[victim.incumbent].holds

    def _gain(self, index: int, before: int) -> int:
        """Upper bound on the points gained since `before`, if a job of a class is placed now."""
        return self._worth(index) - (before - self._expected_objective)

    def _free_quota(self, index: int, option: Option, before: int) -> bool:
        """Preempt jobs that this job may replace, on any node, until its queue has quota for it."""
        ledger, job_class = self.ledger, self.ledger.problem.classes[index]
        asked = job_class, option, job_class.minimum
        coming = self._met_by(job_class, option)
        gone: list[tuple[int, PreemptionCandidate]] = []
        fixed = set[PreemptionCandidate]()
        while (obstacle := ledger.queues.exceeded_limit(*asked)) is not None:
            found = self._cheapest(index, obstacle, fixed, coming)
            # The others that must leave lose no less for each unit.
            if found is None or found[1] * obstacle.excess >= self._gain(index, before):
                return False
            if self._evict(found[2]):
                gone.append((found[0], found[2]))
            else:
                fixed.add(found[2])
        for _, victim in sorted(gone, key=lambda each: -each[0]):
            mark = ledger.undo.mark()
            vacate.restore_incumbent(ledger, victim.incumbent, victim.positions if victim.shrinks else None)
            if ledger.queues.exceeded_limit(*asked) is not None:
                ledger.undo.rollback(mark)
        return self._gain(index, before) > 0

    def _met_by(self, job_class: JobClass, option: Option) -> dict[int, int]:
        """Thousandths of GPUs that one job adds to each guarantee."""
        milli, quota = job_class.shape.quota_milli * job_class.minimum, self.ledger.queues.quota
        return dict.fromkeys(quota.guarantees_of(job_class.queue, option.gpu_model), milli)

    def _cheapest(
        self,
        index: int,
        obstacle: QuotaDemand,
        fixed: Collection[PreemptionCandidate],
        coming: Mapping[int, int],
    ) -> tuple[int, float, PreemptionCandidate] | None:
        """
        (points lost, points for each unit of quota freed, victim) with the least of the second.

        Those `fixed` are left out. A guarantee that then is not met counts at its price, after what the job
        that comes adds to it.
        """
        quota, incumbents = self.ledger.queues.quota, self.ledger.problem.incumbents
        resource, tenant = obstacle.budget.resource, self.ledger.tenants[index]
        found: tuple[int, float, PreemptionCandidate] | None = None
        for bound, victim in self.victims.below(obstacle.budget, obstacle.queue, tenant):
            if found is not None and bound >= found[1]:
                break
            one = incumbents[victim.incumbent]
            freed = obstacle.relief(one.queue, self.victims.amount(victim, resource))
            if freed <= 0 or victim in fixed:
                continue
            milli = one.shape.quota_milli * len(victim.positions) if victim.shrinks else one.quota_milli
            loss = victim.loss + quota.points_owed_without(one.queue, one.gpu_model, milli, coming)
            if found is None or loss / freed < found[1]:
                found = loss, loss / freed, victim
        return found

    def _free_a_node(self, index: int, offers: PreemptionCosts, before: int) -> list[PreemptionCandidate]:
        """Preempt on the node where one more replica costs least; empty if no node is cheap enough."""
        ledger = self.ledger
        best: tuple[float, int, list[PreemptionCandidate]] = self._gain(index, before), -1, []
        for bound, node in islice(self._candidates(index, offers), ledger.params.preemption.nodes_tried):
            if bound >= best[0]:
                break
            loss, gone = self.price(index, node)
            offers.set_exact_loss(node, loss)
            if loss < best[0]:
                best = loss, node, gone
        if best[2] and self._gain_without(index, best[2], before) <= 0:
            return []
        mark = ledger.undo.mark()
        for victim in best[2]:
            if not self._evict(victim):
                break
        else:
            if self._gain(index, before) > 0:
                return best[2]
        ledger.undo.rollback(mark)
        return []

    def _gain_without(self, index: int, gone: list[PreemptionCandidate], before: int) -> int:
        """
        Upper bound on the points gained since `before` if these are preempted too and a job is placed.

        Guarantees count with what all of them lose and the job brings, unless more than jobs and guarantees
        would change. Gains by lower prices of fragmentation or interference are left out.
        """
        ledger, incumbents = self.ledger, self.ledger.problem.incumbents
        known = self._only_jobs_and_guarantees and not any(
            victim.shrinks or incumbents[victim.incumbent].shape.mig for victim in gone
        )
        if not known or any(ledger.disruptions[victim.incumbent] for victim in gone):
            return self._gain(index, before)
        stopped, job_class = [incumbents[victim.incumbent] for victim in gone], ledger.problem.classes[index]
        held = [(each.queue, each.gpu_model, -each.quota_milli) for each in stopped]
        milli = job_class.shape.quota_milli * job_class.maximum
        models = {option.gpu_model for option in job_class.options}
        points_of = ledger.queues.quota.points_of
        guaranteed = max(points_of([(job_class.queue, model, milli), *held]) for model in models)
        points = sum((each.stop_points or 0) + each.leave_reward for each in stopped)
        return job_class.most_points + guaranteed + points - (before - ledger.objective)

    def _candidates(self, index: int, offers: PreemptionCosts) -> Iterator[tuple[float, int]]:
        """(lower bound on the loss, node), the cheapest first."""
        ledger, tenant = self.ledger, self.ledger.tenants[index]
        if tenant.affinity == NO_AFFINITY and self._in_sight:
            yield from offers.cheapest_first()
            return
        # The job that keeps this one away may be the victim, so the cheapest victim is the bound on such
        # nodes. Preemption only shrinks what `takes` allows.
        barred = ~ledger.feasibility.admits(tenant, offers.nodes) & ledger.feasibility.rank_admits(
            tenant, offers.nodes
        )
        cheapest = offers.cheapest_first()
        if not barred.any():
            yield from cheapest
            return
        nodes = offers.nodes[barred]
        minders = zip(self.victims.smallest_losses(tenant, nodes), nodes.tolist(), strict=True)
        yield from merge(sorted(minders), (each for each in cheapest if each[1] not in set(nodes.tolist())))

    def price(self, index: int, node: int) -> tuple[float, list[PreemptionCandidate]]:
        """
        Victims on a node that make one more replica fit, and the points lost; infinite if none suffice.

        Jobs that lose least per GPU leave first until it fits. Then each victim that need not leave stays,
        those that would lose most first.
        """
        ledger, tenant = self.ledger, self.ledger.tenants[index]
        there = self.victims.there(node, tenant)
        plain = tenant.affinity == NO_AFFINITY and not tenant.shape.mig and not ledger.disruptions.budgets.any
        if not plain or any(each.shrinks for each in there):
            return self.loss_by_trial(index, node, there)
        if not self._in_sight and not self._is_in_sight(tenant, node):
            return self.loss_by_trial(index, node, there)
        tried, gone = self._victims_on_paper(index, node, there)
        if not self._in_sight:
            # As after a trial, their other nodes are looked at again: the search goes the same way.
            self._touch(tried)
            return self._loss_of(gone) if gone else (np.inf, [])
        return (sum(victim.loss for victim in gone), gone) if gone else (np.inf, [])

    def _is_in_sight(self, tenant: PlacementProfile, node: int) -> bool:
        """True if only free amounts decide what fits on this node, as later starts are reserved elsewhere."""
        ledger = self.ledger
        if self._jointly_limited or (ledger.timeline is not None and ledger.timeline.reserved[node]):
            return False
        return bool(ledger.feasibility.rank_admits(tenant, np.array([node], dtype=np.int64))[0])

    def _touch(self, victims: list[PreemptionCandidate]) -> None:
        for victim in victims:
            for hold in self._holds(victim):
                if hold.node is not None:
                    self.ledger.capacity.touch(hold.node)

    def _loss_of(self, gone: list[PreemptionCandidate]) -> tuple[float, list[PreemptionCandidate]]:
        """Points lost by preempting some victims, with these; infinite if one may not be preempted."""
        start, before = self.ledger.undo.mark(), self._expected_objective
        stopped = all(self._evict(victim) for victim in gone)
        loss = before - self._expected_objective
        self.ledger.undo.rollback(start)
        return (loss, gone) if stopped else (np.inf, [])

    def _victims_on_paper(
        self, index: int, node: int, there: list[PreemptionCandidate]
    ) -> tuple[list[PreemptionCandidate], list[PreemptionCandidate]]:
        """
        Victims tried if only free amounts decide, and those of them that make one more replica fit.

        The latter are empty if none suffice.
        """
        ledger, tenant = self.ledger, self.ledger.tenants[index]
        incumbents = ledger.problem.incumbents
        paper, gone = HypotheticalNode(ledger.capacity, node), list[PreemptionCandidate]()

        def think(victim: PreemptionCandidate, times: int) -> None:
            incumbent = incumbents[victim.incumbent]
            paper.leave(incumbent.shape, (incumbent.holds[at] for at in victim.positions), times)

        wanted = paper.room(tenant.shape) + 1
        for victim in there:
            if vacate.may_stop_incumbent(ledger, victim.incumbent):
                think(victim, 1)
                gone.append(victim)
                if paper.room(tenant.shape) >= wanted:
                    break
        else:
            return gone, []
        tried = list(gone)
        for victim in sorted(gone, key=lambda victim: -victim.loss):
            think(victim, -1)
            if paper.room(tenant.shape) < wanted:
                think(victim, 1)
            else:
                gone.remove(victim)
        return tried, gone

    def loss_by_trial(
        self, index: int, node: int, there: list[PreemptionCandidate]
    ) -> tuple[float, list[PreemptionCandidate]]:
        """As `price`, by trial on the ledger, where more than free GPUs and amounts decide."""
        ledger = self.ledger
        start, before = ledger.undo.mark(), self._expected_objective
        nodes = np.array([node], dtype=np.int64)

        def room() -> int:
            return int(ledger.feasibility.room(index, nodes, 2**31)[0])

        wanted, gone, loss = room() + 1, list[PreemptionCandidate](), np.inf
        for victim in there:
            if self._evict(victim):
                gone.append(victim)
                if room() >= wanted:
                    break
        if room() >= wanted:
            for victim in sorted(gone, key=lambda victim: -victim.loss):
                mark = ledger.undo.mark()
                back = vacate.restore_incumbent(
                    ledger, victim.incumbent, victim.positions if victim.shrinks else None
                )
                if room() < wanted:
                    ledger.undo.rollback(mark)
                elif back:
                    gone.remove(victim)
            loss = before - self._expected_objective
        ledger.undo.rollback(start)
        return loss, gone if loss < np.inf else []

    def _evict(self, victim: PreemptionCandidate) -> bool:
        if victim.shrinks:
            return vacate.shrink_incumbent(self.ledger, victim.incumbent, victim.positions)
        return vacate.stop_incumbent(self.ledger, victim.incumbent)
