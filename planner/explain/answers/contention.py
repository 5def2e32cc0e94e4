"""Standing: the jobs ahead of a waiting job, the jobs that hold what it needs, and its quotas' usage."""

from __future__ import annotations

from pydantic import Field, NonNegativeFloat, NonNegativeInt

from gpuplan.models.base import Noun
from gpuplan.models.policy.settings import Goal
from gpuplan.models.timing.durations import LeftBasis
from gpuplan.models.units import Count, CountedSeconds, Mib, Milli, Name, Timestamp


class QuotaLevel(Noun):
    """One quota limit between a job's queue and the root of the queue tree."""

    queue: Name
    gpu_model: str
    """Empty for the limit over all models together."""
    used_milli: Milli = Field(alias="used")
    """GPUs that count against this limit once the plan is applied."""
    limit_milli: Milli = Field(alias="limit")
    needed_milli: Milli = Field(alias="needed")
    """GPUs the job would add here; a queue below may cover a part from quota that it does not lend."""
    binds: bool
    """True if the job would exceed the limit."""


class FreeBlock(Noun):
    """The eligible node with the most free capacity for a job, without what is promised to other jobs."""

    node: Name
    gpus: Count
    """GPUs that are wholly free."""
    largest_share_milli: Milli = Field(alias="largest_share")
    """Largest free part of one GPU."""
    cpu_milli: Milli = Field(alias="cpus")
    memory_mib: Mib


class Urgency(Noun):
    """The figures that decide the place of one job in the order of waiting jobs."""

    priority: Count
    points: NonNegativeInt
    """Value of its work, on its fastest GPU model."""
    gpu_milli: Milli = Field(alias="gpus")
    """The most GPUs it asks for."""
    weight_milli: Milli = Field(alias="weight")
    goal: Goal
    """The goal that sets its value; the figure that the goal uses is one of those below."""
    left_seconds: CountedSeconds
    """Time to its end, as its goal estimates it."""
    left_basis: LeftBasis
    """Source of `left_seconds`."""
    served_gpu_seconds: NonNegativeInt
    """GPUs held so far, times how long."""
    rho: NonNegativeFloat
    """Time since submission and to its end, divided by that time with an equal share of the cluster."""
    waited_seconds: CountedSeconds


class CompetingJob(Urgency):
    """A waiting job that is ahead of the explained job and waits for the same quota or nodes."""

    job: Name
    queue: Name


class ResourceHolder(Noun):
    """A job that runs once the plan is applied, and holds quota or nodes that the explained job needs."""

    job: Name
    queue: Name
    user: Name
    priority: Count
    gpu_milli: Milli = Field(alias="gpus")
    """GPUs on nodes that the explained job could use."""
    nodes: tuple[Name, ...]
    ends_at: Timestamp
    """Expected end."""
    may_be_stopped: bool
    """True if the planner may preempt it for the explained job at its present priority."""


class QueuePosition(Noun):
    """Position of a waiting job among the other jobs."""

    points: NonNegativeInt
    """Value of its work, on its fastest GPU model."""
    urgency: Urgency
    """The job's own figures."""
    replicas_fitting: Count
    """Replicas that its eligible nodes have capacity for now; quotas are not considered."""
    replicas_needed: Count
    matching_nodes: Count
    largest_free: FreeBlock | None = None
    """None if no node is eligible."""
    quotas: tuple[QuotaLevel, ...] = ()
    """From its queue up to the root."""
    ahead: tuple[CompetingJob, ...] = ()
    """The first few: by priority where priorities are tiers, then by points per GPU."""
    ahead_in_all: Count = 0
    holders: tuple[ResourceHolder, ...] = ()
    """The first few to end."""
    holders_in_all: Count = 0
