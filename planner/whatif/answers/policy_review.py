"""PolicyReview: one snapshot planned under two policies, and who is better or worse off under the new one."""

from __future__ import annotations

from typing import Any

from pydantic import Field

from gpuplan.models.base import Noun
from gpuplan.models.units import Count, Milli, Name, Timestamp


class KnobChange(Noun):
    """A value that differs between two policies."""

    path: str
    """Its place in the document, such as `prices.disruption`."""
    before: Any = None
    """None where the policy does not have it."""
    after: Any = None


class JobChange(Noun):
    """A job that runs with another number of replicas under the new policy."""

    job: Name
    queue: Name
    user: Name
    before: str
    """Type of its action under the old policy: `start`, `keep`, `wait` and so on."""
    after: str
    replicas_before: Count
    """That run; 0 of a job that waits."""
    replicas_after: Count
    gpus: float
    """More or, below 0, less than under the old policy."""
    reason: str
    """Why it is so under the new policy."""


class QueueChange(Noun):
    """What a queue, without those below it, has under either policy."""

    queue: Name
    gpu_milli_before: Milli = Field(alias="gpus_before")
    gpu_milli_after: Milli = Field(alias="gpus_after")
    running_before: Count
    running_after: Count


class PolicyPlan(Noun):
    """One of the two plans in figures."""

    plan_id: str
    policy: str
    """Fingerprint."""
    status: str
    objective: int
    """By the prices and weights of its own policy."""
    bound: int | None
    gap: float | None
    terms: dict[str, int]
    started: Count
    preempted: Count
    waiting: Count
    gpus_held: float
    lost_gpu_hours: float
    """Work since the last checkpoints of all who are stopped or moved."""
    promises: Count
    """Later starts that are held for waiting jobs."""


class PolicyReview(Noun):
    """What a change of policy would do to one snapshot."""

    snapshot: str
    """Fingerprint."""
    epoch: Timestamp
    seed: int
    knobs: tuple[KnobChange, ...]
    """By path."""
    old: PolicyPlan
    new: PolicyPlan
    gains: tuple[JobChange, ...] = ()
    """Jobs with more replicas under the new policy, most GPUs first."""
    losses: tuple[JobChange, ...] = ()
    """Jobs with fewer, most GPUs first."""
    moved: tuple[Name, ...] = ()
    """Jobs that move under one of the policies only, sorted."""
    broken_promises: tuple[Name, ...] = ()
    """Jobs promised a start under the old policy only, and not started under the new; sorted."""
    queues: tuple[QueueChange, ...] = ()
    """Those that differ, by name."""
    gain_by_new: int | None = None
    """Points of the new plan less the old one's, both by the new policy; None if that forbids the old one."""
    undecided: bool = False
    """The plans differ by no more than the search may have missed: a longer one could turn it round."""

    @property
    def same(self) -> bool:
        """True if everybody is where the old policy has them."""
        return not (self.gains or self.losses or self.moved or self.broken_promises)
