"""
Facts of single hosts, merged into the snapshot of a cluster: UUIDs, memory, MIG layouts, links, health.

What the cluster's snapshot states stays as it is. A host that contradicts it is an error, all at once: the
cluster would start jobs on GPUs that are not what it takes them for.
"""

from __future__ import annotations

import re
from collections import defaultdict
from dataclasses import dataclass, field
from datetime import timedelta
from typing import TYPE_CHECKING, Final

from gpuplan.models.cluster import Gpu
from gpuplan.models.errors import BadInputError, InputProblem, Suggestions
from gpuplan.models.mig import mig_geometry
from gpuplan.models.placement import GpuShare, MigSlice
from gpuplan.models.queue import FOREIGN_QUEUE, Queue
from gpuplan.models.units import print_seconds
from gpuplan.planner.sources.nvml.gpus import UNKNOWN_MODEL
from gpuplan.planner.text_format import format_count, format_mig_layout

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from gpuplan.models.cluster import Node, NodeGpus
    from gpuplan.models.health.measurement import Measurement
    from gpuplan.models.job import Job
    from gpuplan.models.placement import Replica
    from gpuplan.models.snapshot import Snapshot


# What a host tells of its GPUs, compared with what the snapshot of a cluster states of them.

_SAME_MEMORY: Final = 0.08
"""
Largest relative difference of two figures for one GPU's memory.

Names have round GB, and error correction takes up to a sixteenth of it: a 16 GB T4 tells 15,360 MiB.
"""

_ALIASES: Final = {"hbm3": {"sxm5"}, "gh200": {"h100"}}
"""Words that a product's name stands for: NVIDIA calls the H100 SXM5 `H100 80GB HBM3`."""


@dataclass(slots=True)
class Told:
    """What one file of a host tells: contradictions, and notes."""

    place: str
    problems: list[InputProblem] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)

    def wrong(self, subject: str, message: str) -> None:
        """Add a contradiction."""
        self.problems.append(InputProblem(self.place, f"{subject} {message}"))

    def note(self, subject: str, what: str) -> None:
        """Add a note."""
        self.notes.append(f"{subject}: {what}")


def check_gpus(subject: str, stated: NodeGpus, found: NodeGpus, told: Told) -> None:
    """Number, model, memory and identity of the GPUs are the same."""
    if stated.count != found.count:
        told.wrong(
            subject,
            f"has {format_count(stated.count, 'GPU')} in the snapshot, and {found.count} by NVML; "
            "expected the same number.",
        )
    if not same_model(stated.model, found):
        told.wrong(
            subject,
            f"has GPUs of model '{stated.model}' in the snapshot, and '{found.model}' by NVML; "
            "expected one model.",
        )
    if stated.memory_mib and found.memory_mib and not _same_memory(stated.memory_mib, found.memory_mib):
        told.wrong(
            subject,
            f"has GPUs of {stated.memory_mib:,} MiB in the snapshot, and of {found.memory_mib:,} by NVML; "
            "expected the same memory.",
        )
    others = found.by_index
    for gpu in stated.details:
        other = others.get(gpu.index)
        if other and gpu.uuid and other.uuid and gpu.uuid != other.uuid:
            told.wrong(
                subject,
                f"has {gpu.uuid} as GPU {gpu.index} in the snapshot, and {other.uuid} by NVML; "
                "expected one GPU.\n  If it was replaced, read the cluster anew.",
            )


def check_layouts(
    subject: str, stated: NodeGpus, found: NodeGpus, held: list[tuple[Job, Replica]], told: Told
) -> None:
    """Jobs hold what the layouts of the GPUs have, and the snapshot's model has these profiles."""
    for index, gpu in found.by_index.items():
        if gpu.mig is not None and mig_geometry(stated.model) is None:
            told.wrong(
                subject,
                f"has GPU {index} in MIG mode, and model '{stated.model}' of the snapshot is not known to "
                f"have MIG; expected '{found.model}'.",
            )
            continue
        for job, replica in held:
            for each in replica.gpus:
                if each.index == index and not _exists(each, gpu):
                    what = (
                        f"{each.profile} at slice {each.start}" if isinstance(each, MigSlice) else "a share"
                    )
                    has = "no MIG mode" if gpu.mig is None else format_mig_layout(gpu.mig)
                    told.wrong(
                        subject,
                        f"has job '{job.name}' on {what} of GPU {index} in the snapshot, and there is {has} "
                        "by NVML; expected the layout that the job holds.",
                    )


