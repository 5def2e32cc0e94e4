"""
Jobs of a Slurm cluster: what each node of a job gets, when it may start, and where it runs.

A job that cannot be expressed exactly is never guessed: pending, it is held; running, it keeps what it has
and may not be disturbed. Each such case is noted with the job's id and the reason.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from functools import cached_property
from typing import TYPE_CHECKING, Any, Final

from gpuplan.models.job import Job
from gpuplan.models.units import LARGEST_COUNT, MILLI
from gpuplan.planner.sources.slurm.job_names import HOLDS_PLACES, dependencies, job_name, tasks_of
from gpuplan.planner.sources.slurm.nodes import ANY_MODEL, FEATURE_LABEL, NODE_LABEL, PARTITION_LABEL
from gpuplan.planner.sources.slurm.values import (
    flags,
    gpus_of,
    hosts,
    name_of,
    number,
    other_gres,
    tres_of,
    words,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from gpuplan.planner.sources.slurm.values import GpuGres, Record

JOB_FIELDS: Final = (
    *(
        "account",
        "admin_comment",
        "array_job_id",
        "array_max_tasks",
        "array_task_id",
        "array_task_string",
        "burst_buffer",
    ),
    *("cluster", "cluster_features", "comment", "contiguous", "core_spec", "cores_per_socket", "cpus"),
    *("cpus_per_tres", "deadline", "dependency", "eligible_time", "excluded_nodes", "features"),
    *("gres_detail", "het_job_id", "hold", "job_id", "job_resources", "job_state", "last_sched_evaluation"),
    *("licenses", "max_nodes", "memory_per_cpu", "memory_per_node", "memory_per_tres"),
    *("minimum_cpus_per_node", "minimum_tmp_disk_per_node", "name", "node_count", "nodes", "partition"),
    *("prefer", "priority", "requeue", "required_nodes", "required_switches", "resv_name", "shared"),
    *("sockets_per_node", "start_time", "state_reason", "submit_time", "tasks", "tasks_per_node"),
    *("threads_per_core", "time_limit", "tres_alloc_str", "tres_per_job", "tres_per_node"),
    *("tres_per_socket", "tres_per_task", "tres_req_str", "user_name"),
)
"""Fields of a job record that are read."""

NAME_LABEL: Final = "slurm/name"

_HELD: Final = ("JobHeldUser", "JobHeldAdmin", "job_requeued_in_held_state", "launch_failed_requeued_held")
_WHOLE_NODES: Final = frozenset({"NONE", "USER", "MCS", "TOPO"})
"""Values of `shared` of jobs that share no node with others; NONE is --exclusive."""

_NOT_PLANNED: Final = {
    "burst_buffer": "a burst buffer",
    "cluster_features": "a cluster with features",
    "contiguous": "contiguous nodes",
    "licenses": "licenses",
    "required_switches": "a number of switches",
    "resv_name": "a reservation",
}
"""Fields of a job's requirements that have no counterpart, with what they ask for."""
_SHARED_GPUS: Final = frozenset({"shard", "mps"})
"""GRES that are parts of GPUs; they may have a type."""
_NO_CORES: Final = 0x7FFE
"""A number of reserved cores from this one on means that none are asked for."""
_MOST_GPUS: Final = 128
"""GPUs that a snapshot allows on one node."""
_NO_LIMIT: Final = 100 * 365 * 24 * 60
"""Minutes of a time limit that is none: a century."""
_LONGEST_LABEL: Final = 253
_LAYOUT: Final = ("sockets_per_node", "cores_per_socket", "threads_per_core")

_MIG: Final = re.compile(r"\d+g\.\d+gb")
_FEATURES: Final = re.compile(r"^[\w.-]+(&[\w.-]+)*$")


