"""Every node before and after a plan: its change, arriving and leaving jobs, and the use of its GPUs."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING, Final, NamedTuple, TypeAlias

from gpuplan.models.cluster import Gpu, MigInstance, Node
from gpuplan.models.eligibility.free_resources import memory_slices
from gpuplan.models.mig import mig_geometry
from gpuplan.models.placement import GpuShare, MigSlice, Replica
from gpuplan.models.plan.actions import ACTIONS, ActionKind
from gpuplan.models.plan.plan import NodeChange, Plan
from gpuplan.models.units import MILLI
from gpuplan.planner.analysis.job_changes import PlanChanges
from gpuplan.planner.text_format import format_cpus, format_gpus, format_milli

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence


# One GPU before and after a plan: which job holds which part of it, down to MIG instances.


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
        arrives = any(drawn.fate is GpuPartChange.ARRIVES for drawn, _ in there[index])
        chosen = new is not None and new.gpus is not None and not new.gpus.pinned
        yield Device(
            f"GPU {index}, expected" if arrives and chosen else f"GPU {index}",
            _gpu(old, index, here[index], present),
            _gpu(new, index, there[index], present),
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


# The nodes of these GPUs.


@dataclass(frozen=True, slots=True)
class NodePicture:
    """A node before and after the plan."""

    node: Node
    """The node after the plan, or before it if the plan removes the node."""
    change: NodeChange
    devices: tuple[Device, ...]
    offered: int
    """Thousandths of its GPUs, the larger of before and after; thousandths of CPUs if it has no GPU."""
    used_before: int
    used_after: int
    arriving: tuple[str, ...]
    """Jobs with the signs of their actions; a job that moves within the node is only in this list."""
    leaving: tuple[str, ...]
    staying: tuple[str, ...]
    """Jobs that keep all their parts on this node."""
    new_layout: bool
    """True if MIG instances are created or destroyed."""

    @property
    def name(self) -> str:
        """Name of the node."""
        return self.node.name

    @property
    def changes(self) -> bool:
        """True if the plan changes anything on the node."""
        kept = self.change is NodeChange.KEPT
        return bool(self.arriving or self.leaving or self.new_layout or not kept)

    @property
    def state(self) -> str:
        """The change of the node, or why it takes no jobs: `added`, `down`, `cordoned`; empty if neither."""
        node = self.node
        if self.change is not NodeChange.KEPT:
            return self.change.value
        if not node.ready:
            return "down"
        return "to be drained" if node.drain else "cordoned" if node.cordoned else ""

    @property
    def used(self) -> str:
        """`3.5 → 8 of 8 GPUs`."""
        amounts = list(dict.fromkeys(map(format_milli, (self.used_before, self.used_after))))
        unit = format_gpus if self.node.gpus else format_cpus
        return f"{' → '.join(amounts)} of {unit(self.offered)}"

    @property
    def words(self) -> str:
        """Everything on one line, for tooltips and screen readers."""
        name = f"{self.name} ({self.state})" if self.state else self.name
        kept = [f"= {len(self.staying):,} unchanged"] if self.staying else []
        return "; ".join([f"{name}: {self.used}", *self.arriving, *self.leaving, *kept])


_SIGNS: Final = {kind: info.sign for kind, info in ACTIONS.items()}


def node_pictures(plan: Plan) -> list[NodePicture]:
    """Every node that exists before or after the plan, by name."""
    changes = PlanChanges(plan.snapshot, plan.target)
    old = plan.snapshot.cluster.node_by_name
    new = changes.cluster.node_by_name
    tenants: dict[str, list[DrawnReplica]] = defaultdict(list)
    for tenant in _tenants(plan, changes):
        tenants[tenant.replica.node].append(tenant)
    return [
        _picture(old.get(name), new.get(name), tenants.get(name, ()))
        for name in sorted(old.keys() | new.keys())
    ]


def _tenants(plan: Plan, changes: PlanChanges) -> Iterator[DrawnReplica]:
    """Every replica before or after the plan: unchanged ones first, by job name."""
    changed = {change.job.name: change for change in changes.jobs}
    for placement in sorted(plan.placements, key=lambda placement: placement.job):
        change = changed.get(placement.job)
        stays = (
            placement
            if change is None
            else {ActionKind.GROW: change.before, ActionKind.SHRINK: change.after}.get(change.kind)
        )
        for replica in stays.replicas if stays else ():
            yield DrawnReplica(placement.job, replica, GpuPartChange.KEPT)
    for change in changes.jobs:
        name = f"{_SIGNS[change.kind]} {change.job.name}"
        for replica in change.leaving:
            yield DrawnReplica(name, replica, GpuPartChange.LEAVES)
        for replica in change.arriving:
            yield DrawnReplica(name, replica, GpuPartChange.ARRIVES)


def _picture(old: Node | None, new: Node | None, tenants: Sequence[DrawnReplica]) -> NodePicture:
    node = new or old
    if node is None:
        raise ValueError("expected a node before or after, found none")
    before = [tenant for tenant in tenants if tenant.fate is not GpuPartChange.ARRIVES]
    after = [tenant for tenant in tenants if tenant.fate is not GpuPartChange.LEAVES]
    names = {fate: dict.fromkeys(each.job for each in tenants if each.fate is fate) for fate in GpuPartChange}
    changed = {
        name.partition(" ")[2] for name in (*names[GpuPartChange.ARRIVES], *names[GpuPartChange.LEAVES])
    }
    return NodePicture(
        node=node,
        change=NodeChange.ADDED if old is None else NodeChange.REMOVED if new is None else NodeChange.KEPT,
        devices=tuple(devices_of(old, new, before, after)),
        offered=max(_offered(old), _offered(new)),
        used_before=_used(old, before),
        used_after=_used(new, after),
        arriving=tuple(names[GpuPartChange.ARRIVES]),
        leaving=tuple(
            name for name in names[GpuPartChange.LEAVES] if name not in names[GpuPartChange.ARRIVES]
        ),
        staying=tuple(name for name in names[GpuPartChange.KEPT] if name not in changed),
        new_layout=old is not None and new is not None and layouts_of(old) != layouts_of(new),
    )


def _offered(node: Node | None) -> int:
    if node is None or not node.ready:
        return 0
    if node.gpus is None:
        return node.cpu_milli
    return MILLI * (node.gpus.count - sum(not gpu.healthy for gpu in node.gpus.details))


def _used(node: Node | None, tenants: Iterable[DrawnReplica]) -> int:
    if node is None:
        return 0
    if node.gpus is None:
        return sum(tenant.replica.cpu_milli for tenant in tenants)
    return sum(tenant.replica.quota_milli for tenant in tenants)
