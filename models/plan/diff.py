"""
Diff: the changes of a plan, before against after, as data.

It contains only differences; the state before and the diff give the state after. With a newer snapshot it
also contains the drift since the plan was made. GPUs are in thousandths (`milli`).
"""

from __future__ import annotations

from enum import StrEnum
from operator import not_

from pydantic import Field

from gpuplan.models.base import Noun
from gpuplan.models.cluster import MigInstance
from gpuplan.models.placement import Placement
from gpuplan.models.plan.plan import NodeChange
from gpuplan.models.queue import QuotaResource
from gpuplan.models.units import Count, Name, Timestamp


class JobDiff(Noun):
    """A job that gets another placement by the plan; None means that it waits."""

    job: Name
    queue: Name
    change: str
    """Type of its action, such as `start` or `preempt`."""
    before: Placement | None
    after: Placement | None


class NodeDiff(Noun):
    """A node that the plan adds or removes, or on which it changes free resources."""

    node: Name
    change: NodeChange = NodeChange.KEPT
    gpus: Count
    """All of its GPUs, usable or not."""
    free_before_milli: int
    """0 for a node that is added."""
    free_after_milli: int
    """0 for a node that is removed."""
    arriving: tuple[Name, ...]
    """Jobs with new replicas here, sorted; a job that moves within the node is in both lists."""
    leaving: tuple[Name, ...] = ()
    """Jobs that give up replicas here, sorted."""


class LayoutDiff(Noun):
    """A GPU with a MIG layout that the plan changes."""

    node: Name
    gpu: int
    before: tuple[MigInstance, ...] | None
    """None: MIG mode is off."""
    after: tuple[MigInstance, ...]


class QueueDiff(Noun):
    """
    A queue, or one resource in it, with the usage that counts against its limit (see `models.queue`).

    Amounts are thousandths of GPUs, of CPU cores, or of MiB.
    """

    queue: Name
    parent: Name | None
    resource: QuotaResource = "gpus"
    """What the amounts count."""
    gpu_model: str
    """Empty for all models together."""
    used_before_milli: int
    used_after_milli: int
    limit_milli: int | None
    """None means no limit."""
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
    """Effect of a plan on the promise of a job."""

    KEPT = "kept"
    MADE = "made"
    """The job had no promise."""
    EARLIER = "earlier"
    LATER = "later"
    WITHDRAWN = "withdrawn"
    STARTED = "started"
    """The job starts now."""


class PromiseDiff(Noun):
    """The promised start of a job, before and after the plan."""

    job: Name
    queue: Name
    change: PromiseChange
    before: Timestamp | None = None
    """None: it had no promise."""
    after: Timestamp | None = None
    """None: it has no promise, because it starts now or waits without one."""
    live: Timestamp | None = None
    """Its promise in the newer snapshot, if there is one."""
    why: str = ""
    """Reason why a promise is postponed or withdrawn."""


class Drifted(Noun):
    """One difference between the snapshot of the plan and a newer one."""

    subject: str
    """Such as `job train-a` or `node h100-03`."""
    change: str
    """Such as `is gone` or `changed in priority`."""
    touched: bool
    """True for a job or node that the plan changes, or a job that ran or runs on such a node."""


class Diff(Noun):
    """Differences per job, node, MIG layout, queue and GPU model."""

    plan_id: str
    epoch: Timestamp | None = None
    """Epoch of the plan; None in diffs of older versions."""
    jobs: tuple[JobDiff, ...]
    """Sorted by name."""
    unchanged: Count
    """Number of running jobs that are unchanged."""
    waiting: Count
    """Number of jobs that wait before and after."""
    nodes: tuple[NodeDiff, ...]
    """Sorted by name."""
    layouts: tuple[LayoutDiff, ...] = ()
    """Sorted by node and GPU."""
    queues: tuple[QueueDiff, ...]
    """All queues, parents before children; for each first the total, then the GPU models with a limit."""
    gpu_models: tuple[GpuModelDiff, ...]
    """All GPU models, by name."""
    promises: tuple[PromiseDiff, ...] = Field(default=(), exclude_if=not_)
    """Jobs with a promise before, after, or in the newer snapshot; sorted by job."""
    live: str | None = None
    """Fingerprint of the newer snapshot, if there is one."""
    drift: tuple[Drifted, ...] = ()
    """Differences of the newer snapshot; those that touch the plan first."""
    stale: tuple[str, ...] = ()
    """Reasons why apply would refuse the plan on the newer snapshot; empty if it would accept it."""
    carried_out: bool = Field(default=False, exclude_if=not_)
    """True if the newer snapshot shows all changes of the plan as done."""

    @property
    def empty(self) -> bool:
        """True if the plan changes nothing."""
        return not (self.jobs or self.layouts or any(node.change != NodeChange.KEPT for node in self.nodes))
