"""
Preempt running jobs for waiting ones: first in bulk by market prices, then one by one.

Preemption one by one does not see that a preempted gang frees many nodes at once, or that jobs of one queue
may replace each other although the queue holds no more than its guarantee.
"""

from __future__ import annotations

from functools import cache, cached_property
from typing import TYPE_CHECKING, TypeAlias

import numpy as np

from gpuplan.models.eligibility.preemption_order import may_use_freed
from gpuplan.models.problem.jobs import ClassRole
from gpuplan.solvers.deadline import is_late
from gpuplan.solvers.heuristics import placement, vacate
from gpuplan.solvers.heuristics.greedy_fill import fill_free_capacity
from gpuplan.solvers.heuristics.preemption import PreemptionSearch, preempt_for_waiting

if TYPE_CHECKING:
    from collections.abc import Iterable

    from numpy.typing import NDArray

    from gpuplan.models.problem.jobs import Incumbent, JobClass, Option
    from gpuplan.solvers.state.ledger import Ledger

    Floats: TypeAlias = NDArray[np.float64]


def preempt_in_bulk(ledger: Ledger, *, deadline: float | None = None) -> None:
    """Start waiting jobs that are worth the price, preempt running jobs where that pays, then fill."""
    classes, market, order = ledger.problem.classes, MarketPrices(ledger), ledger.problem.placement_order
    spare = _guarantee_slack(ledger, market)
    stop_below_market_price(ledger, market, spare)
    worth = [market.is_worth_price(index) for index in range(len(classes))]
    paying = _gangs_first(ledger, market, (index for index in order if worth[index]))
    preemption = PreemptionSearch(ledger)
    others = [index for index in order if not worth[index]]
    # They must not take places that jobs of higher priority in their queue are about to take.
    later = _below_paying(ledger, others, paying)
    _start_guaranteed(ledger, preemption, [each for each in others if each not in later], spare, deadline)
    for index in paying:
        if not ledger.jobs_left(index):
            continue
        for option in sorted(
            classes[index].options, key=lambda option: -market.points_above_price(index, option)
        ):
            if market.points_above_price(index, option) >= 0:
                placement.place(ledger, index, option, jobs=ledger.jobs_left(index))
        if classes[index].minimum > 1:
            # Once other jobs have started, a gang no longer finds so many nodes.
            preempt_for_waiting(ledger, [index], preemption, deadline=deadline)
    preempt_for_waiting(ledger, paying, preemption, deadline=deadline)
    _start_guaranteed(ledger, preemption, [each for each in others if each in later], spare, deadline)
    vacate.restore_preempted(ledger)
    fill_free_capacity(ledger)
    owed = [
        index
        for index in order
        if ledger.jobs_left(index)
        and any(ledger.queues.quota.owed(*each) for each in _quota_keys(classes[index]))
    ]
    if preempt_for_waiting(ledger, owed, preemption, deadline=deadline):
        vacate.restore_preempted(ledger)
        fill_free_capacity(ledger)


def stop_below_market_price(ledger: Ledger, market: MarketPrices, spare: list[float]) -> None:
    """
    Preempt running jobs that are worth no more than the price of their GPUs, the least worth first.

    Each guarantee gives up only what it can spare, if most of the jobs that would pay the price start.
    """
    incumbents, quota = ledger.problem.incumbents, ledger.queues.quota
    premium = ledger.params.bulk_preemption.premium
    losses = []
    for index, incumbent in enumerate(incumbents):
        # If preempting a job costs nothing, it is preempted only if it blocks a waiting job.
        if incumbent.stop_points and market.preemptible[index]:
            fetched = market.market_value(incumbent)
            if -incumbent.stop_points < premium * fetched:
                losses.append((-incumbent.stop_points / fetched, index))
    for _, index in sorted(losses):
        incumbent = incumbents[index]
        owed = quota.guarantees_of(incumbent.queue, incumbent.gpu_model)
        if all(spare[each] >= incumbent.quota_milli for each in owed) and vacate.stop_incumbent(
            ledger, index
        ):
            for each in owed:
                spare[each] -= incumbent.quota_milli


def _gangs_first(ledger: Ledger, market: MarketPrices, paying: Iterable[int]) -> list[int]:
    """
    Of classes that are worth the price those that start alone, in order.

    Gangs that need one domain and pay well come first, the largest first: later no domain is free for them.
    """
    classes, premium = ledger.problem.classes, ledger.params.bulk_preemption.premium
    found = [index for index in paying if classes[index].starts_alone]
    bound = {
        index: classes[index].shape.quota_milli * classes[index].maximum
        for index in found
        if classes[index].together.required is not None and market.is_worth_price(index, premium)
    }
    return sorted(found, key=lambda index: -bound.get(index, 0))