def _exists(held: GpuShare | MigSlice, gpu: Gpu) -> bool:
    if isinstance(held, GpuShare):
        return gpu.mig is None
    return gpu.mig is not None and held.instance in gpu.mig


def same_model(stated: str, found: NodeGpus) -> bool:
    """
    True if a name in a snapshot can mean the model that NVML tells.

    Each of its words is in NVML's name, or is the memory in GB: `h100`, `H100-80GB` and `nvidia_h100` are
    names of `NVIDIA-H100-80GB-HBM3`.
    """
    if UNKNOWN_MODEL in (stated, found.model):
        return True
    known = set(_words(found.model))
    for word, others in _ALIASES.items():
        known |= others if word in known else set()
    gib = found.memory_mib / 1024
    return all(
        word in known or (word[:-2].isdigit() and word.endswith("gb") and _same_memory(int(word[:-2]), gib))
        for word in _words(stated)
    )


def _words(model: str) -> Iterator[str]:
    return iter(re.findall(r"[a-z0-9]+", model.lower()))


def _same_memory(one: float, other: float) -> bool:
    return abs(one - other) <= _SAME_MEMORY * max(one, other)


# The merge.

_OLD: Final = timedelta(minutes=10)
"""Difference of time from which a reading is noted to be of another time than the snapshot."""


@dataclass(frozen=True, slots=True)
class Merged:
    """The snapshot of a cluster with what its hosts tell."""

    snapshot: Snapshot
    notes: tuple[str, ...]


def merge_hosts(base: Snapshot, hosts: Iterable[tuple[str, Snapshot]], *, closing: bool = False) -> Merged:
    """
    The snapshot with the facts of hosts, each with the file that they are from.

    With `closing` what is wrong with a host is a note, and its node is cordoned.

    Raises
    ------
    BadInputError
        Hosts that the snapshot does not have or that are given twice, and every contradiction.
    """
    merge = _Merge(base)
    problems: list[InputProblem] = []
    notes: list[str] = []
    for place, host in hosts:
        told = Told(place)
        for node in host.cluster.nodes:
            before = len(told.problems)
            merge.add(node, host, told)
            if closing and len(told.problems) > before:
                merge.close(node.name)
        problems += told.problems
        notes += told.notes
    if closing:
        notes += [str(problem) for problem in problems]
    elif problems:
        raise BadInputError(tuple(problems))
    return Merged(merge.result(), tuple(sorted(notes)))


