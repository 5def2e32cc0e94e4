"""The rule about later starts: their jobs, slots and numbers of replicas."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

from gpuplan.models.plan.violation import Rule, Violation
from gpuplan.models.verifier.messages import format_count, truncated_names

if TYPE_CHECKING:
    from collections.abc import Iterator

    from gpuplan.models.plan.desired_state import LaterStart
    from gpuplan.models.verifier.context import Context


def horizon(case: Context) -> Iterator[Violation]:
    """
    A later start is of a job that is pending or preempted now, once, in a later slot of the horizon.

    It has the minimum number of replicas of its gang, on no node to be removed. Other rules check that its
    resources are free then.
    """
    times = Counter(each.job for each in case.planned)
    placed = {placement.job for placement in case.placements} if case.planned else set()
    for each in case.planned:
        subject = f"job {each.job} in slot {each.slot}"
        if times[each.job] > 1:
            found = format_count(times[each.job], "later start")
            yield Violation(Rule.HORIZON, f"job {each.job}", found, "1 later start")
        if each.job in placed:
            yield Violation(Rule.HORIZON, subject, "a job that is placed now too", "one start")
        for found, allowed in _faults(case, each):
            yield Violation(Rule.HORIZON, subject, found, allowed)


def _faults(case: Context, planned: LaterStart) -> Iterator[tuple[str, str]]:
    """Faults of one later start as (found, allowed)."""
    last = case.time.slots.count - 1
    if not 1 <= planned.slot <= last:
        yield f"slot {planned.slot}", f"slots 1 to {last}" if last else "no later start: there is one slot"
    if removed := sorted({replica.node for replica in planned.replicas} & case.gone):
        yield f"on {truncated_names(removed)}, which is removed", "nodes that stay"
    job = case.jobs.get(planned.job)
    if job is None:
        yield "no such job in the snapshot", "a job of the snapshot"
        return
    if job.held:
        yield "a held job", "a held job waits"
    if (count := len(planned.replicas)) != job.gang.minimum:
        yield format_count(count, "replica"), format_count(job.gang.minimum, "replica")
