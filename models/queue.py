"""
Queue tree and quotas of GPUs, CPU cores and memory, with Kueue's arithmetic.

The terms are Kueue's (hierarchical cohorts): `nominal` is a queue's own quota, `borrowing_limit` its maximum
usage beyond the quota of its subtree, `lending_limit` the part of that quota that other queues may borrow.
The nominal quota of a parent is *added* to that of its children.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Final, Literal, NamedTuple, Protocol, TypeAlias

from pydantic import Field

from gpuplan.models.base import Noun
from gpuplan.models.units import Mib, Milli, Name

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

ALL_MODELS: Final = ""
"""Key of the quota over all GPU models; a GPU model is the key of its own quota."""

CPUS: Final = "CPU cores"
"""Key of the quota of CPU cores; no GPU model has a space in its name."""

MEMORY: Final = "MiB of memory"
"""Key of the quota of memory."""

RESOURCES: Final = (ALL_MODELS, CPUS, MEMORY)
"""What quotas count, in the order of `QuotaAmounts`; quotas of GPU models count a part of the first."""

NOT_OF_GPUS: Final = RESOURCES[1:]
"""The resources that jobs without GPUs count for too."""

QuotaResource: TypeAlias = Literal["gpus", "cpus", "memory"]
"""What a quota counts."""

FOREIGN_QUEUE: Final = "foreign"
"""Queue of running jobs that gpuplan did not start and that hosts tell, such as processes on GPUs."""


UNLIMITED: Final = 2**62
"""An amount that no quota limits."""


class HasAmounts(Protocol):
    """A request, or what a replica holds."""

    @property
    def cpu_milli(self) -> int:
        """Thousandths of CPU cores."""

    @property
    def memory_mib(self) -> int:
        """MiB of memory."""


class QuotaAmounts(NamedTuple):
    """What replicas count for against quotas: one amount of each of `RESOURCES`."""

    gpu_milli: int = 0
    """Thousandths of GPUs."""
    cpu_milli: int = 0
    """Thousandths of CPU cores."""
    memory_mib: int = 0
    """MiB of memory."""

    @classmethod
    def of(cls, gpu_milli: int, held: HasAmounts) -> QuotaAmounts:
        """The amounts of a request or a replica that counts for so many thousandths of GPUs."""
        return cls(gpu_milli, held.cpu_milli, held.memory_mib)

    def on(self, gpu_model: str | None, resource: str) -> int:
        """The amount that counts against the quotas of a resource if all GPUs are of a model."""
        if gpu_model != resource and is_gpu_model(resource):
            return 0
        return self[amount_index(resource)]

    def times(self, number: int) -> QuotaAmounts:
        """Amounts of several equal replicas; negative ones are given back."""
        return QuotaAmounts(self.gpu_milli * number, self.cpu_milli * number, self.memory_mib * number)

    def portions(self, asked: QuotaAmounts) -> int:
        """How often these amounts cover what is asked for; `UNLIMITED` if nothing is."""
        return min((left // each for left, each in zip(self, asked, strict=True) if each), default=UNLIMITED)

    def least(self, other: QuotaAmounts) -> QuotaAmounts:
        """The smaller of two amounts, of each resource."""
        return QuotaAmounts(*map(min, self, other))


def amount_index(resource: str) -> int:
    """Position of the amount in `QuotaAmounts` that a quota limits; 0 for that of a GPU model."""
    return _INDEX.get(resource, 0)


_NAMES: Final[tuple[QuotaResource, ...]] = ("gpus", "cpus", "memory")
_INDEX: Final = {resource: index for index, resource in enumerate(RESOURCES)}


def is_gpu_model(resource: str) -> bool:
    """True for the key of a quota of one GPU model."""
    return resource not in RESOURCES


def resource_name(resource: str) -> QuotaResource:
    """What the quotas of a resource count, as documents name it."""
    return _NAMES[amount_index(resource)]


def resource_key(name: QuotaResource, gpu_model: str) -> str:
    """Key of a resource that a document names; the GPU model is empty for all GPUs."""
    return gpu_model if name == "gpus" else RESOURCES[_NAMES.index(name)]


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


class CpuQuota(Noun):
    """Quota of a queue, in CPU cores (internally in thousandths)."""

    nominal: Milli
    """Nominal quota of the queue itself, in CPU cores."""
    borrowing_limit: Milli | None = None
    """
    CPU cores that the queue may use beyond the quota of its subtree; absent means as many as its parent can
    lend.
    """
    lending_limit: Milli | None = None
    """CPU cores of its quota that other queues may borrow; absent means all that it does not use."""


class MemoryQuota(Noun):
    """Quota of a queue, in memory."""

    nominal: Mib
    """Nominal quota of the queue itself: MiB, or a quantity such as `512Gi`."""
    borrowing_limit: Mib | None = None
    """
    Memory that the queue may use beyond the quota of its subtree; absent means as much as its parent can
    lend.
    """
    lending_limit: Mib | None = None
    """Memory of its quota that other queues may borrow; absent means all that it does not use."""


AnyQuota: TypeAlias = Quota | CpuQuota | MemoryQuota


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
    cpus: CpuQuota | None = None
    """Quota of the CPU cores that its jobs request, with GPUs or without; absent means no limit."""
    memory: MemoryQuota | None = None
    """Quota of the memory that its jobs request, with GPUs or without; absent means no limit."""

    @property
    def gpu_quotas(self) -> tuple[Quota, ...]:
        """Its quotas of all GPUs and of GPU models."""
        return tuple(each for each in (self.quota, *self.gpu_models.values()) if each is not None)

    def quota_for(self, resource: str) -> Quota | None:
        """Quota of one GPU model, or of all models with `ALL_MODELS`."""
        return self.quota if resource == ALL_MODELS else self.gpu_models.get(resource)

    def limits_for(self, resource: str) -> AnyQuota | None:
        """Quota of any resource: of GPUs as in `quota_for`, of `CPUS` or of `MEMORY`."""
        if resource == CPUS:
            return self.cpus
        return self.memory if resource == MEMORY else self.quota_for(resource)

    @property
    def limited(self) -> tuple[str, ...]:
        """The resources that it has a quota for, in the order of `quota_resources`."""
        return tuple([each for each in quota_resources((self,)) if self.limits_for(each) is not None])

    def with_quota(self, resource: str, quota: AnyQuota | None) -> Queue:
        """The same queue with another quota of one resource, or none."""
        if is_gpu_model(resource):
            others = {model: each for model, each in self.gpu_models.items() if model != resource}
            quotas = others if quota is None else others | {resource: quota}
            return self.model_copy(update={"gpu_models": dict(sorted(quotas.items()))})
        return self.model_copy(update={_FIELDS[resource]: quota})


_FIELDS: Final = {ALL_MODELS: "quota", CPUS: "cpus", MEMORY: "memory"}


# The queue tree.


def queue_and_above(queue: str, parents: Mapping[str, str | None]) -> Iterator[str]:
    """Yield a queue and all queues above it, up to its root; `parents` has the queue above each."""
    name: str | None = queue
    while name is not None:
        yield name
        name = parents.get(name)


def root_queue(queue: str, parents: Mapping[str, str | None]) -> str:
    """The topmost of the queues above a queue; the queue itself if there is none."""
    *_, root = queue_and_above(queue, parents)
    return root


def queue_and_below(queue: str, children: Mapping[str | None, Sequence[str]]) -> list[str]:
    """A queue and all queues below it, parents first; `children` has the queues below each."""
    found = [queue]
    for name in found:  # the loop itself appends to the list
        found += children.get(name, ())
    return found


# Quotas over the tree.


def gpu_resources(queues: Iterable[Queue]) -> tuple[str, ...]:
    """`ALL_MODELS`, then each GPU model with a quota: these have guarantees and may be reclaimed."""
    return (ALL_MODELS, *sorted({model for queue in queues for model in queue.gpu_models}))


def quota_resources(queues: Iterable[Queue]) -> tuple[str, ...]:
    """All resources with quotas: those of GPUs, always with `ALL_MODELS`, then CPU cores, then memory."""
    queues = tuple(queues)
    others = (each for each in NOT_OF_GPUS if any(queue.limits_for(each) for queue in queues))
    return (*gpu_resources(queues), *others)


@dataclass(frozen=True)
class QueueLimits:
    """
    Limits of one resource over the queue tree: thousandths of GPUs or CPU cores, or MiB of memory.

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


def with_all_below(queues: Iterable[Queue], own: Mapping[str, int]) -> dict[str, int]:
    """Amount of each queue together with those of all queues below it; a missing amount is 0."""
    parent = {queue.name: queue.parent for queue in queues}
    return QueueLimits(parent, dict.fromkeys(parent, 0), {}).usage(own)


def queue_limits(queues: tuple[Queue, ...], resource: str) -> QueueLimits:
    """Limits of one resource over a queue tree without cycles or unknown parents."""
    parent = {queue.name: queue.parent for queue in queues}
    children: dict[str, list[str]] = {name: [] for name in parent}
    for name, above in sorted(parent.items()):
        if above is not None:
            children[above].append(name)
    quota = {queue.name: queue.limits_for(resource) for queue in queues}
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


def _subtree(own: AnyQuota | None, children: list[tuple[int | None, AnyQuota | None]]) -> int | None:
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
