"""
Preempt running jobs for waiting ones: first in bulk by market prices, then one by one.

Preemption one by one does not see that a preempted gang frees many nodes at once, or that jobs of one queue
may replace each other although the queue holds no more than its guarantee.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from gpuplan.models.problem.jobs import ClassRole
from gpuplan.solvers.deadline import is_late
from gpuplan.solvers.heuristics import vacate
from gpuplan.solvers.heuristics.greedy_fill import fill_free_capacity, placement_order
from gpuplan.solvers.heuristics.market_prices import MarketPrices
from gpuplan.solvers.heuristics.preemption import PreemptionSearch, preempt_for_waiting, restore_preempted

if TYPE_CHECKING:
    from gpuplan.models.problem.jobs import JobClass
    from gpuplan.solvers.state.ledger import Ledger


def preempt_in_bulk(ledger: Ledger, *, deadline: float | None = None) -> None:
    """Start waiting jobs that are worth the price, preempt running jobs where that pays, then fill."""
    classes, market, order = ledger.problem.classes, MarketPrices(ledger), placement_order(ledger.problem)
    spare = _guarantee_slack(ledger, market)
    stop_below_market_price(ledger, market, spare)
    preemption, paying = PreemptionSearch(ledger), _classes_above_price(ledger, market, order)
    if min(spare, default=0) < 0:
        _start_guaranteed(
            ledger,
            preemption,
            [index for index in order if not market.is_worth_price(index)],
            spare,
            deadline,
        )
    for index in paying:
        for option in sorted(
            classes[index].options, key=lambda option: -market.points_above_price(index, option)
        ):
            if market.points_above_price(index, option) >= 0:
                ledger.place(index, option, jobs=ledger.jobs_left(index))
        if classes[index].minimum > 1:
            # Once other jobs have started, a gang no longer finds so many nodes.
            preempt_for_waiting(ledger, [index], preemption, deadline=deadline)
    preempt_for_waiting(ledger, paying, preemption, deadline=deadline)
    restore_preempted(ledger)
    fill_free_capacity(ledger)
    owed = [index for index in order if any(ledger.quota.owed(*each) for each in _quota_keys(classes[index]))]
    if preempt_for_waiting(ledger, owed, preemption, deadline=deadline):
        restore_preempted(ledger)
        fill_free_capacity(ledger)


def stop_below_market_price(ledger: Ledger, market: MarketPrices, spare: list[float]) -> None:
    """
    Preempt running jobs that are worth no more than the price of their GPUs, the least worth first.

    Each guarantee gives up only what it can spare, if most of the jobs that would pay the price start.
    """
    incumbents, quota = ledger.problem.incumbents, ledger.quota
    premium = ledger.params.bulk_preemption.premium
    losses = []
    for index, incumbent in enumerate(incumbents):
        # If preempting a job costs nothing, it is preempted only if it blocks a waiting job.
        if incumbent.stop_points and market.is_preemptible(index):
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


def _classes_above_price(ledger: Ledger, market: MarketPrices, order: list[int]) -> list[int]:
    """
    Classes that are worth the price and start alone, in order.

    Gangs that need one domain and pay well come first, the largest first: later no domain is free for them.
    """
    classes, premium = ledger.problem.classes, ledger.params.bulk_preemption.premium
    found = [index for index in order if classes[index].starts_alone and market.is_worth_price(index)]
    bound = {
        index: classes[index].shape.quota_milli * classes[index].maximum
        for index in found
        if classes[index].together.required is not None and market.is_worth_price(index, premium)
    }
    return sorted(found, key=lambda index: -bound.get(index, 0))


def _start_guaranteed(
    ledger: Ledger, preemption: PreemptionSearch, order: list[int], spare: list[float], deadline: float | None
) -> None:
    """Start jobs that are not worth the price, where the jobs that are do not meet a guarantee."""
    classes = ledger.problem.classes
    for index in order:
        if classes[index].starts_alone and not is_late(deadline):
            milli = classes[index].shape.quota_milli * classes[index].minimum
            helped = [each for at in _quota_keys(classes[index]) for each in ledger.quota.guarantees_of(*at)]
            while any(spare[each] < 0 for each in helped) and _start(ledger, preemption, index):
                for each in helped:
                    spare[each] += milli


def _start(ledger: Ledger, preemption: PreemptionSearch, index: int) -> bool:
    """Start one job of a class, preempting other jobs if necessary."""
    options = ledger.problem.classes[index].options
    return any(ledger.place(index, option, jobs=1) for option in options) or preemption.make_room(index)


def _quota_keys(job_class: JobClass) -> list[tuple[int, str | None]]:
    """(queue, GPU model) at which the jobs of a class count on their best option; empty without one."""
    return [(job_class.queue, option.gpu_model) for option in job_class.options[:1]]


def _guarantee_slack(ledger: Ledger, market: MarketPrices) -> list[float]:
    """Thousandths of GPUs that each guarantee can spare, given the jobs that are likely to start."""
    spare = [-float(missing) for missing in ledger.quota.missing]
    for index, job_class in enumerate(ledger.problem.classes):
        if job_class.role is ClassRole.START and job_class.options:
            option = max(job_class.options, key=lambda option: market.points_above_price(index, option))
            milli = job_class.shape.quota_milli * job_class.initial_replicas(option) * ledger.jobs_left(index)
            if milli and market.points_above_price(index, option) > 0:
                for each in ledger.quota.guarantees_of(job_class.queue, option.gpu_model):
                    spare[each] += ledger.params.bulk_preemption.expected_share * milli
    return spare