def _below_paying(ledger: Ledger, others: list[int], paying: list[int]) -> set[int]:
    """Of other classes, those of lower priority than one in their queue that pays the price."""
    classes, highest = ledger.problem.classes, dict[int, int]()
    for index in paying:
        if ledger.jobs_left(index):
            one = classes[index]
            highest[one.queue] = max(highest.get(one.queue, one.priority), one.priority)
    return {
        index
        for index in others
        if classes[index].priority < highest.get(classes[index].queue, classes[index].priority)
    }


def _start_guaranteed(
    ledger: Ledger,
    preemption: PreemptionSearch,
    order: Iterable[int],
    spare: list[float],
    deadline: float | None,
) -> None:
    """Start jobs that are not worth the price, where the jobs that are do not meet a guarantee."""
    classes = ledger.problem.classes
    if min(spare, default=0) >= 0:
        return
    for index in order:
        if classes[index].starts_alone and not is_late(deadline):
            milli = classes[index].shape.quota_milli * classes[index].minimum
            helped = [
                each for at in _quota_keys(classes[index]) for each in ledger.queues.quota.guarantees_of(*at)
            ]
            while any(spare[each] < 0 for each in helped) and _start(ledger, preemption, index):
                for each in helped:
                    spare[each] += milli


def _start(ledger: Ledger, preemption: PreemptionSearch, index: int) -> bool:
    """Start one job of a class, preempting other jobs if necessary."""
    options = ledger.problem.classes[index].options
    return any(placement.place(ledger, index, option, jobs=1) for option in options) or preemption.make_room(
        index
    )


def _quota_keys(job_class: JobClass) -> list[tuple[int, str | None]]:
    """(queue, GPU model) at which the jobs of a class count on their best option; empty without one."""
    return [(job_class.queue, option.gpu_model) for option in job_class.options[:1]]


def _guarantee_slack(ledger: Ledger, market: MarketPrices) -> list[float]:
    """Thousandths of GPUs that each guarantee can spare, given the jobs that are likely to start."""
    spare = [-float(missing) for missing in ledger.queues.quota.missing]
    for index, job_class in enumerate(ledger.problem.classes):
        jobs = ledger.jobs_left(index) if spare and job_class.role is ClassRole.START else 0
        if jobs and job_class.options:
            option = max(job_class.options, key=lambda option: market.points_above_price(index, option))
            milli = job_class.shape.quota_milli * job_class.initial_replicas(option) * jobs
            if milli and market.points_above_price(index, option) > 0:
                for each in ledger.queues.quota.guarantees_of(job_class.queue, option.gpu_model):
                    spare[each] += ledger.params.bulk_preemption.expected_share * milli
    return spare


