"""Market: what GPUs of each model would fetch if jobs to be placed bid for them against those that run."""

from __future__ import annotations

from functools import cached_property
from typing import TYPE_CHECKING, Final, TypeAlias

import numpy as np

from gpuplan.models.eligibility.preemption_order import may_follow
from gpuplan.models.problem.jobs import Role

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from gpuplan.models.problem.jobs import Incumbent, JobClass, Option
    from gpuplan.solvers.state.ledger import Ledger

    Floats: TypeAlias = NDArray[np.float64]

_ROUNDS: Final = 8
"""By then prices hardly move."""

_CHOOSY: Final = 0.3
"""Part of the general price level that one model must be cheaper to be asked for e times as much."""


class Market:
    """
    A price for each GPU model, in points of one thousandth of a GPU.

    Jobs that may use several models divide themselves among these, most of them where they gain most (a
    multinomial logit, McFadden, "Conditional logit analysis of qualitative choice behavior", 1974). At the
    price of a model, those who would pay more ask for as much as is free or held by running jobs that are
    worth less. Nodes, racks, quotas and other resources are left out.

    Bidders are the jobs that may be placed as a ledger stands; running jobs that none of them may follow are
    no supply.
    """

    def __init__(self, ledger: Ledger) -> None:
        problem = ledger.problem
        self._ledger, self._classes = ledger, problem.classes
        self._models = sorted({group.gpu_model for group in problem.groups if group.gpu_model})
        self._prices: dict[str | None, float] = dict.fromkeys(self._models, 0.0)
        bids, asked = self._demand()
        supplies = self._supplies()
        level = _clearing_of_all(bids, asked, supplies)
        if level > 0:
            prices = np.full(len(self._models), level)
            for _ in range(_ROUNDS):
                gains = bids - prices
                chosen = np.exp((gains - gains.max(axis=1, keepdims=True)) / (_CHOOSY * level))
                shares = asked[:, None] * chosen / chosen.sum(axis=1, keepdims=True)
                for column, (losses, held, total) in enumerate(supplies):
                    worths, amounts = np.append(bids[:, column], losses), np.append(shares[:, column], held)
                    prices[column] = (_clearing(worths, amounts, total) + prices[column]) / 2
            self._prices.update(zip(self._models, prices.tolist(), strict=True))

    def net(self, index: int, option: Option, times: float = 1.0) -> float:
        """What a job of a class brings on an option beyond so many times what its GPUs would fetch."""
        job_class = self._classes[index]
        replicas = job_class.typical(option)
        fetched = self._prices.get(option.gpu_model, 0.0) * job_class.shape.quota_milli * replicas
        return job_class.points(option, replicas) - times * fetched

    def pays(self, index: int, times: float = 1.0) -> bool:
        """True if the jobs of a class bring so many times the price on one of their options."""
        return any(self.net(index, option, times) >= 0 for option in self._classes[index].options)

    def fetched(self, incumbent: Incumbent) -> float:
        """What the GPUs of an incumbent would fetch."""
        return self._prices.get(incumbent.gpu_model, 0.0) * _milli(incumbent)

    def _demand(self) -> tuple[Floats, Floats]:
        """Points for a thousandth by class and model, with the thousandths that a class asks for."""
        bidders = [(self._classes[index], jobs) for index, jobs in self._bidders]
        columns = {model: column for column, model in enumerate(self._models)}
        bids = np.full((len(bidders), len(columns)), -np.inf)
        for row, (job_class, _) in enumerate(bidders):
            for option in job_class.options:
                if option.gpu_model in columns:
                    replicas = job_class.typical(option)
                    density = job_class.points(option, replicas) / (job_class.shape.quota_milli * replicas)
                    bids[row, columns[option.gpu_model]] = density
        asked = [each.shape.quota_milli * each.usual * jobs for each, jobs in bidders]
        return bids, np.array(asked, dtype=np.float64)

    @cached_property
    def _bidders(self) -> list[tuple[int, int]]:
        """(class, jobs) that ask for GPUs; MIG instances have a market of their own."""
        return [
            (index, jobs)
            for index, each in enumerate(self._classes)
            if each.role is Role.START and each.options and (each.shape.gpus or each.shape.gpu_milli)
            if (jobs := self._ledger.jobs_left(index, now=False))
        ]

    def may_be_had(self, index: int) -> bool:
        """True if an incumbent may be stopped, is there, and some bidder may follow it."""
        incumbent = self._ledger.problem.incumbents[index]
        if incumbent.stop_points is None or self._ledger.fates[index] is not None:
            return False
        order = incumbent.rank, frozenset(incumbent.claims)
        return any(may_follow(taker, order) for taker in self._takers)

    @cached_property
    def _takers(self) -> list[JobClass]:
        """Of the bidders with each claim the one of the highest rank."""
        found: dict[int, JobClass] = {}
        for index, _ in self._bidders:
            job_class = self._classes[index]
            if job_class.claim not in found or found[job_class.claim].rank < job_class.rank:
                found[job_class.claim] = job_class
        return list(found.values())

    def _supplies(self) -> list[tuple[Floats, Floats, float]]:
        """By model: loss per thousandth of each incumbent, what it holds, and all that with what is free."""
        problem, gpu_free = self._ledger.problem, self._ledger.capacity.gpu_free
        columns = {model: column for column, model in enumerate(self._models)}
        free = [0.0] * len(columns)
        for group in problem.groups:
            if group.gpu_model is not None:
                free[columns[group.gpu_model]] += float(gpu_free[list(group.nodes)].sum())
        held: list[list[tuple[float, int]]] = [[] for _ in columns]
        for index, incumbent in enumerate(problem.incumbents):
            if incumbent.gpu_model in columns and (milli := _milli(incumbent)) and self.may_be_had(index):
                held[columns[incumbent.gpu_model]].append((-(incumbent.stop_points or 0) / milli, milli))
        pairs = [np.array(each, dtype=np.float64).reshape(-1, 2) for each in held]
        return [
            (each[:, 0], each[:, 1], spare + float(each[:, 1].sum()))
            for each, spare in zip(pairs, free, strict=True)
        ]


def _milli(incumbent: Incumbent) -> int:
    """Thousandths of GPUs that an incumbent holds, MIG instances left out."""
    return 0 if incumbent.shape.mig else incumbent.quota_milli


def _clearing_of_all(bids: Floats, asked: Floats, supplies: list[tuple[Floats, Floats, float]]) -> float:
    """The price if all models were one."""
    worths = [bids.max(axis=1, initial=0), *(losses for losses, _, _ in supplies)]
    amounts = [asked, *(held for _, held, _ in supplies)]
    return _clearing(np.concatenate(worths), np.concatenate(amounts), sum(total for _, _, total in supplies))


def _clearing(worths: Floats, amounts: Floats, total: float) -> float:
    """The price at which those worth more have at most the total; 0 if there is enough for everybody."""
    wanted = worths > 0
    worths, amounts = worths[wanted], amounts[wanted]
    order = np.argsort(-worths, kind="stable")
    first = int(np.searchsorted(np.cumsum(amounts[order]), total, side="right"))
    return float(worths[order][first]) if first < len(order) else 0.0
