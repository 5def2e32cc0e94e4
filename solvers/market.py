"""Market: what GPUs of each model would fetch if waiting jobs bid for them against those that run."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, TypeAlias

import numpy as np

from planner.models.problem_jobs import Role

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from planner.models.problem import Problem
    from planner.models.problem_jobs import Incumbent, JobClass, Option

    Floats: TypeAlias = NDArray[np.float64]

_ROUNDS: Final = 8
"""Price by price in turn; by then they hardly move."""


class Market:
    """
    A price for each GPU model, in points of one thousandth of a GPU.

    At the price of a model, jobs that would pay more there than they gain elsewhere ask for as much as is
    free or held by running jobs that are worth less. Nodes, racks, quotas, other resources are left out.
    """

    def __init__(self, problem: Problem) -> None:
        self._classes = problem.classes
        self._models = sorted({group.gpu_model for group in problem.groups if group.gpu_model})
        self._prices: dict[str | None, float] = dict.fromkeys(self._models, 0.0)
        bids, asked = self._demand()
        supplies = self._supplies(problem)
        prices = np.zeros(len(self._models))
        for turn in range(_ROUNDS):
            for column, (losses, held, total) in enumerate(supplies):
                others = bids - prices
                others[:, column] = 0
                ready = bids[:, column] - np.maximum(0, others.max(axis=1))
                cleared = _clearing(np.append(ready, losses), np.append(asked, held), total)
                prices[column] = (cleared + prices[column]) / 2 if turn else cleared
        self._prices.update(zip(self._models, prices.tolist(), strict=True))

    def net(self, index: int, option: Option, times: float = 1.0) -> float:
        """What a job of a class brings on an option beyond so many times what its GPUs would fetch."""
        job_class = self._classes[index]
        replicas = job_class.most(option)
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
        bidders = [each for each in self._classes if each.role is Role.START and _bids(each)]
        columns = {model: column for column, model in enumerate(self._models)}
        bids = np.full((len(bidders), len(columns)), -np.inf)
        for row, job_class in enumerate(bidders):
            for option in job_class.options:
                if option.gpu_model in columns:
                    replicas = job_class.most(option)
                    density = job_class.points(option, replicas) / (job_class.shape.quota_milli * replicas)
                    bids[row, columns[option.gpu_model]] = density
        asked = [each.shape.quota_milli * each.maximum * len(each.jobs) for each in bidders]
        return bids, np.array(asked, dtype=np.float64)

    def _supplies(self, problem: Problem) -> list[tuple[Floats, Floats, float]]:
        """By model: loss per thousandth of each incumbent, what it holds, and all that with what is free."""
        columns = {model: column for column, model in enumerate(self._models)}
        free = [0.0] * len(columns)
        for group in problem.groups:
            if group.gpu_model is not None:
                free[columns[group.gpu_model]] += sum(sum(problem.nodes[node].gpus) for node in group.nodes)
        held: list[list[tuple[float, int]]] = [[] for _ in columns]
        for incumbent in problem.incumbents:
            if incumbent.stop_points is not None and incumbent.gpu_model in columns and _milli(incumbent):
                milli = _milli(incumbent)
                held[columns[incumbent.gpu_model]].append((-incumbent.stop_points / milli, milli))
        pairs = [np.array(each, dtype=np.float64).reshape(-1, 2) for each in held]
        return [
            (each[:, 0], each[:, 1], spare + float(each[:, 1].sum()))
            for each, spare in zip(pairs, free, strict=True)
        ]


def _bids(job_class: JobClass) -> bool:
    """True for jobs that ask for GPUs; MIG instances have a market of their own."""
    return bool(job_class.shape.gpus or job_class.shape.gpu_milli)


def _milli(incumbent: Incumbent) -> int:
    """Thousandths of GPUs that an incumbent holds, MIG instances left out."""
    return 0 if incumbent.shape.mig else incumbent.shape.quota_milli * len(incumbent.holds)


def _clearing(worths: Floats, amounts: Floats, total: float) -> float:
    """The price at which those worth more have at most the total; 0 if there is enough for everybody."""
    wanted = worths > 0
    worths, amounts = worths[wanted], amounts[wanted]
    order = np.argsort(-worths, kind="stable")
    first = int(np.searchsorted(np.cumsum(amounts[order]), total, side="right"))
    return float(worths[order][first]) if first < len(order) else 0.0
