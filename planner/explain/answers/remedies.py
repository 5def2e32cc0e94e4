"""Remedies: the smallest changes after which a job that waits starts, and what each of them costs."""

from __future__ import annotations

from enum import StrEnum

from pydantic import Field

from gpuplan.models.base import Noun
from gpuplan.models.units import Count, CountedSeconds, Name, Timestamp


class RemedyKind(StrEnum):
    """What is changed."""

    RELEASE = "release"
    """The job is no longer held."""
    BEGIN = "begin"
    """The job may begin earlier than its user wants."""
    QUOTA = "quota"
    GPU_MODEL = "gpu_model"
    """The job may also run on this model."""
    SELECTOR = "selector"
    """The job does without a condition on nodes."""
    TOLERATION = "toleration"
    """The job tolerates a taint."""
    LOCALITY = "locality"
    """Its replicas may be further apart."""
    SPREAD = "spread"
    """More of its replicas may be in one domain."""
    REPLICAS = "replicas"
    CPUS = "cpus"
    """Of one replica."""
    MEMORY = "memory"
    """Of one replica, in MiB."""
    POLICY = "policy"
    """A switch of the policy."""
    PRIORITY = "priority"
    """Of the job, so that the plan may stop others for it."""
    STOP = "stop"
    """Somebody stops a running job, and it waits."""
    DEFER = "defer"
    """A job that the plan starts waits instead."""
    NODE = "node"
    """The cluster has nodes more."""
    UNCORDON = "uncordon"
    POWER = "power"
    """GPUs of a rack may draw more together."""
    WAIT = "wait"
    """Nothing is done until running jobs have ended."""


class RemedyPart(Noun):
    """One change."""

    kind: RemedyKind
    subject: Name
    """A queue, a job, a node, a pool, a rack, a GPU model, or the name of a knob."""
    job: Name | None = None
    """Another job that is changed, which has to start together with the explained one."""
    gpu_model: str = ""
    """Whose quota it is, where there is one for a model alone."""
    before: int | float | str | None = None
    after: int | float | str | None = None
    text: str
    """One sentence for people, without its subject being told elsewhere."""


class Remedy(Noun):
    """
    Changes after which the job starts, with everything else as the plan leaves it.

    The verifier has found no rule broken with the job on these nodes. With a part left out, or an amount one
    step smaller, the job would find no place.
    """

    parts: tuple[RemedyPart, ...] = Field(min_length=1)
    points: int
    """The objective with the job started, less the objective of the plan."""
    nodes: tuple[Name, ...]
    """Where it would start, with all that start together with it; sorted."""
    stops: tuple[Name, ...] = ()
    """Running jobs that stop; sorted."""
    by_hand: bool = False
    """The policy and its priorities do not let a plan do it: an operator stops these jobs."""
    lost_gpu_hours: float | None = None
    """Their work since their last checkpoints."""
    price_per_hour: float | None = None
    """Of nodes more, in the cluster's currency."""
    seconds: CountedSeconds | None = None
    """To be waited."""
    starts_at: Timestamp | None = None
    """Later than now."""


class Fit(Noun):
    """The job could start as things are: what that would bring, and where."""

    points: int
    nodes: tuple[Name, ...]


class Remedies(Noun):
    """What would make a job start."""

    fits: Fit | None = None
    """It could start with nothing changed; no remedy is looked for then."""
    found: tuple[Remedy, ...] = ()
    """Most points first."""
    more: Count = 0
    """Found as well and left out: they bring less than others of their kind."""
    unconfirmed: Count = 0
    """Seemed to be enough, but the planner found no concrete place, or the verifier a broken rule."""
    unplaced: bool = False
    """There seems to be room as things are, but no such place was found: no change was tried then."""
    together_with: tuple[Name, ...] = ()
    """Jobs that wait and have to start with it; no priority was tried then."""
