"""The resources of the nodes that a plan changes, while its steps are ordered one by one."""

from __future__ import annotations

from collections import Counter, defaultdict
from typing import TYPE_CHECKING, Final, TypeAlias

from gpuplan.models.cluster import Gpu, MigInstance, Node
from gpuplan.models.eligibility.free_resources import charged_cpu_memory, layout_after, memory_slices
from gpuplan.models.mig import mig_geometry
from gpuplan.models.placement import GpuShare, MigSlice, Replica
from gpuplan.models.plan.action_kinds import ActionKind
from gpuplan.models.units import MILLI
from gpuplan.planner.analysis.allocations import allocations_of
from gpuplan.planner.analysis.target_cluster import LayoutChange

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from gpuplan.models.job import Job
    from gpuplan.planner.analysis.job_changes import JobChange, PlanChanges

_Part: TypeAlias = tuple[str, str, int, int]
"""One resource of a node: (node, kind, GPU index, memory slice)."""

_Gpu: TypeAlias = tuple[str, int]
"""(node, GPU index)."""

# The space avoids a clash: no countable resource has a space in its name.
_GPU: Final = "gpu milli"

_SLICE: Final = "memory slice"

_CPU: Final = "cpu milli"

_MEMORY: Final = "memory mib"

_DISK: Final = "disk mib"

_LAST: Final = (ActionKind.START, ActionKind.GROW)

_AMOUNT: Final[dict[str, Callable[[Node], int]]] = {
    _GPU: lambda _: MILLI,
    _SLICE: lambda _: 1,
    _CPU: lambda node: node.cpu_milli,
    _MEMORY: lambda node: node.memory_mib,
    _DISK: lambda node: node.disk_mib,
}
"""Capacity of a node by kind; the capacity of countable resources is in `Node.resources`."""


