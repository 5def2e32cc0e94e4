"""
Limits that are no quotas: of the pending jobs, those beyond a limit are held.

In the order in which Slurm looks at them, each pending job may start if all its limits leave room for it
beside the running jobs and those before it. So whatever a plan starts, no limit is exceeded while the running
jobs stay; a plan that stops one of them does not use what it leaves before the next epoch.
"""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

from gpuplan.planner.sources.slurm.accounts.limits import LimitId, taken_by
from gpuplan.planner.sources.slurm.values import LONGEST_REASON

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Mapping

    from gpuplan.models.job import Job
    from gpuplan.planner.sources.slurm.accounts.limits import Limit, Limits
    from gpuplan.planner.sources.slurm.accounts.quotas import QuotaTree
    from gpuplan.planner.sources.slurm.values import Record


def admitted(
    jobs: Collection[tuple[Job, Record]],
    limits: Limits,
    tree: QuotaTree,
    note: Callable[[str, str], None],
) -> list[Job]:
    """The jobs with their records, without the records; pending ones beyond a limit are held."""
    counted = {id(job): _counts(record, limits, running=job.running is not None) for job, record in jobs}
    used = Counter[LimitId]()
    for job, _ in jobs:
        if job.running is not None:
            used.update({limit.id: amount for limit, amount in counted[id(job)]})
    held: dict[int, str] = {}
    pending = [job for job, _ in jobs if job.running is None and not job.held]
    for job in sorted(pending, key=_turn):
        beyond = [
            (limit, amount)
            for limit, amount in counted[id(job)]
            if limit.in_force and not tree.covers(limit.id) and used[limit.id] + amount > limit.most
        ]
        if beyond:
            held[id(job)] = "; ".join(_reason(limit, amount, used) for limit, amount in beyond)
            note(f"job {job.name}", held[id(job)])
        else:
            used.update({limit.id: amount for limit, amount in counted[id(job)]})
    return [
        job.model_copy(update={"held": True, "hold_reason": held[id(job)][:LONGEST_REASON]})
        if id(job) in held
        else job
        for job, _ in jobs
    ]


def without_limit(records: Collection[Record], limits: Limits) -> Mapping[LimitId, int]:
    """What running jobs take of limits that are not in force for them."""
    found = Counter[LimitId]()
    for record in records:
        for limit, amount in _counts(record, limits, running=True):
            if not limit.in_force:
                found[limit.id] += amount
    return found


def _counts(record: Record, limits: Limits, *, running: bool) -> list[tuple[Limit, int]]:
    """The limits that a job counts for, with how much."""
    taken = taken_by(record, running=running)
    found = (limit for limit in limits.of(limits.payer(record)) if limit.together)
    return [(limit, amount) for limit in found if (amount := taken.get(limit.id.tres, 0))]


def _turn(job: Job) -> tuple[int, int, str, int, str]:
    """Place of a job in Slurm's order: the higher priority first, then the earlier submission."""
    return -job.priority, -job.weight_milli, job.submitted_at.isoformat(), len(job.name), job.name


def _reason(limit: Limit, amount: int, used: Mapping[LimitId, int]) -> str:
    unit = " MiB" if limit.id.tres == "mem" else ""
    return (
        f"the limit {limit.text} does not allow it now: it needs {amount:,}{unit}, "
        f"{used[limit.id]:,}{unit} are in use or go to jobs before it"
    )
