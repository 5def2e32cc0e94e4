"""Disruption budgets that let a job wait: they keep running jobs that it could otherwise replace."""

from __future__ import annotations

from typing import TYPE_CHECKING

from gpuplan.planner.analysis.budget_use import BudgetKeeper, budget_text

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Sequence

    from gpuplan.models.job import Job
    from gpuplan.models.plan.plan import BudgetUse
    from gpuplan.models.plan.reason import Reason
    from gpuplan.models.plan.solution import DesiredState
    from gpuplan.models.policy.policy import Policy
    from gpuplan.models.snapshot import Snapshot


class BudgetBlocks:
    """The running jobs that only a disruption budget protects from jobs of enough priority."""

    def __init__(self, snapshot: Snapshot, policy: Policy, target: DesiredState) -> None:
        self._kept: list[tuple[int, frozenset[str], str, BudgetUse]] = []
        """(lowest priority that could replace the job, its nodes, its root queue, the budget)."""
        rules = policy.disruption
        if not rules.budgets or not rules.preempt:
            return
        self._above = {queue.name: queue.parent for queue in snapshot.queues}
        keeper, jobs = BudgetKeeper(snapshot, policy, target), snapshot.job_by_name
        for placement in target.placements:
            job = jobs[placement.job]
            if rules.may_disturb(job, snapshot.taken_at) and (use := keeper.against(job)) is not None:
                root, least = self._root(job.queue), job.priority + rules.priority_gap
                self._kept.append((least, placement.nodes, root, use))

    @property
    def by_priority(self) -> bool:
        """True if the answers depend on the priority of a job."""
        return bool(self._kept)

    def on_nodes(self, job: Job, names: Collection[str]) -> list[BudgetUse]:
        """The budgets that keep jobs on some nodes which this one could replace, by name."""
        names = set(names)
        return _distinct(
            use for least, nodes, _, use in self._kept if job.priority >= least and nodes & names
        )

    def in_queues(self, job: Job) -> list[BudgetUse]:
        """The budgets that keep jobs in queues under the same root which this one could replace, by name."""
        if not self._kept:
            return []
        root = self._root(job.queue)
        return _distinct(use for least, _, top, use in self._kept if job.priority >= least and top == root)

    def _root(self, queue: str) -> str:
        while (above := self._above.get(queue)) is not None:
            queue = above
        return queue


def _distinct(uses: Iterable[BudgetUse]) -> list[BudgetUse]:
    by_name = {use.name: use for use in uses}
    return [by_name[name] for name in sorted(by_name)]


def with_budgets(reason: Reason, uses: Sequence[BudgetUse]) -> Reason:
    """The reason with the budgets in its sentence, and their names among its numbers."""
    if not uses:
        return reason
    numbers = reason.numbers | {"disruption_budgets": ", ".join(use.name for use in uses)}
    text = "; ".join([reason.text, *map(budget_text, uses)])
    return reason.model_copy(update={"text": text, "numbers": numbers})