@dataclass
class _Reading:
    """A job as it is read, with what of it cannot be expressed."""

    record: Record
    name: str
    strange: list[str] = field(default_factory=list)
    remarks: list[str] = field(default_factory=list)
    """What is noted without a hold."""

    def number(self, key: str) -> int:
        """A number of the record; 0 if it is not set."""
        return number(self.record.get(key)) or 0

    def is_set(self, key: str) -> bool:
        """True if a field of any shape has a value."""
        value = self.record.get(key)
        return bool(value) if isinstance(value, str) else bool(self.number(key) or value is True)

    def text(self, key: str) -> str:
        """A text of the record."""
        value = self.record.get(key)
        return ",".join(map(str, value)) if isinstance(value, list) else str(value or "")

    @cached_property
    def nodes(self) -> int:
        """Nodes that the job runs on, or the fewest that it asks for."""
        if placed := hosts(self.text("nodes")):
            return len(placed)
        # The number of nodes of a pending job is an estimate, unless it is also the largest one.
        asked, most = self.number("node_count"), self.number("max_nodes")
        least = asked if asked == most else tres_of(self.text("tres_req_str")).get("node", asked)
        if in_each := self.number("tasks_per_node"):
            least = max(least, -(-self.number("tasks") // in_each))
        return max(1, least)


@dataclass(frozen=True, slots=True)
class Around:
    """What a job refers to."""

    priorities: Mapping[str, int]
    """Priority of each partition."""
    closed: Mapping[str, str]
    """State of each partition that starts no jobs."""
    targets: Mapping[str, tuple[str, ...]]
    """Names of the jobs that an id in a dependency stands for."""
    largest: tuple[int, int, int]
    """GPUs, CPUs and memory of which no node has more."""
    resources: frozenset[str]
    """Further resources that any node has."""
    started: Mapping[int, int]
    """Tasks of each job array that have nodes."""


def jobs_of(record: Record, around: Around, note: Callable[[str, str], None]) -> Iterator[Job]:
    """The jobs of one record: one, or one for each pending task of a job array; none if it is over."""
    state = flags(record.get("job_state"))
    runs = bool(state & HOLDS_PLACES)
    if not runs and "PENDING" not in state:
        return
    reading = _Reading(record, job_name(record))
    document = _document(reading, around)
    if runs:
        document["running"] = _running(reading, document)
        if not reading.text("nodes") or not document["running"]["replicas"]:
            note(f"job {reading.name}", "it holds nodes that its record does not name; it is left out")
            return
        if state & {"COMPLETING", "SUSPENDED", "STAGE_OUT"}:
            reading.strange.append(f"it is {'+'.join(sorted(state)).lower()}")
        document["preemptible"] = document["preemptible"] and not reading.strange
    else:
        _check_start(reading, document, around)
    tasks = tasks_of(record)
    room = len(tasks.names)
    if tasks.most is not None:
        started = around.started.get(number(record.get("array_job_id")) or 0, 0)
        room = max(0, tasks.most - started)
        if room < len(tasks.names):
            reading.remarks.append(
                f"its limit is {tasks.most} tasks at a time: {room} may start, the others are held"
            )
    if tasks.cut_off:
        reading.strange.append("its list of tasks is cut off; SLURM_BITSTR_LEN=0 squeue writes all of it")
    if not runs and reading.strange:
        document["held"] = True
    for each in (*reading.strange, *reading.remarks, *tasks.remarks):
        note(f"job {reading.name}", each)
    for index, name in enumerate(tasks.names):
        yield Job.model_validate(document | {"name": name, "held": document["held"] or index >= room})


def _check_start(reading: _Reading, document: Mapping[str, Any], around: Around) -> None:
    """What keeps a pending job from a start that its request alone would allow."""
    for partition in words(reading.record.get("partition")):
        if partition in around.closed:
            reading.strange.append(f"its partition {partition} is {around.closed[partition].lower()}")
    most = reading.number("max_nodes")
    if most > reading.nodes:
        reading.strange.append(f"it may use {reading.nodes} to {most} nodes")
    amounts = tuple(document["request"][key] for key in ("gpus", "cpus", "memory_mib"))
    if not most and any(amount > offered for amount, offered in zip(amounts, around.largest, strict=True)):
        reading.strange.append("it needs more nodes than it asks for, and Slurm chooses how many")
    if absent := sorted(document["request"].get("resources", {}).keys() - around.resources):
        reading.strange.append(f"it asks for {', '.join(absent)}, which no node has under that name")
    asked = [what for key, what in _NOT_PLANNED.items() if reading.is_set(key)]
    if asked:
        reading.strange.append(f"it asks for {' and '.join(asked)}")
    if any(reading.number(key) for key in _LAYOUT) or 0 < reading.number("core_spec") < _NO_CORES:
        reading.strange.append("it asks for a layout of sockets, cores and threads")
    if prefers := reading.text("prefer"):
        reading.remarks.append(f"its preference for {prefers} is not kept")


def holds_places(record: Record) -> bool:
    """True if a job has nodes now."""
    return bool(flags(record.get("job_state")) & HOLDS_PLACES)


def has_nodes_alone(record: Record) -> bool:
    """True if a running job keeps others from what it leaves of its nodes, or shares GPUs with them."""
    others = other_gres(record.get("tres_per_node"))
    alone = flags(record.get("shared")) & _WHOLE_NODES
    return holds_places(record) and bool(
        alone or any(each.partition(":")[0] in _SHARED_GPUS for each in others)
    )


def _document(reading: _Reading, around: Around) -> dict[str, Any]:
    partitions = words(reading.record.get("partition"))
    if len(partitions) > 1:
        reading.strange.append(f"it may use any of the partitions {', '.join(partitions)}")
    limit = number(reading.record.get("time_limit"))
    begin, submitted = reading.number("eligible_time"), reading.number("submit_time")
    request, models = _request(reading)
    name = reading.text("name")
    printable = "".join(each if each.isprintable() else "?" for each in name)[:_LONGEST_LABEL]
    labels = {NAME_LABEL: printable} if name else {}
    queue = reading.text("account") or (partitions[0] if partitions else "slurm")
    user = reading.text("user_name") or "unknown"
    reading.remarks += [
        f"its {what} {text!r} is written {name_of(text)}"
        for what, text in (("account or partition", queue), ("user", user))
        if name_of(text) != text
    ]
    return {
        "name": reading.name,
        "queue": name_of(queue),
        "user": name_of(user),
        "priority": max((around.priorities.get(each, 0) for each in partitions), default=0),
        "request": request,
        "replicas": reading.nodes,
        "spread": {"level": "node", "max": 1} if reading.nodes > 1 else None,
        "gpu_models": models,
        "node_selector": {f"{PARTITION_LABEL}{name_of(partitions[0])}": "true"} if partitions else {},
        "affinity": _affinity(reading),
        "submitted_at": _time(submitted),
        "expected_duration": limit * 60 if limit and limit < _NO_LIMIT else None,
        "not_before": _time(begin) if begin > submitted else None,
        "deadline": _time(max(submitted, reading.number("deadline"))) if reading.number("deadline") else None,
        "hard_deadline": bool(reading.number("deadline")),
        **dependencies(reading.text("dependency"), around.targets, reading.strange),
        "co_start": f"het-{het}" if (het := reading.number("het_job_id")) else None,
        "preemptible": bool(reading.record.get("requeue")),
        "held": reading.text("state_reason") in _HELD
        or reading.record.get("hold") is True
        or number(reading.record.get("priority")) == 0
        # A single task beyond the limit of its array.
        or (reading.text("state_reason") == "JobArrayTaskLimit" and not reading.text("array_task_string")),
        "labels": labels,
    }


def _request(reading: _Reading) -> tuple[dict[str, Any], list[str]]:
    """What each node gives, and the GPU models that the job names."""
    asked = tres_of(reading.record.get("tres_req_str"))
    nodes = reading.nodes
    cpus = asked.get("cpu", reading.number("cpus"))
    memory = asked.get("mem", 0) or reading.number("memory_per_node") * nodes
    count, models = _gpus(reading)
    if count > _MOST_GPUS:
        reading.strange.append(f"it asks for {count:,} GPUs on one node")
        count = _MOST_GPUS
    cpus_of_gpu, memory_of_gpu = (
        max((each.count for each in gpus_of(reading.record.get(key))), default=0)
        for key in ("cpus_per_tres", "memory_per_tres")
    )
    each_cpus = max(-(-cpus // nodes), reading.number("minimum_cpus_per_node"), count * cpus_of_gpu)
    each_memory = max(
        -(-memory // nodes), count * memory_of_gpu, each_cpus * reading.number("memory_per_cpu")
    )
    request: dict[str, Any] = {"gpus": count, "cpus": each_cpus, "memory_mib": each_memory}
    request["disk_mib"] = reading.number("minimum_tmp_disk_per_node")
    others = other_gres(reading.record.get("tres_per_node"))
    if large := sorted(each for each, amount in others.items() if amount > LARGEST_COUNT):
        reading.strange.append(f"it asks for more of {', '.join(large)} than {LARGEST_COUNT:,}")
    if others := {each: amount for each, amount in others.items() if amount <= LARGEST_COUNT}:
        request["resources"] = others
    if shared := sorted(each for each in others if each.partition(":")[0] in _SHARED_GPUS):
        reading.strange.append(f"it shares GPUs ({', '.join(shared)})")
    if unread := [
        name
        for key in ("tres_per_job", "tres_per_task", "tres_per_socket")
        for name in other_gres(reading.record.get(key))
        if name not in ("cpu", "mem", "billing", "node")
    ]:
        reading.strange.append(f"it asks for {', '.join(unread)} by job, task or socket")
    if flags(reading.record.get("shared")) & _WHOLE_NODES:
        reading.strange.append("it wants whole nodes (--exclusive)")
    return request, models


def _gpus(reading: _Reading) -> tuple[int, list[str]]:
    """GPUs on each node, and their models."""
    nodes = reading.nodes
    asked = ("tres_per_node", "tres_per_job", "tres_per_task", "tres_per_socket")
    per_node, in_all, per_task, per_socket = (gpus_of(reading.record.get(each)) for each in asked)
    if per_socket:
        reading.strange.append("it asks for GPUs by socket")
    named = per_node or in_all or per_task
    models = _models(reading, named)
    if per_node:
        return sum(each.count for each in per_node), models
    total = sum(each.count for each in in_all)
    if per_task:
        total = sum(each.count for each in per_task) * max(1, reading.number("tasks"))
    if total % nodes:
        reading.strange.append(f"its {total} GPUs do not divide evenly over its {nodes} nodes")
    return -(-total // nodes), models


def _models(reading: _Reading, named: tuple[GpuGres, ...]) -> list[str]:
    types = sorted({each.type for each in named})
    if any(_MIG.search(each) for each in types):
        reading.strange.append("it asks for MIG instances by type")
        return []
    if len(types) > 1:
        reading.strange.append(f"it asks for GPUs of several types on one node: {', '.join(types)}")
    return [name_of(each) for each in types if each and each != ANY_MODEL]


def _affinity(reading: _Reading) -> list[dict[str, Any]]:
    """Conditions on nodes: features, and nodes that are required or excluded."""
    found: list[dict[str, Any]] = []
    if features := reading.text("features"):
        if _FEATURES.match(features):
            found += [
                {"key": f"{FEATURE_LABEL}{name_of(each)}", "operator": "Exists"}
                for each in features.split("&")
            ]
        else:
            reading.strange.append(f"its constraint {features} is more than a list of features")
    if nodes := hosts(reading.text("required_nodes")):
        if len(nodes) >= reading.nodes:
            found.append({"key": NODE_LABEL, "operator": "In", "values": nodes})
        else:
            reading.strange.append("it requires some of its nodes by name")
    if nodes := hosts(reading.text("excluded_nodes")):
        found.append({"key": NODE_LABEL, "operator": "NotIn", "values": nodes})
    return found


def _running(reading: _Reading, document: Mapping[str, Any]) -> dict[str, Any]:
    """Start and places of a running job; the places of all nodes are in Slurm's order of nodes."""
    nodes = hosts(reading.text("nodes"))
    details = [text for text in reading.record.get("gres_detail") or [] if text]
    held = tres_of(reading.record.get("tres_alloc_str"))
    cpus = _shares(held.get("cpu", reading.number("cpus")), _by_node(reading.record, "cpus"), nodes)
    memory = _shares(held.get("mem", 0), _by_node(reading.record, "memory"), nodes)
    replicas = []
    for position, node in enumerate(nodes):
        detail = details[position] if position < len(details) else ""
        gpus = [index for each in gpus_of(detail) for index in each.indices]
        if len(gpus) != document["request"]["gpus"]:
            reading.strange.append(f"it holds {len(gpus)} GPUs on {node}, not {document['request']['gpus']}")
        shares = [{"index": index, "milli": MILLI} for index in gpus]
        replicas.append(
            {"node": name_of(node), "gpus": shares, "cpus": cpus[position], "memory_mib": memory[position]}
        )
    return {"started_at": _time(reading.number("start_time")), "replicas": replicas}


def _by_node(record: Record, key: str) -> dict[str, int]:
    """Cores or MiB on each node of a running job, from the record's list of them."""
    resources = record.get("job_resources") or {}
    listed = resources.get("nodes")
    each_node = listed.get("allocation") if isinstance(listed, dict) else resources.get("allocated_nodes")
    return {each["name"]: each[key] for each in each_node or [] if {"name", key} <= each.keys()}


def _shares(total: int, parts: Mapping[str, int], nodes: list[str]) -> list[int]:
    """A total on each node: in proportion to the parts if they are known, else evenly."""
    known = [parts.get(node, 0) for node in nodes]
    if not all(known):
        return [-(-total // max(1, len(nodes)))] * len(nodes)
    return [-(-total * part // sum(known)) for part in known]


def allocation_of(found: Record) -> Record | None:
    """An object of a running job's allocation on one node, reduced to its sums; None if it is another one."""
    if "nodename" in found and "memory_allocated" in found:
        sockets = (found.get("sockets") or {}).values()
        cores = sum(len((each or {}).get("cores") or {}) for each in sockets)
        return {"name": found["nodename"], "cpus": cores, "memory": number(found["memory_allocated"]) or 0}
    if isinstance(memory := found.get("memory"), dict) and "allocated" in memory and "cpus" in found:
        cpus = found["cpus"] or {}
        return {
            "name": found.get("name", ""),
            "cpus": number(cpus.get("count")) or 0,
            "memory": number(memory["allocated"]) or 0,
        }
    return None


def _time(seconds: int) -> datetime:
    return datetime(1970, 1, 1, tzinfo=UTC) + timedelta(seconds=seconds)
