"""PolicyReview: one snapshot planned under two policies, and the jobs that gain or lose under the new one."""

from __future__ import annotations

from typing import Any

from pydantic import Field

from gpuplan.models.base import Noun
from gpuplan.models.units import Count, Milli, Name, Timestamp


class PolicyDifference(Noun):
    """A setting that differs between two policies."""

    path: str
    """Path in the policy document, such as `prices.disruption`."""
    before: Any = None
    """None if the policy does not have it."""
    after: Any = None


class ReplicaCountChange(Noun):
    """A job that runs with another number of replicas under the new policy."""

    job: Name
    queue: Name
    user: Name
    before: str
    """Type of its action under the old policy: `start`, `keep`, `wait` and so on."""
    after: str
    replicas_before: Count
    """Running replicas; 0 if the job waits."""
    replicas_after: Count
    gpus: float
    """GPUs under the new policy minus GPUs under the old one."""
    reason: str
    """Reason of its action under the new policy."""


class QueueChange(Noun):
    """What the jobs directly in a queue hold under each policy."""

    queue: Name
    gpu_milli_before: Milli = Field(alias="gpus_before")
    gpu_milli_after: Milli = Field(alias="gpus_after")
    running_before: Count
    running_after: Count


class PolicyPlan(Noun):
    """Figures of one of the two plans."""

    plan_id: str
    policy: str
    """Fingerprint of the policy."""
    status: str
    objective: int
    """At the prices and weights of its own policy."""
    bound: int | None
    gap: float | None
    terms: dict[str, int]
    started: Count
    preempted: Count
    waiting: Count
    gpus_held: float
    lost_gpu_hours: float
    """Work since the last checkpoint of all jobs that are stopped or moved."""
    promises: Count
    """Later starts that are reserved for waiting jobs."""


class PolicyReview(Noun):
    """Effect of a change of policy on one snapshot."""

    snapshot: str
    """Fingerprint of the snapshot."""
    epoch: Timestamp
    seed: int
    knobs: tuple[PolicyDifference, ...]
    """Sorted by path."""
    old: PolicyPlan
    new: PolicyPlan
    gains: tuple[ReplicaCountChange, ...] = ()
    """Jobs with more replicas under the new policy, most GPUs first."""
    losses: tuple[ReplicaCountChange, ...] = ()
    """Jobs with fewer replicas under the new policy, most GPUs first."""
    moved: tuple[Name, ...] = ()
    """Jobs that move under only one of the policies, sorted."""
    broken_promises: tuple[Name, ...] = ()
    """Jobs with a promised start under the old policy only that the new one does not start; sorted."""
    queues: tuple[QueueChange, ...] = ()
    """Queues that differ, sorted by name."""
    gain_by_new: int | None = None
    """Points of the new plan minus the old plan's, both under the new policy; None if it forbids the old."""
    undecided: bool = False
    """True if the plans differ by no more than the gap: a longer search could reverse the result."""

    @property
    def same(self) -> bool:
        """True if all jobs run as under the old policy."""
        return not (self.gains or self.losses or self.moved or self.broken_promises)
