"""Market prices per GPU model, at which waiting jobs bid against running jobs for GPUs."""

from __future__ import annotations

from functools import cached_property
from typing import TYPE_CHECKING, TypeAlias

import numpy as np

from gpuplan.models.eligibility.preemption_order import may_use_freed
from gpuplan.models.problem.jobs import ClassRole

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from gpuplan.models.problem.jobs import Incumbent, JobClass, Option
    from gpuplan.solvers.state.ledger import Ledger

    Floats: TypeAlias = NDArray[np.float64]


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

    def is_preemptible(self, index: int) -> bool:
        """True if a running job may be preempted, keeps its places so far, and some bidder may replace it."""
        incumbent = self._ledger.problem.incumbents[index]
        if incumbent.stop_points is None or self._ledger.fates[index] is not None:
            return False
        order = incumbent.rank, frozenset(incumbent.claims)
        return any(may_use_freed(taker, order) for taker in self._takers)

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
                and self.is_preemptible(index)
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