class MarketPrices:
    """
    A price for each GPU model, in points per thousandth of a GPU.

    Jobs that may use several models divide among these, most of them where they gain most (a multinomial
    logit, McFadden, "Conditional logit analysis of qualitative choice behavior", 1974). At the price of a
    model, the jobs that would pay more ask for as much as is free or held by running jobs worth less. Nodes,
    racks, quotas and other resources are left out.

    Bidders are the jobs that the ledger may still place. Running jobs that no bidder may replace are no
    supply.
    """

    def __init__(self, ledger: Ledger) -> None:
        problem, params = ledger.problem, ledger.params.bulk_preemption
        self._ledger, self._classes = ledger, problem.classes
        self._models = sorted({group.gpu_model for group in problem.groups if group.gpu_model})
        self._prices: dict[str | None, float] = dict.fromkeys(self._models, 0.0)
        may_follow = cache(lambda order: any(may_use_freed(taker, order) for taker in self._takers))
        self.preemptible = [
            self._may_leave(index) and may_follow((incumbent.rank, frozenset(incumbent.claims)))
            for index, incumbent in enumerate(problem.incumbents)
        ]
        """True for running jobs that keep their places so far, and that some bidder may replace."""
        bids, asked = self._demand()
        supplies = self._supplies()
        level = _common_clearing_price(bids, asked, supplies)
        if level > 0:
            prices = np.full(len(self._models), level)
            for _ in range(params.price_rounds):
                gains = bids - prices
                scale = params.logit_scale * level
                chosen = np.exp((gains - gains.max(axis=1, keepdims=True)) / scale)
                shares = asked[:, None] * chosen / chosen.sum(axis=1, keepdims=True)
                for column, (losses, held, total) in enumerate(supplies):
                    worths, amounts = np.append(bids[:, column], losses), np.append(shares[:, column], held)
                    prices[column] = (_clearing_price(worths, amounts, total) + prices[column]) / 2
            self._prices.update(zip(self._models, prices.tolist(), strict=True))

    def points_above_price(self, index: int, option: Option, times: float = 1.0) -> float:
        """Points of a job on an option, minus `times` the price of its GPUs."""
        job_class = self._classes[index]
        replicas = job_class.initial_replicas(option)
        fetched = self._prices.get(option.gpu_model, 0.0) * job_class.shape.quota_milli * replicas
        return job_class.points(option, replicas) - times * fetched

    def is_worth_price(self, index: int, times: float = 1.0) -> bool:
        """True if a job of the class is worth `times` the price on one of its options."""
        return any(
            self.points_above_price(index, option, times) >= 0 for option in self._classes[index].options
        )

    def market_value(self, incumbent: Incumbent) -> float:
        """Market price of the GPUs of a running job."""
        return self._prices.get(incumbent.gpu_model, 0.0) * _whole_gpu_milli(incumbent)

    def _demand(self) -> tuple[Floats, Floats]:
        """(points per thousandth by class and model, thousandths that each class asks for)."""
        bidders = [(self._classes[index], jobs) for index, jobs in self._bidders]
        columns = {model: column for column, model in enumerate(self._models)}
        bids = np.full((len(bidders), len(columns)), -np.inf)
        for row, (job_class, _) in enumerate(bidders):
            for option in job_class.options:
                if option.gpu_model in columns:
                    replicas = job_class.initial_replicas(option)
                    density = job_class.points(option, replicas) / (job_class.shape.quota_milli * replicas)
                    bids[row, columns[option.gpu_model]] = density
        asked = [each.shape.quota_milli * each.ordering_size * jobs for each, jobs in bidders]
        return bids, np.array(asked, dtype=np.float64)

    @cached_property
    def _bidders(self) -> list[tuple[int, int]]:
        """(class, jobs) that bid for GPUs; MIG instances are not part of this market."""
        return [
            (index, jobs)
            for index, each in enumerate(self._classes)
            if each.role is ClassRole.START and each.options and (each.shape.gpus or each.shape.gpu_milli)
            if (jobs := self._ledger.jobs_left(index, now=False))
        ]

    def _may_leave(self, index: int) -> bool:
        """True if a running job may be preempted, and keeps its places so far."""
        incumbent, disruptions = self._ledger.problem.incumbents[index], self._ledger.disruptions
        if incumbent.stop_points is None or disruptions[index] is not None:
            return False
        return disruptions.within_budgets(index, len(incumbent.holds))

    @cached_property
    def _takers(self) -> list[JobClass]:
        """For each claim, the bidder of highest rank."""
        found: dict[int, JobClass] = {}
        for index, _ in self._bidders:
            job_class = self._classes[index]
            if job_class.claim not in found or found[job_class.claim].rank < job_class.rank:
                found[job_class.claim] = job_class
        return list(found.values())

    def _supplies(self) -> list[tuple[Floats, Floats, float]]:
        """By model: loss per thousandth of each running job, what it holds, and that with the free ones."""
        problem, gpu_free = self._ledger.problem, self._ledger.capacity.gpu_free
        columns = {model: column for column, model in enumerate(self._models)}
        free = [0.0] * len(columns)
        for group in problem.groups:
            if group.gpu_model is not None:
                free[columns[group.gpu_model]] += float(gpu_free[list(group.nodes)].sum())
        held: list[list[tuple[float, int]]] = [[] for _ in columns]
        for index, incumbent in enumerate(problem.incumbents):
            if (
                incumbent.gpu_model in columns
                and (milli := _whole_gpu_milli(incumbent))
                and self.preemptible[index]
            ):
                held[columns[incumbent.gpu_model]].append((-(incumbent.stop_points or 0) / milli, milli))
        pairs = [np.array(each, dtype=np.float64).reshape(-1, 2) for each in held]
        return [
            (each[:, 0], each[:, 1], spare + float(each[:, 1].sum()))
            for each, spare in zip(pairs, free, strict=True)
        ]


def _whole_gpu_milli(incumbent: Incumbent) -> int:
    """Thousandths of GPUs that a running job holds, without MIG instances."""
    return 0 if incumbent.shape.mig else incumbent.quota_milli


def _common_clearing_price(
    bids: Floats, asked: Floats, supplies: list[tuple[Floats, Floats, float]]
) -> float:
    """Clearing price if all models were one."""
    worths = [bids.max(axis=1, initial=0), *(losses for losses, _, _ in supplies)]
    amounts = [asked, *(held for _, held, _ in supplies)]
    return _clearing_price(
        np.concatenate(worths), np.concatenate(amounts), sum(total for _, _, total in supplies)
    )


def _clearing_price(worths: Floats, amounts: Floats, total: float) -> float:
    """Price at which the demand worth more is at most the total; 0 if the total covers all demand."""
    wanted = worths > 0
    worths, amounts = worths[wanted], amounts[wanted]
    order = np.argsort(-worths, kind="stable")
    first = int(np.searchsorted(np.cumsum(amounts[order]), total, side="right"))
    return float(worths[order][first]) if first < len(order) else 0.0
