"""
Placement: nodes and GPU indices of the replicas of one job, held now or promised for a later start.

Replicas have no names: two of them are the same if they hold the same (`holding`).
"""

from __future__ import annotations

from collections import Counter, defaultdict
from functools import cached_property
from typing import TYPE_CHECKING, Annotated, Final, TypeAlias

from pydantic import Field, field_validator

from gpuplan.models.base import Noun
from gpuplan.models.cluster import MigInstance
from gpuplan.models.mig import profile_milli
from gpuplan.models.queue import QuotaAmounts
from gpuplan.models.units import MILLI, Count, Mib, Milli, Name, Timestamp

if TYPE_CHECKING:
    from collections.abc import Iterable


class GpuShare(Noun):
    """A whole GPU (1000) or a share of one, in thousandths."""

    index: Annotated[int, Field(ge=0, le=127)]
    """Index of the GPU on its node."""
    milli: Annotated[int, Field(strict=True, ge=1, le=MILLI)]
    """Thousandths of the GPU; 1000 is the whole GPU."""


class MigSlice(Noun):
    """A MIG instance on one GPU; `start` is its first memory slice."""

    index: Annotated[int, Field(ge=0, le=127)]
    """Index of the GPU on its node."""
    profile: Name
    """MIG profile of the instance."""
    start: Annotated[int, Field(ge=0, le=7)]
    """First memory slice of the instance."""

    @cached_property
    def instance(self) -> MigInstance:
        """The instance without its GPU index."""
        return MigInstance(profile=self.profile, start=self.start)


_parts: Final[dict[GpuShare | MigSlice, GpuShare | MigSlice]] = {}
"""Interned parts of GPUs: most of a large snapshot would otherwise consist of equal copies."""


class Replica(Noun):
    """One replica of a job on one node, with everything it holds there."""

    node: Name
    """Node that the replica is on."""
    gpus: tuple[GpuShare | MigSlice, ...] = ()
    """GPUs, shares of GPUs and MIG instances that it holds."""
    cpu_milli: Milli = Field(default=0, alias="cpus")
    """CPU cores that it holds."""
    memory_mib: Mib = 0
    """Memory that it holds, in MiB."""
    disk_mib: Mib = 0
    """Local disk that it holds, in MiB."""
    resources: dict[Name, Count] = Field(default_factory=dict)
    """Further countable resources that it holds, by name."""

    @field_validator("gpus")
    @classmethod
    def _shared(cls, gpus: tuple[GpuShare | MigSlice, ...]) -> tuple[GpuShare | MigSlice, ...]:
        """Replace each part by its interned copy."""
        return tuple([_parts.setdefault(held, held) for held in gpus])

    @cached_property
    def mig_slices(self) -> tuple[MigSlice, ...]:
        """The MIG instances it holds."""
        return tuple(held for held in self.gpus if isinstance(held, MigSlice))

    @cached_property
    def shared_gpus(self) -> tuple[int, ...]:
        """Indices of the GPUs of which it holds all or a share, sorted."""
        return tuple(sorted(held.index for held in self.gpus if isinstance(held, GpuShare)))

    @cached_property
    def amounts(self) -> tuple[tuple[int, tuple[int, ...], tuple[str, ...]], tuple[object, ...]]:
        """Amounts it holds, regardless of position: (whole GPUs, shares, MIG profiles), then the rest."""
        shares = [held.milli for held in self.gpus if isinstance(held, GpuShare)]
        profiles = sorted(held.profile for held in self.mig_slices)
        gpus = shares.count(MILLI), tuple(milli for milli in shares if milli < MILLI), tuple(profiles)
        further = sorted((name, amount) for name, amount in self.resources.items() if amount)
        return gpus, (self.cpu_milli, self.memory_mib, self.disk_mib, *further)

    @cached_property
    def milli_by_gpu(self) -> dict[int, int]:
        """Thousandths it holds of each GPU, by index; a MIG instance counts its compute slices."""
        found: dict[int, int] = {}
        for held in self.gpus:
            milli = held.milli if isinstance(held, GpuShare) else profile_milli(held.profile)
            found[held.index] = found.get(held.index, 0) + milli
        return found

    @cached_property
    def quota_milli(self) -> int:
        """Thousandths of GPUs that count against quotas."""
        return sum(self.milli_by_gpu.values())

    @property
    def quota(self) -> QuotaAmounts:
        """All that counts against quotas."""
        return QuotaAmounts.of(self.quota_milli, self)

    def quota_on(self, gpu_model: str | None, resource: str) -> int:
        """What counts against the quotas of a resource, on a node with GPUs of a model, or none."""
        return self.quota.on(gpu_model, resource)