class StepResources:
    """State of the nodes that a plan changes, with their GPUs and MIG instances, after the steps so far."""

    def __init__(self, changes: PlanChanges) -> None:
        self._cluster = changes.snapshot.cluster
        self._nodes = changes.nodes
        self._there = set(self._cluster.node_by_name)
        self._layouts: dict[_Gpu, tuple[MigInstance, ...] | None] = {}
        self._replicas: Counter[str] = Counter()
        used: Counter[_Part] = Counter()
        there = allocations_of(changes.snapshot).there
        for name in _concerned(changes):
            self._replicas[name] = len(there.get(name, ()))
            for job, replica in there.get(name, ()):
                self._count(used, job, (replica,))
        # On an overcommitted node nothing is free, but resources that its jobs release become free.
        self._free = {part: max(0, self._offered(part) - amount) for part, amount in used.items()}
        self._spare = dict(self._free)
        """Free amounts without the amounts that earlier steps released."""
        self._releasers: dict[_Part, list[str]] = defaultdict(list)
        self._leavers: dict[str, list[str]] = defaultdict(list)
        self._repartitions: dict[_Gpu, list[str]] = defaultdict(list)
        self._laid_out: set[str] = set()
        """Nodes with repartitioned GPUs."""
        self._creator: dict[tuple[_Gpu, MigInstance], str] = {}
        self._node_steps: dict[str, list[str]] = defaultdict(list)
        self._nets: dict[str, tuple[dict[_Part, int], dict[_Part, int]]] = {}

    def has_room_for(self, move: JobChange) -> bool:
        """True if the job could migrate now; its old places count as free."""
        return self._fits(move) and self._there.issuperset(move.nodes_taken) and not self._missing(move)

    def is_empty(self, node: str) -> bool:
        """True if no job runs on the node."""
        return not self._replicas[node]

    def change_job(self, change: JobChange, id_: str) -> list[str]:
        """
        Apply the change of a job; returns the ids of the steps that it depends on.

        Jobs start and grow after all other steps: where nothing else happens they depend on nothing.
        """
        if change.kind in _LAST and self._quiet(change.nodes_taken):
            return []
        needs, releases = self._net(change)
        after = [
            step for node in (*change.nodes_taken, *change.nodes_left) for step in self._node_steps[node]
        ]
        for part, need in needs.items():
            spare = self._spare.get(part)
            if spare is None:
                spare = self._offered(part)
            if need > spare:
                after += self._releasers[part]
            self._spare[part] = spare - need
            self._free[part] = self._left(part) - need
        for gpu, instance in _instances(change.arriving):
            if (creator := self._creator.get((gpu, instance))) is not None:
                after.append(creator)
        for part, amount in releases.items():
            self._free[part] = self._left(part) + amount
            self._releasers[part].append(id_)
        for node in change.nodes_left:
            self._leavers[node].append(id_)
        self._replicas.subtract(replica.node for replica in change.leaving)
        self._replicas.update(replica.node for replica in change.arriving)
        return after

    def _quiet(self, nodes: Iterable[str]) -> bool:
        """True if no step so far left the nodes, changed them or laid out their GPUs."""
        return not any(
            node in self._leavers or node in self._node_steps or node in self._laid_out for node in nodes
        )

    def touch(self, node: str, id_: str) -> list[str]:
        """Cordon, drain, add or remove a node; returns the ids of the steps that this depends on."""
        after = [*self._node_steps[node], *self._leavers[node]]
        self._node_steps[node].append(id_)
        self._there.add(node)
        return after

    def can_repartition(self, change: LayoutChange) -> bool:
        """True if every MIG instance that the new layout removes is idle."""
        if change.node not in self._there:
            return False
        gpu = (change.node, change.gpu)
        layout = self._layout(gpu)
        if layout is None:
            return self._left(_part(gpu, _GPU)) == MILLI
        return not any(self._in_use(gpu, instance) for instance in set(layout) - set(change.after))

    def repartition(self, change: LayoutChange, id_: str) -> tuple[LayoutChange, list[str]] | None:
        """
        Set the MIG layout of a GPU; returns the actual change and the ids of the steps that it depends on.

        None if the GPU already has this layout.
        """
        gpu = (change.node, change.gpu)
        before = self._layout(gpu)
        if before is not None and set(before) == set(change.after):
            return None
        parts = {
            part for instance in set(change.after) ^ set(before or ()) for part in self._slices(gpu, instance)
        }
        if before is None:
            parts.add(_part(gpu, _GPU))
            self._free[_part(gpu, _GPU)] = 0
        after = [*self._node_steps[change.node], *self._repartitions[gpu]]
        for part in sorted(parts):
            after += self._releasers[part]
        for instance in set(change.after) - set(before or ()):
            self._creator[gpu, instance] = id_
        self._repartitions[gpu].append(id_)
        self._laid_out.add(change.node)
        self._layouts[gpu] = change.after
        return LayoutChange(change.node, change.gpu, before, change.after), after

    def partial_layouts(self, move: JobChange) -> list[LayoutChange]:
        """Layouts with a migration's missing instances that destroy only idle ones; empty if impossible."""
        if not self._there.issuperset(move.nodes_taken) or not self._fits(move):
            return []
        found = []
        for gpu, missing in sorted(self._missing(move).items()):
            geometry = mig_geometry(self._nodes[gpu[0]].gpu_model or "")
            layout = self._layout(gpu)
            kept = {instance for instance in layout or () if self._in_use(gpu, instance)}
            after = layout_after(Gpu(index=gpu[1], mig=layout), geometry, kept | missing)
            if geometry is None or layout is None or after is None or any(geometry.faults(after)):
                return []
            found.append(LayoutChange(*gpu, layout, after))
        return found

    def _fits(self, move: JobChange) -> bool:
        return all(need <= self._left(part) for part, need in self._net(move)[0].items())

    def _missing(self, move: JobChange) -> dict[_Gpu, set[MigInstance]]:
        """Instances that a migration takes and that do not exist yet, by GPU."""
        missing: dict[_Gpu, set[MigInstance]] = defaultdict(set)
        for gpu, instance in _instances(move.arriving):
            if instance not in (self._layout(gpu) or ()):
                missing[gpu].add(instance)
        return missing

    def _net(self, change: JobChange) -> tuple[dict[_Part, int], dict[_Part, int]]:
        """Net amounts that a job takes, and net amounts that it releases."""
        name = change.job.name
        if name not in self._nets:
            taken = self._parts(change.job, change.arriving)
            left = self._parts(change.job, change.leaving) if change.leaving else Counter[_Part]()
            released = dict(sorted((left - taken).items())) if left else {}
            self._nets[name] = dict(sorted((taken - left).items())), released
        return self._nets[name]

    def _parts(self, job: Job, replicas: Iterable[Replica]) -> Counter[_Part]:
        """Amounts that replicas hold."""
        parts: Counter[_Part] = Counter()
        self._count(parts, job, replicas)
        return parts

    def _count(self, parts: Counter[_Part], job: Job, replicas: Iterable[Replica]) -> None:
        """Add the amounts that replicas hold."""
        for replica in replicas:
            node = replica.node
            cpu_milli, memory_mib = charged_cpu_memory(replica, job.qos, self._cluster)
            parts[node, _CPU, 0, 0] += cpu_milli
            parts[node, _MEMORY, 0, 0] += memory_mib
            parts[node, _DISK, 0, 0] += replica.disk_mib
            for name, amount in replica.resources.items():
                parts[node, name, 0, 0] += amount
            for held in replica.gpus:
                if isinstance(held, GpuShare):
                    parts[_part((node, held.index), _GPU)] += held.milli
        for gpu, instance in _instances(replicas):
            parts.update(self._slices(gpu, instance))

    def _slices(self, gpu: _Gpu, instance: MigInstance) -> list[_Part]:
        node = self._nodes.get(gpu[0])
        geometry = mig_geometry(node.gpu_model or "") if node else None
        return [(*gpu[:1], _SLICE, gpu[1], slice_) for slice_ in memory_slices(instance, geometry)]

    def _layout(self, gpu: _Gpu) -> tuple[MigInstance, ...] | None:
        if gpu in self._layouts:
            return self._layouts[gpu]
        gpus = self._nodes[gpu[0]].gpus
        return gpus.by_index[gpu[1]].mig if gpus else None

    def _in_use(self, gpu: _Gpu, instance: MigInstance) -> bool:
        return any(self._left(part) < 1 for part in self._slices(gpu, instance))

    def _left(self, part: _Part) -> int:
        left = self._free.get(part)
        return self._offered(part) if left is None else left

    def _offered(self, part: _Part) -> int:
        name, kind, _, _ = part
        node = self._nodes.get(name)
        if node is None:
            return 0
        amount = _AMOUNT.get(kind)
        return amount(node) if amount else node.resources.get(kind, 0)


def _concerned(changes: PlanChanges) -> set[str]:
    """Names of the nodes that jobs leave or migrate to, and of the nodes that change themselves."""
    jobs = {
        name
        for change in changes.jobs
        if change.leaving
        for name in (*change.nodes_left, *change.nodes_taken)
    }
    return jobs.union((layout.node for layout in changes.layouts), changes.removed, changes.emptied)


def _part(gpu: _Gpu, kind: str) -> _Part:
    return gpu[0], kind, gpu[1], 0


def _instances(replicas: Iterable[Replica]) -> list[tuple[_Gpu, MigInstance]]:
    return [
        ((replica.node, held.index), held.instance)
        for replica in replicas
        for held in replica.gpus
        if isinstance(held, MigSlice)
    ]
