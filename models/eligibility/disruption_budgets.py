"""What each disruption budget of a policy leaves for a plan of a snapshot."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import TYPE_CHECKING

from gpuplan.models.policy.settings import BudgetUnit, DisruptionBudget, portion_of
from gpuplan.models.queue import queue_and_below
from gpuplan.models.timing.progress import working_since

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from gpuplan.models.job import Job
    from gpuplan.models.policy.policy import Policy
    from gpuplan.models.snapshot import Snapshot


@dataclass(frozen=True, slots=True)
class BudgetState:
    """A disruption budget in force, with the state of its group before a plan."""

    budget: DisruptionBudget
    members: tuple[str, ...]
    """The running jobs that a plan may disrupt only within the budget, sorted."""
    expected: int
    """Replicas or jobs of the group that should be available."""
    down: int
    """Those of them that are not, or must leave for a reservation window now, whatever the budget says."""
    allowed: int
    """The most that may be unavailable; negative if fewer are expected than should be available."""

    @property
    def left(self) -> int:
        """The most that a plan may disrupt."""
        return max(0, self.allowed - self.down)

    def size(self, job: Job) -> int:
        """What a job counts for as a whole."""
        return budget_size(self.budget, job)


def budget_states(
    snapshot: Snapshot, policy: Policy, must_leave: Callable[[Job], bool]
) -> tuple[BudgetState, ...]:
    """
    The state of each budget in force, in the order of the policy.

    `must_leave` tells of a running job whether a reservation window closes its nodes before the next plan.
    Such a job will not stay, so no budget keeps it, and it counts as unavailable.
    """
    now = snapshot.taken_at
    return tuple(
        _state(budget, _group(snapshot, budget), must_leave, now)
        for budget in policy.disruption.budgets
        if budget.is_in_force(now)
    )


def budget_size(budget: DisruptionBudget, job: Job) -> int:
    """What a job counts for as a whole: its replicas, its fewest if it does not run; or one as a job."""
    if budget.counts is BudgetUnit.JOBS:
        return 1
    return len(job.running.replicas) if job.running else job.gang.minimum


def was_interrupted(job: Job) -> bool:
    """True if the job has run before and was then stopped, moved or resized."""
    return job.progress is not None or job.preemptions > 0


def _group(snapshot: Snapshot, budget: DisruptionBudget) -> list[Job]:
    below = None if budget.queue is None else set(queue_and_below(budget.queue, snapshot.child_queues))
    labels = budget.labels.items()
    return [
        job for job in snapshot.jobs if (below is None or job.queue in below) and labels <= job.labels.items()
    ]


def _state(
    budget: DisruptionBudget, group: Iterable[Job], must_leave: Callable[[Job], bool], now: datetime
) -> BudgetState:
    members, expected, down = [], 0, 0
    for job in group:
        if job.running is None and (job.withheld or not was_interrupted(job)):
            continue  # It waits for its turn, or is not to run: nothing is missing.
        size = budget_size(budget, job)
        expected += size
        if job.running is None or not _is_ready(budget, job, now) or must_leave(job):
            down += size
        if job.running is not None and not must_leave(job):
            members.append(job.name)
    if budget.max_unavailable is not None:
        allowed = portion_of(budget.max_unavailable, expected)
    else:
        allowed = expected - portion_of(budget.min_available or 0, expected)
    return BudgetState(budget, tuple(sorted(members)), expected, down, allowed)


def _is_ready(budget: DisruptionBudget, job: Job, now: datetime) -> bool:
    """True unless a running job that was stopped or moved has not worked again for long enough."""
    running = job.running
    if running is None or not was_interrupted(job):
        return running is not None
    # A resize interrupts a job too, but takes none of its remaining replicas from the group for good.
    resized = running.resized_at is not None and running.resized_at >= running.started_at
    since = running.started_at if resized else working_since(running)
    return since + timedelta(seconds=budget.min_ready) <= now
