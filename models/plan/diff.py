"""
Diff: what a plan changes, before against after, as data.

Only what differs is in it; before and the diff together give after. With a newer snapshot it also says what
has become of the world the plan was made for. GPUs are in thousandths (`milli`).
"""

from __future__ import annotations

from enum import StrEnum
from operator import not_

from pydantic import Field

from gpuplan.models.base import Noun
from gpuplan.models.cluster import MigInstance
from gpuplan.models.placement import Placement
from gpuplan.models.plan.plan import NodeChange
from gpuplan.models.units import Count, Name, Timestamp


class JobDiff(Noun):
    """A job whose placement the plan changes; None stands for waiting."""

    job: Name
    queue: Name
    change: str
    """Type of its action, such as `start` or `preempt`."""
    before: Placement | None
    after: Placement | None


class NodeDiff(Noun):
    """A node that the plan adds or removes, or on which it changes what is free."""

    node: Name
    change: NodeChange = NodeChange.KEPT
    gpus: Count
    """All of its GPUs, usable or not."""
    free_before_milli: int
    """0 of a node that is added."""
    free_after_milli: int
    """0 of a node that is removed."""
    arriving: tuple[Name, ...]
    """Jobs with new replicas here, sorted; a job that moves within the node arrives and leaves."""
    leaving: tuple[Name, ...] = ()
    """Jobs that give up replicas here, sorted."""


class LayoutDiff(Noun):
    """A GPU whose MIG layout the plan changes."""

    node: Name
    gpu: int
    before: tuple[MigInstance, ...] | None
    """None: MIG mode is off."""
    after: tuple[MigInstance, ...]


class QueueDiff(Noun):
    """A queue, or one GPU model in it, with what counts against its limit (as `models.queue` defines it)."""

    queue: Name
    parent: Name | None
    gpu_model: str
    """Empty for all models together."""
    used_before_milli: int
    used_after_milli: int
    limit_milli: int | None
    """None is no limit."""
    waiting_before: Count
    """Jobs directly in this queue."""
    waiting_after: Count


class GpuModelDiff(Noun):
    """All usable GPUs of one model: healthy, on ready nodes."""

    gpu_model: Name
    usable_before_milli: int
    usable_after_milli: int
    used_before_milli: int
    used_after_milli: int


class PromiseChange(StrEnum):
    """What a plan does to what a job was promised."""

    KEPT = "kept"
    MADE = "made"
    """The job was promised nothing."""
    EARLIER = "earlier"
    LATER = "later"
    WITHDRAWN = "withdrawn"
    STARTED = "started"
    """The job starts now."""


class PromiseDiff(Noun):
    """The start that a job is promised, before and after the plan."""

    job: Name
    queue: Name
    change: PromiseChange
    before: Timestamp | None = None
    """None: it was promised nothing."""
    after: Timestamp | None = None
    """None: it is promised nothing, for it starts now or waits without a promise."""
    live: Timestamp | None = None
    """What the job is promised in the newer snapshot, if there was one."""
    why: str = ""
    """Why a promise is put off or withdrawn."""


class Drifted(Noun):
    """Something that is no longer as it was when the plan was made."""

    subject: str
    """Such as `job train-a` or `node h100-03`."""
    change: str
    """Such as `is gone` or `changed in priority`."""
    touched: bool
    """True if it is a job or a node that the plan changes, or a job that ran or runs on such a node."""


class Diff(Noun):
    """Before against after, per job, node, MIG layout, queue and GPU model."""

    plan_id: str
    epoch: Timestamp | None = None
    """The plan's; None in diffs of older versions."""
    jobs: tuple[JobDiff, ...]
    """By name."""
    unchanged: Count
    """Running jobs that stay as they are."""
    waiting: Count
    """Jobs that wait before and after."""
    nodes: tuple[NodeDiff, ...]
    """By name."""
    layouts: tuple[LayoutDiff, ...] = ()
    """By node and GPU."""
    queues: tuple[QueueDiff, ...]
    """All of them, parents before their children; each first in all, then by GPU model with a limit."""
    gpu_models: tuple[GpuModelDiff, ...]
    """All of them, by name."""
    promises: tuple[PromiseDiff, ...] = Field(default=(), exclude_if=not_)
    """Of jobs that were promised a start, or are, or are in the newer snapshot; by job."""
    live: str | None = None
    """Fingerprint of the newer snapshot, if there was one."""
    drift: tuple[Drifted, ...] = ()
    """What the newer snapshot shows differently, the touched first."""
    stale: tuple[str, ...] = ()
    """Why applying the plan to the newer snapshot would be refused; empty if it would be accepted."""

    @property
    def empty(self) -> bool:
        """True if the plan changes nothing."""
        return not (self.jobs or self.layouts or any(node.change != NodeChange.KEPT for node in self.nodes))
