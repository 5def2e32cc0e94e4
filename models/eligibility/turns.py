"""
Turns: which running jobs are stopped for jobs of equal priority, where the policy allows that at all.

A job that starved keeps its places to its end, or it would wait again and delay the next starving job. A job
that plans have stopped k times is left alone until it has run for (2^k − 1) times its recovery. So however
the worth of jobs changes, each is stopped for equals a few times only, and the time lost is a small part of
the time run. Doubling quanta: Corbató, Merwin-Daggett and Daley, AFIPS Spring Joint Computer Conference 21,
1962.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from gpuplan.models.timing.progress import unserved_seconds
from gpuplan.models.value.disruption_cost import recovery_seconds

if TYPE_CHECKING:
    from datetime import datetime

    from gpuplan.models.job import Job
    from gpuplan.models.policy.policy import Policy


def least_follower(policy: Policy, job: Job, now: datetime) -> int:
    """Lowest priority of jobs that may take what a running job gives up, unless they reclaim it."""
    gap = policy.disruption.priority_gap
    return job.priority + (gap if gap or yields_to_equals(policy, job, now) else 1)


def yields_to_equals(policy: Policy, job: Job, now: datetime) -> bool:
    """True if a running job may be stopped or shrunk for jobs of equal priority."""
    starving = policy.horizon.backfill.starving
    if job.running is None or (starving is not None and unserved_seconds(job, now) >= starving):
        return False
    turn = max(policy.objective.shortest, recovery_seconds(policy, job))
    turns = max(0, int((now - job.running.started_at).total_seconds())) // turn
    return (turns + 1).bit_length() > job.preemptions  # it has run for 2^preemptions − 1 turns or more