class _Merge:
    """The nodes and jobs of a cluster while hosts are merged into them."""

    def __init__(self, base: Snapshot) -> None:
        self._base = base
        self._near = Suggestions()
        self._nodes = dict(base.cluster.node_by_name)
        self._jobs = dict(base.job_by_name)
        self._merged_from: dict[str, str] = {}
        self._measured: list[Measurement] = []
        self._names: dict[str, list[str]] = defaultdict(list)
        for name in self._nodes:
            self._names[_short(name)].append(name)
        self._on_node: dict[str, list[tuple[Job, Replica]]] = defaultdict(list)
        for job in base.jobs:
            for replica in job.running_replicas:
                self._on_node[replica.node].append((job, replica))

    def add(self, found: Node, host: Snapshot, told: Told) -> None:
        """Merge one node of a host's file."""
        name = self._name_of(found.name, told)
        if name is None:
            return
        node = self._nodes[name]
        subject = f"node '{name}'"
        if name in self._merged_from:
            told.wrong(subject, f"is in {self._merged_from[name]} too; expected each host once.")
            return
        self._merged_from[name] = told.place
        if found.gpus is None:
            told.wrong(subject, "has no GPUs in this file; expected what `snapshot --from nvml` writes.")
            return
        age = abs(self._base.taken_at - host.taken_at)
        if age > _OLD:
            when = "older" if host.taken_at < self._base.taken_at else "younger"
            seconds = print_seconds(int(age.total_seconds()))
            told.note(f"node {name}", f"its reading is {seconds} {when} than the snapshot")
        held = [(job, replica) for job, replica in self._on_node[name] if job.queue != FOREIGN_QUEUE]
        before = len(told.problems)
        if node.gpus is not None:
            check_gpus(subject, node.gpus, found.gpus, told)
            if not found.cordoned and len(told.problems) == before:
                check_layouts(subject, node.gpus, found.gpus, held, told)
        elif not node.cordoned:
            have = format_count(found.gpus.count, "GPU")
            told.wrong(subject, f"has no GPUs in the snapshot, and {have} by NVML; expected the same number.")
        if len(told.problems) > before:
            return
        self._nodes[name] = _merged_node(node, found, told)
        self._measured += [
            each.model_copy(update={"node": name}) for each in host.measured if each.node == found.name
        ]
        self._replace_foreign_jobs(name, held, found.name, host, told)

    def close(self, host: str) -> None:
        """Cordon the node of a host, if there is one."""
        names = [host] if host in self._nodes else self._names[_short(host)]
        for name in names:
            self._nodes[name] = self._nodes[name].model_copy(update={"cordoned": True})

    def result(self) -> Snapshot:
        """The snapshot with all hosts merged."""
        base = self._base
        queues = base.queues
        if FOREIGN_QUEUE not in {queue.name for queue in queues} and any(
            job.queue == FOREIGN_QUEUE for job in self._jobs.values()
        ):
            queues = (*queues, Queue(name=FOREIGN_QUEUE))
        cluster = base.cluster.model_copy(update={"nodes": tuple(self._nodes.values())})
        others = [each for each in base.measured if each.node not in self._merged_from]
        lists = {
            "queues": queues,
            "jobs": tuple(self._jobs.values()),
            "measured": (*others, *self._measured),
        }
        return base.model_copy(update={"cluster": cluster, **lists}).canonical()

    def _name_of(self, host: str, told: Told) -> str | None:
        """The node of a host: by its name, or by the part of it before the first dot if only one has that."""
        if host in self._nodes:
            return host
        if len(alike := self._names[_short(host)]) == 1:
            return alike[0]
        count = format_count(len(self._nodes), "node")
        hint = self._near.hint(host, self._nodes)
        told.wrong(f"host '{host}'", f"is no node of the snapshot; expected one of its {count}.{hint}")
        return None

    def _replace_foreign_jobs(
        self, name: str, held: list[tuple[Job, Replica]], host_name: str, host: Snapshot, told: Told
    ) -> None:
        """Processes on GPUs that no job of the snapshot holds; those of an earlier reading are replaced."""
        for job, _ in self._on_node[name]:
            if job.queue == FOREIGN_QUEUE:
                self._jobs.pop(job.name, None)
        strangers = [
            (job, replica)
            for job in host.jobs
            for replica in job.running_replicas
            if job.queue == FOREIGN_QUEUE and replica.node == host_name
        ]
        if strangers and any(job.request.gpus and not replica.gpus for job, replica in held):
            told.note(
                f"node {name}", "a job holds GPUs there that are not named: processes are taken for its own"
            )
            return
        taken = {_part(each) for _, replica in held for each in replica.gpus}
        for job, replica in strangers:
            left = [each for each in replica.gpus if _part(each) not in taken]
            if left:
                own = _held_by(job, replica, left, name, self._base)
                self._jobs[own.name] = own
                which = ", ".join(str(each.index) for each in left)
                told.note(
                    f"node {name}", f"GPU {which} has processes of user {own.user}, and no job holds it"
                )


