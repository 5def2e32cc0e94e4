"""QuotaAhead: remaining quota of queues in later slots, by the arithmetic of `constraints.quota`."""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeAlias

import numpy as np

from gpuplan.models.problem.jobs import ClassRole
from gpuplan.solvers.state.constraints.quota import UNLIMITED

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from gpuplan.models.problem.jobs import JobClass, Option
    from gpuplan.models.problem.problem import Problem, QueueBudget

    Ints: TypeAlias = NDArray[np.int64]


class FutureQuota:
    """Usage of every queue in every budget by slot, as jobs end and others start; without slot 0."""

    def __init__(self, problem: Problem) -> None:
        self._budgets = problem.budgets
        self._usage: list[Ints] = []
        """Usage of each budget, shape (queues, slots)."""
        for budget in problem.budgets:
            usage = np.repeat(np.array(budget.own, dtype=np.int64)[:, None], problem.slots, axis=1)
            for slot, queue, milli, _ in budget.releases:
                usage[queue, slot:] -= milli
            for queue in budget.leaves_first:
                if (parent := budget.parent[queue]) is not None:
                    usage[parent] += np.maximum(0, usage[queue] - budget.kept[queue])
            self._usage.append(usage)
        self._newcomers = [np.zeros_like(usage) for usage in self._usage]

    def headroom(self, job_class: JobClass, option: Option, replicas: int, span: tuple[int, int]) -> int:
        """How many more portions of `replicas` replicas the class's queue may hold in all slots of a span."""
        milli = job_class.shape.quota_milli * replicas
        if milli == 0:
            return UNLIMITED
        return (
            self.room(job_class.queue, option.gpu_model, span, known=job_class.role is ClassRole.MOVE)
            // milli
        )

    def room(self, queue: int, gpu_model: str | None, span: tuple[int, int], *, known: bool) -> int:
        """Thousandths of GPUs of a model that a queue may still take in a span; see `QuotaUsage.room`."""
        if span[1] <= span[0]:
            return UNLIMITED
        return min(
            (
                int(self._available(index, queue, slice(*span), known=known).min())
                for index, budget in enumerate(self._budgets)
                if budget.counts(gpu_model)
            ),
            default=UNLIMITED,
        )

    def change(
        self, queue: int, gpu_model: str | None, milli: int, span: tuple[int, int], *, new: bool = False
    ) -> None:
        """Count GPUs taken in a span of slots, or given back if negative, up the queue tree."""
        where = slice(*span)
        for budget, usage, newcomers in zip(self._budgets, self._usage, self._newcomers, strict=True):
            if budget.counts(gpu_model) and span[1] > span[0]:
                above: int | None = queue
                amount = np.full(span[1] - span[0], milli, dtype=np.int64)
                while above is not None and amount.any():
                    amount = self._count(budget, usage, newcomers if new else None, above, where, amount)
                    above = budget.parent[above]

    @staticmethod
    def _count(
        budget: QueueBudget, usage: Ints, newcomers: Ints | None, queue: int, where: slice, amount: Ints
    ) -> Ints:
        """Count at one queue; returns what counts at the queue above."""
        here, kept = usage[queue, where], budget.kept[queue]
        spilled = np.maximum(0, here - kept)
        here += amount
        if newcomers is not None:
            newcomers[queue, where] += amount
        more: Ints = np.maximum(0, here - kept) - spilled
        return more

    def _available(self, index: int, queue: int, span: slice, *, known: bool) -> Ints:
        most = UNLIMITED // 2  # a sum of two stays within 64 bits
        *way, root = self._budgets[index].path_to_root(queue)
        available = self._left(index, root, span, known=known)
        # From the root down: trees may be deeper than the recursion limit.
        for each in reversed(way):
            own = self._left(index, each, span, known=known)
            unspilled = np.maximum(0, self._budgets[index].kept[each] - self._usage[index][each, span])
            # Quota that a queue keeps does not count above, whatever is used there already.
            available = np.minimum(own, np.minimum(unspilled, most) + np.clip(available, 0, most))
        return available

    def _left(self, index: int, queue: int, span: slice, *, known: bool) -> Ints:
        """What is left of a queue's own limit."""
        budget, usage = self._budgets[index], self._usage[index][queue, span]
        firm, limit = budget.firm[queue], budget.limit[queue]
        own: Ints = np.full(len(usage), UNLIMITED, dtype=np.int64)
        if firm is not None:
            own = firm - usage
            if known and limit is not None:
                settled = self._newcomers[index][queue, span] <= 0
                own = np.where(settled, limit - usage, own)
        return own
