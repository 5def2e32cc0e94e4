"""
Queue tree and quota, with Kueue's arithmetic.

The terms are Kueue's (hierarchical cohorts): `nominal` is a queue's own quota, `borrowing_limit` its maximum
usage beyond the quota of its subtree, `lending_limit` the part of that quota that other queues may borrow.
The nominal quota of a parent is *added* to that of its children.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Final

from pydantic import Field

from gpuplan.models.base import Noun
from gpuplan.models.units import Milli, Name

if TYPE_CHECKING:
    from collections.abc import Mapping

ALL_MODELS: Final = ""
"""Key of the quota over all GPU models; other keys name one model."""

FOREIGN_QUEUE: Final = "foreign"
"""Queue of running jobs that gpuplan did not start and that hosts tell, such as processes on GPUs."""


class Quota(Noun):
    """Quota of a queue, in GPUs (internally in thousandths)."""

    nominal: Milli
    """Nominal quota of the queue itself, in GPUs."""
    borrowing_limit: Milli | None = None
    """
    GPUs that the queue may use beyond the quota of its subtree; absent means as many as its parent can lend.
    """
    lending_limit: Milli | None = None
    """GPUs of its quota that other queues may borrow; absent means all that it does not use."""
    guarantee: Milli | None = None
    """
    GPUs that the queue and those below it are entitled to while they have demand; a shortage is the most
    expensive penalty.
    """


class Queue(Noun):
    """A queue of jobs; a node of the queue tree."""

    name: Name
    """Name of the queue."""
    parent: Name | None = None
    """Queue above this one; absent for a root."""
    quota: Quota | None = None
    """Quota over all GPU models; absent means no limit at this queue."""
    gpu_models: dict[Name, Quota] = Field(default_factory=dict)
    """Quotas of single GPU models, in addition to the total."""

    def quota_for(self, resource: str) -> Quota | None:
        """Quota of one GPU model, or of all models with `ALL_MODELS`."""
        return self.quota if resource == ALL_MODELS else self.gpu_models.get(resource)


@dataclass(frozen=True)
class QueueLimits:
    """
    Limits of one resource (a GPU model, or all) over the queue tree, in thousandths of GPUs.

    For a queue q with children c, as in Kueue's hierarchical cohorts:

        subtree(q) = nominal(q) + Σ_c min(subtree(c), lending_limit(c))
        kept(q)    = max(0, subtree(q) − lending_limit(q)), 0 without a lending limit
        usage(q)   = own usage + Σ_c max(0, usage(c) − kept(c))
        usage(q)  ≤ subtree(q) + borrowing_limit(q)      (a root cannot borrow)

    None means "no limit": a leaf without a quota is unlimited, and so is every queue above it without a
    quota. A queue with children and no quota adds nothing of its own.
    """

    parent: Mapping[str, str | None]
    kept: Mapping[str, int]
    limit: Mapping[str, int | None]

    @cached_property
    def leaves_first(self) -> tuple[str, ...]:
        """Queues in an order with children before parents."""
        depth: dict[str, int] = {}
        for name in self.parent:
            # Each queue is visited once, however deep the tree is.
            trail: list[str] = []
            above: str | None = name
            while above is not None and above not in depth:
                trail.append(above)
                above = self.parent[above]
            for passed in reversed(trail):
                depth[passed] = 1 if above is None else depth[above] + 1
                above = passed
        return tuple(sorted(self.parent, key=lambda name: (-depth[name], name)))

    def usage(self, own: Mapping[str, int]) -> dict[str, int]:
        """Usage of every queue, given the usage of jobs directly in each queue."""
        total = {name: own.get(name, 0) for name in self.parent}
        for name in self.leaves_first:
            if (parent := self.parent[name]) is not None:
                total[parent] += max(0, total[name] - self.kept[name])
        return total


def queue_limits(queues: tuple[Queue, ...], resource: str) -> QueueLimits:
    """Limits of one resource over a queue tree without cycles or unknown parents."""
    parent = {queue.name: queue.parent for queue in queues}
    children: dict[str, list[str]] = {name: [] for name in parent}
    for name, above in sorted(parent.items()):
        if above is not None:
            children[above].append(name)
    quota = {queue.name: queue.quota_for(resource) for queue in queues}
    kept: dict[str, int] = {}
    limit: dict[str, int | None] = {}
    subtree: dict[str, int | None] = {}
    for name in QueueLimits(parent, {}, {}).leaves_first:
        subtree[name] = total = _subtree(
            quota[name], [(subtree[child], quota[child]) for child in children[name]]
        )
        own = quota[name]
        lending = own.lending_limit if own else None
        kept[name] = 0 if total is None or lending is None else max(0, total - lending)
        borrowing = 0 if parent[name] is None else own.borrowing_limit if own else None
        limit[name] = None if total is None or borrowing is None else total + borrowing
    return QueueLimits(parent, kept, limit)


def _subtree(own: Quota | None, children: list[tuple[int | None, Quota | None]]) -> int | None:
    """Quota of a subtree; None if it is unlimited."""
    if own is None and not children:
        return None
    total = own.nominal if own else 0
    for subtree, quota in children:
        lending = quota.lending_limit if quota else None
        lent = min((part for part in (subtree, lending) if part is not None), default=None)
        if lent is None:
            if own is None:
                return None
            continue  # an unlimited child has no quota to lend; its usage still counts here
        total += lent
    return total