def foreign_beside(held: Iterable[Replica], host: Snapshot) -> tuple[Job, ...]:
    """The jobs of a host's reading, with what of their places is not held already."""
    taken = {_part(each) for replica in held for each in replica.gpus}
    return tuple(
        _held_by(job, replica, left, replica.node, host)
        for job in host.jobs
        for replica in job.running_replicas
        if (left := [each for each in replica.gpus if _part(each) not in taken])
    )


def _merged_node(node: Node, found: Node, told: Told) -> Node:
    """The node with the facts of NVML where it states none."""
    if found.gpus is None:
        return node
    gpus = found.gpus
    if node.gpus is not None:
        stated = node.gpus
        states_groups = any(gpu.nvlink is not None or gpu.numa is not None for gpu in stated.details)
        merged = (
            _merged_gpu(
                gpu,
                other.model_copy(update={"nvlink": gpu.nvlink, "numa": gpu.numa}) if states_groups else other,
                f"node {node.name}",
                told,
                layout=not found.cordoned,
            )
            for gpu, other in zip(stated.by_index.values(), gpus.by_index.values(), strict=True)
        )
        details = tuple(gpu for gpu in merged if gpu != Gpu(index=gpu.index))
        if not stated.pinned and any(not gpu.healthy for gpu in details):
            told.note(
                f"node {node.name}", "the cluster chooses its GPUs, so no job that needs GPUs starts there"
            )
        memory = stated.memory_mib or gpus.memory_mib
        gpus = stated.model_copy(update={"details": details, "memory_mib": memory})
    if found.cordoned:
        told.note(
            f"node {node.name}", "its reading does not tell what is free on its GPUs, so no job starts there"
        )
    return node.model_copy(
        update={
            "gpus": gpus,
            "nvlink_island": node.nvlink_island or found.nvlink_island,
            "cordoned": node.cordoned or found.cordoned,
        }
    )


def _merged_gpu(stated: Gpu, found: Gpu, subject: str, told: Told, *, layout: bool) -> Gpu:
    mig = found.mig if layout else stated.mig
    if layout and stated.mig is not None and _layout(stated) != _layout(found):
        now = "no MIG mode" if found.mig is None else format_mig_layout(found.mig)
        told.note(
            subject, f"GPU {stated.index} has {now} by NVML, and {format_mig_layout(stated.mig)} before"
        )
    if stated.healthy and not found.healthy:
        told.note(subject, f"GPU {stated.index}: {found.fault or 'it is unhealthy'}, so no job starts there")
    if found.healthy and not stated.healthy:
        told.note(subject, f"GPU {stated.index} stays unhealthy, as the snapshot says; NVML finds no fault")
    return Gpu(
        index=stated.index,
        uuid=found.uuid or stated.uuid,
        healthy=stated.healthy and found.healthy,
        fault=found.fault or stated.fault,
        mig=mig,
        numa=found.numa,
        nvlink=found.nvlink,
    )


def _layout(gpu: Gpu) -> list[tuple[int, str]] | None:
    return None if gpu.mig is None else sorted((each.start, each.profile) for each in gpu.mig)


def _part(held: GpuShare | MigSlice) -> tuple[int, int | None]:
    return held.index, held.start if isinstance(held, MigSlice) else None


def _held_by(job: Job, replica: Replica, left: list[GpuShare | MigSlice], node: str, base: Snapshot) -> Job:
    """The foreign job with what of its places is left, and on the node as the snapshot names it."""
    profiles = [each.profile for each in left if isinstance(each, MigSlice)]
    amounts = {"gpus": len(left) - len(profiles), "mig": {each: profiles.count(each) for each in profiles}}
    started_at = min(base.taken_at, job.running.started_at) if job.running else base.taken_at
    places = replica.model_copy(update={"node": node, "gpus": tuple(left)})
    return job.model_copy(
        update={
            "name": f"{node}/{job.name.rpartition('/')[2]}",
            "request": job.request.model_copy(update=amounts),
            "submitted_at": started_at,
            "running": job.running.model_copy(update={"started_at": started_at, "replicas": (places,)})
            if job.running
            else None,
        }
    )


def _short(name: str) -> str:
    return name.partition(".")[0]
