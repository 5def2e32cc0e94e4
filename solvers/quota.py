"""QuotaLedger: how much each queue may still take, by Kueue's arithmetic, while jobs are being placed."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from planner.models.problem import JobClass, Option, Problem, QueueBudget

UNLIMITED: Final = 2**62


class QuotaLedger:
    """Usage of every queue in every budget, and what is left."""

    def __init__(self, problem: Problem) -> None:
        self._budgets = problem.budgets
        self._usage: list[list[int]] = []
        for budget in problem.budgets:
            usage = list(budget.own)
            for queue in budget.leaves_first:
                if (parent := budget.parent[queue]) is not None:
                    usage[parent] += max(0, usage[queue] - budget.kept[queue])
            self._usage.append(usage)

    def headroom(self, job_class: JobClass, option: Option, replicas: int) -> int:
        """How many more portions of so many replicas the class's queue may hold on this option."""
        milli = job_class.shape.quota_milli * replicas
        if milli == 0:
            return UNLIMITED
        return min(
            (
                self._available(budget, usage, job_class.queue) // milli
                for budget, usage in zip(self._budgets, self._usage, strict=True)
                if budget.counts(option.gpu_model)
            ),
            default=UNLIMITED,
        )

    def take(self, job_class: JobClass, option: Option, replicas: int) -> None:
        """Count replicas of a class against its queue and every queue above."""
        for budget, usage in zip(self._budgets, self._usage, strict=True):
            queue: int | None = job_class.queue
            amount = job_class.shape.quota_milli * replicas if budget.counts(option.gpu_model) else 0
            while queue is not None and amount > 0:
                spilled = max(0, usage[queue] - budget.kept[queue])
                usage[queue] += amount
                amount = max(0, usage[queue] - budget.kept[queue]) - spilled
                queue = budget.parent[queue]

    @staticmethod
    def _available(budget: QueueBudget, usage: list[int], queue: int) -> int:
        """Largest amount a job in this queue may take: up the tree, what a queue keeps is used first."""
        limit, parent = budget.limit[queue], budget.parent[queue]
        own = UNLIMITED if limit is None else limit - usage[queue]
        if parent is None:
            return own
        unspilled = max(0, budget.kept[queue] - usage[queue])
        return min(own, unspilled + QuotaLedger._available(budget, usage, parent))
