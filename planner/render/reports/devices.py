"""One GPU before and after a plan: which job holds which part of it, down to MIG instances."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING, NamedTuple, TypeAlias

from gpuplan.models.cluster import MigInstance
from gpuplan.models.eligibility.free_resources import memory_slices
from gpuplan.models.mig import mig_geometry
from gpuplan.models.placement import GpuShare, MigSlice
from gpuplan.models.units import MILLI

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from gpuplan.models.cluster import Gpu, Node
    from gpuplan.models.placement import Replica


class GpuPartChange(StrEnum):
    """What the plan changes about a part of a GPU."""

    KEPT = "kept"
    ARRIVES = "arrives"
    LEAVES = "leaves"
    IDLE = "idle"
    """An unused MIG instance."""
    CREATED = "created"
    """An unused MIG instance that the plan creates."""


@dataclass(frozen=True, slots=True)
class GpuSegment:
    """A part of one GPU: start and size in thousandths of the GPU, counted from the bottom."""

    start: int
    size: int
    fate: GpuPartChange
    job: str
    """Job name with the sign of its action; empty for an idle MIG instance."""
    profile: str = ""
    """MIG profile of the instance."""


@dataclass(frozen=True, slots=True)
class Side:
    """A GPU before or after; on a node without GPUs, all its CPUs."""

    usable: bool
    parts: tuple[GpuSegment, ...]
    mig: bool = False


@dataclass(frozen=True, slots=True)
class Device:
    """The same GPU, or the same CPUs, before and after; None if the node does not exist then."""

    name: str
    before: Side | None
    after: Side | None


class DrawnReplica(NamedTuple):
    """A replica on a node, and what the plan changes about it."""

    job: str
    """Job name with the sign of its action."""
    replica: Replica
    fate: GpuPartChange


_Layout: TypeAlias = frozenset[MigInstance]
"""MIG instances of one GPU."""


def devices_of(
    old: Node | None, new: Node | None, before: Sequence[DrawnReplica], after: Sequence[DrawnReplica]
) -> Iterator[Device]:
    """The GPUs of a node by index, or its CPUs, with the replicas before and after."""
    count = max(node.gpu_count for node in (old, new) if node)
    if not count:
        yield Device("CPUs", _cpus(old, before), _cpus(new, after))
    here, there = _by_gpu(before), _by_gpu(after)
    layouts = layouts_of(old)
    for index in range(count):
        present = layouts.get(index, frozenset())
        yield Device(
            f"GPU {index}", _gpu(old, index, here[index], present), _gpu(new, index, there[index], present)
        )


def _cpus(node: Node | None, tenants: Iterable[DrawnReplica]) -> Side | None:
    if node is None:
        return None
    amounts = [(tenant, tenant.replica.cpu_milli) for tenant in tenants if tenant.replica.cpu_milli]
    return Side(node.ready, tuple(_stacked(amounts, node.cpu_milli)))


def _gpu(
    node: Node | None, index: int, held: Sequence[tuple[DrawnReplica, GpuShare | MigSlice]], layout: _Layout
) -> Side | None:
    """One GPU; `layout` holds its MIG instances before the plan."""
    if node is None or node.gpus is None or index >= node.gpus.count:
        return None
    gpu = node.gpus.by_index[index]
    shares = [(tenant, part.milli) for tenant, part in held if isinstance(part, GpuShare)]
    parts = list(_stacked(shares, MILLI))
    if gpu.mig is not None:
        parts += _instances(node.gpus.model, gpu, held, layout)
    return Side(node.ready and gpu.healthy, tuple(parts), mig=gpu.mig is not None)


def _instances(
    model: str, gpu: Gpu, held: Sequence[tuple[DrawnReplica, GpuShare | MigSlice]], layout: _Layout
) -> Iterator[GpuSegment]:
    """MIG instances by their memory slices, used or idle."""
    geometry = mig_geometry(model)
    users = {(part.profile, part.start): tenant for tenant, part in held if isinstance(part, MigSlice)}
    for instance in gpu.mig or ():
        tenant = users.get((instance.profile, instance.start))
        fate = GpuPartChange.IDLE if instance in layout else GpuPartChange.CREATED
        slices = memory_slices(instance, geometry)
        whole = geometry.memory_slices if geometry else 8
        yield GpuSegment(
            start=MILLI * slices.start // whole,
            size=MILLI * len(slices) // whole,
            fate=tenant.fate if tenant else fate,
            job=tenant.job if tenant else "",
            profile=instance.profile,
        )


def _stacked(amounts: Iterable[tuple[DrawnReplica, int]], whole: int) -> Iterator[GpuSegment]:
    """Stack the amounts in the order given; cut off what exceeds `whole`."""
    foot = 0
    for tenant, amount in amounts:
        top = min(foot + amount, whole)
        if top > foot:
            start = MILLI * foot // whole
            yield GpuSegment(start, MILLI * top // whole - start, tenant.fate, tenant.job)
        foot = top


def _by_gpu(tenants: Iterable[DrawnReplica]) -> dict[int, list[tuple[DrawnReplica, GpuShare | MigSlice]]]:
    found: dict[int, list[tuple[DrawnReplica, GpuShare | MigSlice]]] = defaultdict(list)
    for tenant in tenants:
        for held in tenant.replica.gpus:
            found[held.index].append((tenant, held))
    return found


def layouts_of(node: Node | None) -> dict[int, _Layout]:
    """MIG instances per GPU in MIG mode."""
    details = node.gpus.details if node and node.gpus else ()
    return {gpu.index: frozenset(gpu.mig) for gpu in details if gpu.mig is not None}
