"""
What was measured of each GPU, merged into a snapshot: which node and GPU a reading is of.

Nothing but UUIDs and measurements is added: what follows from these is for the policy to say.
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from gpuplan.models.cluster import NodeGpus
from gpuplan.models.errors import BadInputError, Suggestions
from gpuplan.models.health.measurement import Measurement
from gpuplan.planner.sources.nvml.merge import Merged, Told, same_model
from gpuplan.planner.text_format import format_count, join_first_names

if TYPE_CHECKING:
    from datetime import datetime

    from gpuplan.models.cluster import Node
    from gpuplan.models.health.measurement import RowRemap
    from gpuplan.models.snapshot import Snapshot


@dataclass(slots=True)
class GpuTelemetry:
    """What was measured of one GPU; None and empty are unknown."""

    host: str
    """Host of the GPU as DCGM exporter names it."""
    index: int
    """Index of the GPU on its host."""
    uuid: str
    model: str = ""
    """Model as GPU feature discovery writes it: without spaces."""
    memory_mib: int = 0
    """Memory of the GPU as far as programs may use it, in MiB."""
    period: int = 0
    """Seconds of the window in which there are samples of it."""
    temperature: int | None = None
    utilization: int | None = None
    used_mib: int | None = None
    hot: dict[int, int] = field(default_factory=dict)
    idle: dict[int, int] = field(default_factory=dict)
    xids: dict[int, int] = field(default_factory=dict)
    uncorrectable: int = 0
    row_remap: RowRemap | None = None


@dataclass(frozen=True, slots=True)
class Telemetry:
    """What a Prometheus knows of GPUs at an instant."""

    url: str
    at: datetime
    gpus: tuple[GpuTelemetry, ...]
    """By host and index."""
    notes: tuple[str, ...]
    """Warnings of the server, and series that name no GPU."""


def merge_telemetry(base: Snapshot, found: Telemetry, *, closing: bool = False) -> Merged:
    """
    The snapshot with the measurements and UUIDs of telemetry.

    With `closing` a contradiction is a note, and what was read of that GPU is left out.

    Raises
    ------
    BadInputError
        No host is a node of the snapshot, or a GPU contradicts the snapshot: all at once.
    """
    merge = _Merge(base, Told(found.url))
    for gpu in found.gpus:
        merge.add(gpu)
    told = merge.told
    if not merge.measured and not told.problems:
        merge.refuse_hosts(sorted({gpu.host for gpu in found.gpus}))
    merge.note_missing()
    notes = [*told.notes, *(f"{found.url}: {each}" for each in found.notes)]
    if closing:
        notes += [str(problem) for problem in told.problems]
    elif told.problems:
        raise BadInputError(tuple(told.problems))
    return Merged(merge.result(), tuple(sorted(set(notes))))


@dataclass(slots=True)
class _Merge:
    """The snapshot while readings of GPUs are merged into it."""

    base: Snapshot
    told: Told
    near: Suggestions = field(default_factory=Suggestions)
    measured: dict[tuple[str, int], Measurement] = field(default_factory=dict)
    _uuids: dict[str, dict[int, str]] = field(default_factory=lambda: defaultdict(dict))
    _memory: dict[str, int] = field(default_factory=dict)
    _by_uuid: dict[str, tuple[str, int]] = field(default_factory=dict)
    _by_name: dict[str, list[str]] = field(default_factory=lambda: defaultdict(list))
    _said: set[tuple[str, str]] = field(default_factory=set)

    def __post_init__(self) -> None:
        for node in self.base.cluster.nodes:
            self._by_name[node.name].append(node.name)
            if (short := node.name.partition(".")[0]) != node.name:
                self._by_name[short].append(node.name)
            for gpu in node.gpus.details if node.gpus else ():
                if gpu.uuid:
                    self._by_uuid[gpu.uuid] = node.name, gpu.index

    def add(self, found: GpuTelemetry) -> None:
        """Merge the reading of one GPU."""
        place = self._by_uuid.get(found.uuid) or self._by_host(found)
        if place is None:
            return
        name, index = place
        if place in self.measured:
            self._wrong(
                name,
                f"twice {index}",
                f"has two readings of GPU {index}; expected one exporter for each host.",
            )
            return
        self._note_name(found, name)
        self.measured[place] = Measurement(
            node=name,
            index=index,
            utilization=found.utilization,
            memory_mib=found.used_mib,
            period=found.period,
            temperature=found.temperature,
            hot=found.hot,
            idle=found.idle,
            xids=found.xids,
            uncorrectable=found.uncorrectable,
            row_remap=found.row_remap,
        )
        self._uuids[name][index] = found.uuid
        if found.memory_mib:
            self._memory[name] = min(found.memory_mib, self._memory.get(name, found.memory_mib))

    def _by_host(self, found: GpuTelemetry) -> tuple[str, int] | None:
        """Node and index by the name of the host, if the snapshot does not contradict it."""
        names = self._by_name.get(found.host) or self._by_name.get(found.host.partition(".")[0], [])
        if len(names) != 1:
            self.told.note(f"host {found.host}", "it is no node of the snapshot")
            return None
        node = self.base.cluster.node_by_name[names[0]]
        gpus = node.gpus
        if gpus is None or found.index >= gpus.count:
            have = format_count(gpus.count, "GPU") if gpus else "no GPU"
            self._wrong(
                node.name,
                "count",
                f"has {have} in the snapshot, and a GPU {found.index} by DCGM; expected the same.",
            )
            return None
        reading = NodeGpus(model=found.model or gpus.model, count=gpus.count, memory_mib=found.memory_mib)
        if not same_model(gpus.model, reading):
            self._wrong(
                node.name,
                "model",
                f"has GPUs of model '{gpus.model}' in the snapshot, and '{found.model}' by DCGM; "
                "expected one model.",
            )
            return None
        stated = gpus.by_index[found.index].uuid
        if stated and stated != found.uuid:
            self._wrong(
                node.name,
                f"uuid {found.index}",
                f"has {stated} as GPU {found.index} in the snapshot, and {found.uuid} by DCGM; expected one "
                "GPU.\n  If it was replaced, read the cluster anew.",
            )
            return None
        return node.name, found.index

    def refuse_hosts(self, hosts: list[str]) -> None:
        """Add that none of the hosts is a node, with what to do."""
        names, one = join_first_names(hosts), len(hosts) == 1
        nodes = join_first_names([node.name for node in self.base.cluster.nodes if node.gpus])
        hint = self.near.hint(hosts[0], self.base.cluster.node_by_name)
        self.told.wrong(
            f"host {names}" if one else f"hosts {names}",
            f"{'is no node' if one else 'are no nodes'} of the snapshot; expected its nodes with GPUs"
            f"{f', {nodes}' if nodes else ', and there are none'}.{hint}\n"
            "  If the exporter names hosts otherwise, relabel `Hostname`, or merge files of `snapshot --from "
            "nvml` too: then UUIDs match.",
        )

    def note_missing(self) -> None:
        """Note nodes and GPUs of which there is no reading."""
        for node in self.base.cluster.nodes:
            gone = [index for index in range(node.gpu_count) if (node.name, index) not in self.measured]
            if gone and len(gone) == node.gpu_count:
                self.told.note(f"node {node.name}", "there is no telemetry of it")
            elif gone:
                which = ", ".join(map(str, gone))
                self.told.note(f"node {node.name}", f"there is no telemetry of its GPU {which}")

    def result(self) -> Snapshot:
        """The snapshot with all readings merged."""
        nodes = tuple(
            _with_facts(node, self._uuids.get(node.name, {}), self._memory.get(node.name, 0))
            for node in self.base.cluster.nodes
        )
        others = [each for each in self.base.measured if (each.node, each.index) not in self.measured]
        cluster = self.base.cluster.model_copy(update={"nodes": nodes})
        measured = (*others, *self.measured.values())
        return self.base.model_copy(update={"cluster": cluster, "measured": measured}).canonical()

    def _note_name(self, found: GpuTelemetry, name: str) -> None:
        if found.host.partition(".")[0] != name.partition(".")[0]:
            self.told.note(f"node {name}", f"it is host {found.host}, by the UUIDs of its GPUs")

    def _wrong(self, name: str, kind: str, message: str) -> None:
        """Add a contradiction; each kind is said once of a node, though all its GPUs may have it."""
        if (name, kind) not in self._said:
            self._said.add((name, kind))
            self.told.wrong(f"node '{name}'", message)


def _with_facts(node: Node, uuids: dict[int, str], memory_mib: int) -> Node:
    """The node with the UUIDs and the memory of its GPUs where it states none."""
    if node.gpus is None:
        return node
    known = node.gpus.by_index
    told = {
        index: known[index].model_copy(update={"uuid": uuid})
        for index, uuid in uuids.items()
        if not known[index].uuid
    }
    if not told and (node.gpus.memory_mib or not memory_mib):
        return node
    details = {gpu.index: gpu for gpu in node.gpus.details} | told
    facts = {
        "details": tuple(gpu for _, gpu in sorted(details.items())),
        "memory_mib": node.gpus.memory_mib or memory_mib,
    }
    return node.model_copy(update={"gpus": node.gpus.model_copy(update=facts)})
