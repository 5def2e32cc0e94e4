"""Remedies: the smallest changes after which a waiting job starts, and what each of them costs."""

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
    """The job may start before its `not_before`."""
    QUOTA = "quota"
    GPU_MODEL = "gpu_model"
    """The job may also run on this model."""
    SELECTOR = "selector"
    """The job drops a condition on nodes."""
    TOLERATION = "toleration"
    """The job tolerates a taint."""
    LOCALITY = "locality"
    """Its replicas may be further apart."""
    SPREAD = "spread"
    """More of its replicas may be in one domain."""
    REPLICAS = "replicas"
    CPUS = "cpus"
    """CPUs of one replica."""
    MEMORY = "memory"
    """Memory of one replica, in MiB."""
    POLICY = "policy"
    """A policy switch is turned on."""
    PRIORITY = "priority"
    """Priority of the job, so that the plan may preempt others for it."""
    STOP = "stop"
    """A running job is stopped and waits."""
    DEFER = "defer"
    """A job that the plan starts waits instead."""
    NODE = "node"
    """The cluster gets more nodes."""
    UNCORDON = "uncordon"
    POWER = "power"
    """The power cap of a rack is raised."""
    WAIT = "wait"
    """Nothing is changed; the job waits until running jobs have ended."""


class RemedyPart(Noun):
    """One change of a remedy."""

    kind: RemedyKind
    subject: Name
    """A queue, a job, a node, a pool, a rack, a GPU model, or the name of a setting."""
    job: Name | None = None
    """Set if another job is changed: one that has to start together with the explained job."""
    gpu_model: str = ""
    """GPU model of the quota; empty for the quota of all models."""
    before: int | float | str | None = None
    after: int | float | str | None = None
    text: str
    """One phrase for people that is complete without the other fields."""


class Remedy(Noun):
    """
    Changes after which the job starts, with everything else as in the plan.

    The verifier finds no rule broken with the job on these nodes. With one part left out, or one amount a
    step smaller, the job would not fit.
    """

    parts: tuple[RemedyPart, ...] = Field(min_length=1)
    points: int
    """Objective with the job started, minus the objective of the plan."""
    nodes: tuple[Name, ...]
    """Nodes where it would start, together with the jobs of its co-start group; sorted."""
    stops: tuple[Name, ...] = ()
    """Running jobs that are stopped; sorted."""
    by_hand: bool = False
    """True if the policy or the priorities forbid it to a plan: an operator has to stop these jobs."""
    lost_gpu_hours: float | None = None
    """Work of the stopped jobs since their last checkpoints."""
    price_per_hour: float | None = None
    """Price of the added nodes, in the cluster's currency."""
    seconds: CountedSeconds | None = None
    """Time to wait."""
    starts_at: Timestamp | None = None
    """Start, if later than now."""


class ImmediateStart(Noun):
    """A start that is possible with nothing changed: its points and its nodes."""

    points: int
    nodes: tuple[Name, ...]


class Remedies(Noun):
    """All remedies for one waiting job."""

    fits: ImmediateStart | None = None
    """Set if the job could start with nothing changed; then no remedy is searched."""
    found: tuple[Remedy, ...] = ()
    """Most points first."""
    more: Count = 0
    """Number of remedies left out because they bring less than others of their kind."""
    unconfirmed: Count = 0
    """Number of remedies that passed the counting test, but got no placement or failed verification."""
    unplaced: bool = False
    """True if counts suffice with nothing changed, but no placement was found; then no change is tried."""
    together_with: tuple[Name, ...] = ()
    """Waiting jobs that have to start together with it; if there are any, no priority was tried."""
