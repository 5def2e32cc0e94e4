"""Why a running job stays on a node that it should leave: it may not be stopped, or a stop costs too much."""

from __future__ import annotations

from functools import cached_property
from typing import TYPE_CHECKING, Final

from gpuplan.models.value.start_value import StartValue
from gpuplan.planner.analysis.budget_use import BudgetKeeper, budget_text

if TYPE_CHECKING:
    from gpuplan.models.job import Job
    from gpuplan.models.plan.plan import Plan

FIXED: Final = "not preemptible"
STAYS: Final = "stays"
"""Neither a budget nor the cost of a stop keeps the job; a rule between jobs does."""


class StayReasons:
    """Reasons of one plan."""

    def __init__(self, plan: Plan) -> None:
        self._plan = plan
        self._policy = plan.rules

    @cached_property
    def _budgets(self) -> BudgetKeeper:
        return BudgetKeeper(self._plan.snapshot, self._policy, self._plan.target)

    @cached_property
    def _values(self) -> StartValue:
        return StartValue(self._plan.snapshot, self._policy)

    def of_drain(self, job: Job) -> str:
        """Why it stays on a node to be drained: `not preemptible`, a budget, or what a stop costs."""
        if job.preemptible and (use := self._budgets.against(job)) is not None:
            return budget_text(use)
        return self.of_window(job)

    def of_window(self, job: Job) -> str:
        """Why it stays on a node that a window closes, which comes before all budgets."""
        if not job.preemptible:
            return FIXED
        price = self._policy.prices.drain
        brings, costs = self._policy.owed(price), self.stop_points(job)
        if costs < brings:
            return STAYS
        over = f", {brings:,} over this horizon" if brings != price else ""
        return f"a stop costs {costs:,} points, prices.drain is {price:,}{over}"

    def stop_points(self, job: Job) -> int:
        """Points that the plan loses if a running job is stopped now and waits."""
        if job.running is None:
            return 0
        values, count = self._values, len(job.running.replicas)
        left = values.durations.remaining(job) if values.slots.count > 1 else 0
        worth = values.completion(job, values.durations.gpu_model(job), count, seconds=left)
        return worth + values.saved_lateness(job, start=0, seconds=left) + values.stop_points(job)
