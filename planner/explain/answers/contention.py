"""Standing: who is before a waiting job, who holds what it needs, and how its quotas stand."""

from __future__ import annotations

from pydantic import Field, NonNegativeFloat, NonNegativeInt

from gpuplan.models.base import Noun
from gpuplan.models.policy.objective import Goal
from gpuplan.models.timing.durations import LeftBasis
from gpuplan.models.units import Count, CountedSeconds, Mib, Milli, Name, Timestamp


class QuotaStanding(Noun):
    """One limit between a job and the root of the queue tree."""

    queue: Name
    gpu_model: str
    """Empty for the limit of all models together."""
    used_milli: Milli = Field(alias="used")
    """GPUs that count here once the plan is carried out."""
    limit_milli: Milli = Field(alias="limit")
    needed_milli: Milli = Field(alias="needed")
    """What the job would add here: a queue below may keep a part for itself."""
    binds: bool
    """The job would break it."""


class FreeBlock(Noun):
    """The node with most room for a job of those it may use, without what is promised to others."""

    node: Name
    gpus: Count
    """Wholly free."""
    largest_share_milli: Milli = Field(alias="largest_share")
    """Most free of one GPU."""
    cpu_milli: Milli = Field(alias="cpus")
    memory_mib: Mib


class Urgency(Noun):
    """What decides on the order of waiting jobs, for one of them."""

    priority: Count
    points: NonNegativeInt
    """Of its work, on its fastest GPU model."""
    gpu_milli: Milli = Field(alias="gpus")
    """That it asks for at most."""
    weight_milli: Milli = Field(alias="weight")
    goal: Goal
    """By which it is worth something; what it goes by is one of the figures below."""
    left_seconds: CountedSeconds
    """That the goal takes it to need to its end."""
    left_basis: LeftBasis
    """What that rests on."""
    served_gpu_seconds: NonNegativeInt
    """How long it has held GPUs so far, times GPUs."""
    rho: NonNegativeFloat
    """Its time here and to its end, over that with an equal share of the cluster."""
    waited_seconds: CountedSeconds


class Rival(Urgency):
    """A waiting job that goes before another, and waits for the same."""

    job: Name
    queue: Name


class Holder(Noun):
    """A job that runs once the plan is carried out, and holds what another one needs."""

    job: Name
    queue: Name
    user: Name
    priority: Count
    gpu_milli: Milli = Field(alias="gpus")
    """On nodes that the other one could use."""
    nodes: tuple[Name, ...]
    ends_at: Timestamp
    """As expected."""
    may_be_stopped: bool
    """By the planner, for the other one as it is."""


class Standing(Noun):
    """How a waiting job stands among the others."""

    points: NonNegativeInt
    """Of its work, on its fastest GPU model."""
    urgency: Urgency
    """Of the job itself."""
    replicas_fitting: Count
    """Replicas that find room now on nodes it may use, whatever quotas say."""
    replicas_needed: Count
    matching_nodes: Count
    largest_free: FreeBlock | None = None
    """None if no node matches."""
    quotas: tuple[QuotaStanding, ...] = ()
    """From its queue up."""
    ahead: tuple[Rival, ...] = ()
    """The first of them: by priority where priorities are tiers, then by points for each GPU."""
    ahead_in_all: Count = 0
    holders: tuple[Holder, ...] = ()
    """The first to end."""
    holders_in_all: Count = 0
