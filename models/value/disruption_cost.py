"""Cost of disrupting a running job and of keeping a node, in objective points."""

from __future__ import annotations

from math import floor
from typing import TYPE_CHECKING, Final

from gpuplan.models.timing.progress import recovering_seconds, unsaved_seconds
from gpuplan.models.units import MILLI

if TYPE_CHECKING:
    from datetime import datetime

    from gpuplan.models.cluster import NodePool
    from gpuplan.models.job import Job
    from gpuplan.models.policy.policy import Policy

_SECONDS_PER_HOUR: Final = 3600


def recovery_seconds(policy: Policy, job: Job) -> int:
    """Time before a preempted or resized job works again: checkpoint + restart."""
    rules = policy.disruption
    checkpoint = rules.checkpoint if job.checkpoint_duration is None else job.checkpoint_duration
    restart = rules.restart if job.restart_duration is None else job.restart_duration
    return checkpoint + restart


def lost_seconds(policy: Policy, job: Job, now: datetime) -> int:
    """
    Time by which a preemption or resize prolongs a running job: recovery + unsaved work.

    Without a checkpoint all work of this run is lost. A job that is still recovering from an earlier
    checkpoint loses only the part of that recovery that has passed. A job that does not run loses nothing.
    """
    if job.running is None:
        return 0
    return max(0, recovery_seconds(policy, job) + unsaved_seconds(job, now) - recovering_seconds(job, now))


def disruption_points(policy: Policy, job: Job, now: datetime) -> int:
    """Price of the GPU-hours that a running job loses when it is preempted or migrates."""
    if job.placement is None:
        return 0
    gpu_milli = max(job.placement.quota_milli, policy.weights.smallest_size_milli)
    seconds = lost_seconds(policy, job, now)
    return gpu_milli * seconds * policy.prices.disruption // (MILLI * _SECONDS_PER_HOUR)


def resize_points(policy: Policy, job: Job, now: datetime) -> int:
    """Price of shrinking or growing a running job, which resumes from its checkpoint with other replicas."""
    return policy.prices.resize + disruption_points(policy, job, now)


def node_points(policy: Policy, pool: NodePool) -> int:
    """
    Price of one node of a pool over the policy's horizon: its own price, and losses by spot interruptions.

    The price of adding or removing it, `prices.scaling`, is not included.

        hours · price · currency  +  hours · interruptions · GPUs · restart hours · disruption
    """
    hours = policy.pools.horizon / _SECONDS_PER_HOUR
    price = pool.template.price_per_hour * policy.prices.currency
    return floor(hours * (price + interruption_points(policy, pool)) + 0.5)


def interruption_points(policy: Policy, pool: NodePool) -> float:
    """Price of the expected loss per hour by interruptions of one spot node of a pool; 0 for other nodes."""
    node = pool.template
    risk = pool.interruptions_per_hour if node.spot else 0.0
    restart_hours = policy.disruption.restart / _SECONDS_PER_HOUR
    return risk * node.gpu_count * restart_hours * policy.prices.disruption


def currency_points(policy: Policy, amount: float) -> int:
    """Points of an amount of the cluster's currency, rounded to the nearest integer."""
    return floor(amount * policy.prices.currency + 0.5)
