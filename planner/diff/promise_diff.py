"""Promised starts before and after a plan, and in a newer snapshot."""

from __future__ import annotations

from typing import TYPE_CHECKING

from gpuplan.models.plan.diff import PromiseChange, PromiseDiff

if TYPE_CHECKING:
    from datetime import datetime

    from gpuplan.models.plan.plan import Plan
    from gpuplan.models.snapshot import Snapshot


def promise_diffs(plan: Plan, live: Snapshot | None = None) -> tuple[PromiseDiff, ...]:
    """List the jobs with a promised start before the plan, after it, or in the newer snapshot; by job."""
    before, now = _promised(plan.snapshot), _promised(live) if live else {}
    after = {each.job: each.start for each in plan.planned if each.promised}
    placed = {placement.job for placement in plan.placements}
    why = {waiting.job: waiting.promise_changed for waiting in plan.waiting}
    known = plan.snapshot.job_by_name | (live.job_by_name if live else {})
    return tuple(
        PromiseDiff(
            job=job,
            queue=known[job].queue,
            change=_change(before.get(job), after.get(job), starts=job in placed),
            before=before.get(job),
            after=after.get(job),
            live=now.get(job),
            why=why.get(job, ""),
        )
        for job in sorted(before.keys() | after.keys() | now.keys())
    )


def _promised(snapshot: Snapshot) -> dict[str, datetime]:
    return {job.name: job.promise.start for job in snapshot.jobs if job.promise and job.running is None}


def _change(before: datetime | None, after: datetime | None, *, starts: bool) -> PromiseChange:
    if starts:
        return PromiseChange.STARTED
    if before is None or after is None:
        if before is None:
            # Both are None if only the newer snapshot has a promise.
            return PromiseChange.KEPT if after is None else PromiseChange.MADE
        return PromiseChange.WITHDRAWN
    if before == after:
        return PromiseChange.KEPT
    return PromiseChange.EARLIER if after < before else PromiseChange.LATER