def quota_of_all(replicas: Iterable[Replica]) -> QuotaAmounts:
    """What replicas count for against quotas together."""
    amounts = [replica.quota for replica in replicas]
    return QuotaAmounts(*map(sum, zip(*amounts, strict=True)))


def node_names(replicas: Iterable[Replica]) -> frozenset[str]:
    """Names of the nodes that some replicas are on."""
    return frozenset([replica.node for replica in replicas])


class Placement(Noun):
    """All replicas of one job in one slot."""

    job: Name
    """Name of the job."""
    slot: Count = 0
    """Time slot in which the placement begins; 0 is now."""
    replicas: tuple[Replica, ...] = Field(min_length=1)
    """Nodes and GPUs of each replica."""

    @cached_property
    def nodes(self) -> frozenset[str]:
        """Names of the nodes it is on."""
        return node_names(self.replicas)

    @cached_property
    def gpu_nodes(self) -> frozenset[str]:
        """Names of the nodes on which it holds GPUs."""
        return frozenset([replica.node for replica in self.replicas if replica.gpus])

    @cached_property
    def is_even(self) -> bool:
        """True if all replicas hold the same: each only whole GPUs, or one share, or MIG instances."""
        first = self.replicas[0].amounts
        whole, shares, slices = first[0]
        pure = (whole > 0) + (len(shares) > 0) + (len(slices) > 0) <= 1 and len(shares) <= 1
        return pure and all(other.amounts == first for other in self.replicas[1:])

    @cached_property
    def on_mig(self) -> tuple[Replica, ...]:
        """The replicas that hold MIG instances."""
        return tuple(replica for replica in self.replicas if replica.mig_slices)

    @cached_property
    def quota_milli(self) -> int:
        """Thousandths of GPUs that count against quotas."""
        return sum(replica.quota_milli for replica in self.replicas)


def mig_instances_in_use(placements: Iterable[Placement]) -> dict[str, dict[int, set[MigInstance]]]:
    """MIG instances that some jobs hold, by node and GPU index; a missing key stands for none."""
    used: dict[str, dict[int, set[MigInstance]]] = defaultdict(lambda: defaultdict(set))
    for placement in placements:
        for replica in placement.on_mig:
            for held in replica.mig_slices:
                used[replica.node][held.index].add(held.instance)
    return used


# Promise: the promised start of a pending job, and the places reserved for it.


class Promise(Noun):
    """A promise of an earlier plan to a pending job."""

    start: Timestamp
    """Promised start: the job starts at this time at the latest, or by the policy's `max_delay` later."""
    replicas: tuple[Replica, ...] = Field(min_length=1)
    """Places reserved for the job; the indices of whole GPUs are fixed only when it starts."""


class Running(Noun):
    """Nodes and start time of a running job, and what preemption would lose."""

    started_at: Timestamp
    """Time at which the job started."""
    last_checkpoint_at: Timestamp | None = None
    """Time at which it last saved its state; absent if never since it started."""
    resumed_at: Timestamp | None = None
    """
    Time at which it has resumed work from a checkpoint after a preemption or resize; absent means
    `started_at`.
    """
    kill_at: Timestamp | None = None
    """Time at which it is killed, since its place is promised to another job from then on."""
    resized_at: Timestamp | None = None
    """Time at which it last shrank or grew; absent if never or unknown."""
    replicas: tuple[Replica, ...] = Field(min_length=1)
    """Node of each replica, and what it holds there."""


Holding: TypeAlias = tuple[object, ...]
"""All that a replica holds, as a value that compares and hashes."""


def unmatched(some: tuple[Replica, ...], others: tuple[Replica, ...]) -> list[int]:
    """Numbers of the replicas that match none of the others; each of the others matches at most once."""
    unused = Counter(map(holding, others))
    found = []
    for number, replica in enumerate(some):
        if unused[holding(replica)]:
            unused[holding(replica)] -= 1
        else:
            found.append(number)
    return found


def same_holdings(one: tuple[Replica, ...], other: tuple[Replica, ...]) -> bool:
    """True if two sets of replicas hold the same, regardless of the order of replicas and GPUs."""
    return one == other or Counter(map(holding, one)) == Counter(map(holding, other))


def holding(replica: Replica) -> Holding:
    """The canonical value of what a replica holds."""
    return (
        replica.node,
        tuple(
            sorted(
                (held.index, held.milli, "", 0)
                if isinstance(held, GpuShare)
                else (held.index, 0, held.profile, held.start)
                for held in replica.gpus
            )
        ),
        replica.cpu_milli,
        replica.memory_mib,
        replica.disk_mib,
        tuple(sorted((name, amount) for name, amount in replica.resources.items() if amount)),
    )
