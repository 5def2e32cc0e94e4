"""Rule about disruption budgets: how many of a group of jobs a plan may disrupt."""

from __future__ import annotations

from typing import TYPE_CHECKING

from gpuplan.models.plan.violation import Rule, Violation
from gpuplan.models.policy.settings import BudgetUnit, DisruptionBudget
from gpuplan.models.verifier.job_changes import Change
from gpuplan.models.verifier.messages import truncated_names

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from gpuplan.models.job import Job
    from gpuplan.models.verifier.context import Context


def disruption_budget(case: Context) -> Iterator[Violation]:
    """
    Of the group of a budget no more is preempted, migrated and shrunk than the budget leaves.

    It leaves what may be unavailable less what is: jobs that have run and wait, and jobs that were stopped or
    moved and have not worked again for long enough. Jobs that must leave for a window are unavailable too.
    """
    budgets = [each for each in case.policy.disruption.budgets if _applies_now(each, case)]
    if not budgets or not (lost := _lost_replicas(case)):
        return
    parents = {queue.name: queue.parent for queue in case.snapshot.queues}
    for budget in budgets:
        group = [job for job in case.snapshot.jobs if _is_in(job, budget, parents)]
        taken = {
            job.name: 1 if budget.counts is BudgetUnit.JOBS else lost[job.name]
            for job in group
            if job.name in lost and not _must_leave(job, case)
        }
        if not taken:
            continue
        expected, missing = _expected_and_missing(group, budget, case)
        most = _most_unavailable(budget, expected)
        if (count := sum(taken.values())) > most - missing:
            yield Violation(
                Rule.DISRUPTION_BUDGET,
                f"disruption budget {budget.name}",
                f"{count} {budget.counts} disrupted of {truncated_names(taken)}, and {missing} down already",
                f"{max(0, most)} of {expected} unavailable ({budget.limit_text})",
            )


def _applies_now(budget: DisruptionBudget, case: Context) -> bool:
    now = case.snapshot.taken_at
    spans = (span for window in budget.windows for span in window.spans(now, 1))
    return not budget.windows or any(begins <= 0 < ends for begins, ends in spans)


def _lost_replicas(case: Context) -> dict[str, int]:
    """Replicas that each disrupted job gives up; a job that goes elsewhere gives up all."""
    lost = {job.name: len(job.running.replicas) for job in case.stopped if job.running}
    for job, occupant in ((each.job, each) for each in case.others if each.job):
        held = len(job.running.replicas) if job.running else 0
        if occupant.change in (Change.MOVED, Change.REPLACED):
            lost[job.name] = held
        elif occupant.change is Change.SHRUNK:
            lost[job.name] = held - len(occupant.placement.replicas)
    return lost


def _is_in(job: Job, budget: DisruptionBudget, parents: Mapping[str, str | None]) -> bool:
    if any(job.labels.get(key) != value for key, value in budget.labels.items()):
        return False
    if budget.queue is None:
        return True
    queue: str | None = job.queue
    while queue is not None and queue != budget.queue:
        queue = parents.get(queue)
    return queue is not None


def _must_leave(job: Job, case: Context) -> bool:
    return case.time.windows.forced_leave_window(job) is not None


def _expected_and_missing(group: list[Job], budget: DisruptionBudget, case: Context) -> tuple[int, int]:
    """What of the group should be available, and what of that is not, in the unit of the budget."""
    expected = missing = 0
    for job in group:
        # A job that has never run is not missed; one that has and waits is unavailable.
        interrupted = job.progress is not None or job.preemptions > 0
        if job.running is not None:
            count, down = len(job.running.replicas), _must_leave(job, case)
            if interrupted:
                down = down or _seconds_at_work(job, case) < budget.min_ready
        elif interrupted and not job.withheld:
            count, down = job.gang.minimum, True
        else:
            continue
        count = 1 if budget.counts is BudgetUnit.JOBS else count
        expected += count
        missing += count if down else 0
    return expected, missing


def _seconds_at_work(job: Job, case: Context) -> float:
    """Seconds since a running job works at its places, not counting resizes; negative while it recovers."""
    running = job.running
    if running is None:
        return -1
    began = running.started_at
    if running.resumed_at and (running.resized_at is None or running.resized_at < began):
        began = running.resumed_at
    return (case.snapshot.taken_at - began).total_seconds()


def _most_unavailable(budget: DisruptionBudget, expected: int) -> int:
    if budget.max_unavailable is not None:
        return _number(budget.max_unavailable, expected)
    return expected - _number(budget.min_available or 0, expected)


def _number(portion: int | str, whole: int) -> int:
    """A number, or a percentage of the whole rounded up."""
    if isinstance(portion, int):
        return portion
    exact = int(portion[:-1]) * whole
    return exact // 100 + (exact % 100 > 0)
