"""
Jobs of a Slurm cluster: what each node of a job gets, when it may start, and where it runs.

A job that cannot be expressed exactly is never guessed: pending, it is held; running, it keeps what it has
and may not be disturbed. Each such case is noted with the job's id and the reason.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any, Final

from gpuplan.models.dependency import DependencyKind
from gpuplan.models.job import Job
from gpuplan.models.units import MILLI
from gpuplan.planner.sources.slurm.nodes import ANY_MODEL, FEATURE_LABEL, NODE_LABEL, PARTITION_LABEL
from gpuplan.planner.sources.slurm.values import (
    flags,
    gpus_of,
    hosts,
    indices,
    number,
    other_gres,
    split_outside_brackets,
    tres_of,
    words,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from gpuplan.planner.sources.slurm.values import GpuGres, Record

JOB_FIELDS: Final = (
    *("account", "array_job_id", "array_task_id", "array_task_string", "cluster", "cpus", "deadline"),
    *("dependency", "eligible_time", "excluded_nodes", "features", "gres_detail", "het_job_id", "hold"),
    *("job_id", "job_state", "last_sched_evaluation", "memory_per_node", "name", "node_count", "nodes"),
    *("partition", "requeue", "required_nodes", "shared", "start_time", "state_reason", "submit_time"),
    *("tasks", "time_limit", "tres_alloc_str", "tres_per_job", "tres_per_node", "tres_per_socket"),
    *("tres_per_task", "tres_req_str", "user_name"),
)
"""Fields of a job record that are read."""

NAME_LABEL: Final = "slurm/name"

_HOLDS_PLACES: Final = frozenset(
    {"RUNNING", "CONFIGURING", "COMPLETING", "SUSPENDED", "STAGE_OUT", "SIGNALING", "STOPPED", "RESIZING"}
)
_HELD: Final = ("JobHeldUser", "JobHeldAdmin", "job_requeued_in_held_state", "launch_failed_requeued_held")
_WHOLE_NODES: Final = frozenset({"NONE", "USER", "MCS", "TOPO"})
"""Values of `shared` of jobs that share no node with others; NONE is --exclusive."""

_MIG: Final = re.compile(r"\d+g\.\d+gb")
_FEATURES: Final = re.compile(r"^[\w.-]+(&[\w.-]+)*$")
_CONDITION: Final = {
    "after": DependencyKind.STARTED,
    "afterok": DependencyKind.SUCCEEDED,
    "afterany": DependencyKind.COMPLETED,
}
_MOST_TASKS: Final = 10_000
"""Pending tasks of one job array that become jobs of their own."""


@dataclass
class _Reading:
    """A job as it is read, with what of it cannot be expressed."""

    record: Record
    name: str
    strange: list[str] = field(default_factory=list)

    def number(self, key: str) -> int:
        """A number of the record; 0 if it is not set."""
        return number(self.record.get(key)) or 0

    def text(self, key: str) -> str:
        """A text of the record."""
        value = self.record.get(key)
        return ",".join(map(str, value)) if isinstance(value, list) else str(value or "")

    @property
    def nodes(self) -> int:
        """Nodes that the job runs on, or asks for."""
        return max(1, self.number("node_count"))


def jobs_of(
    record: Record,
    *,
    tiers: Mapping[str, int],
    names: Mapping[int, str],
    note: Callable[[str, str], None],
) -> Iterator[Job]:
    """
    The jobs of one record: one, or one for each pending task of a job array; none if it is over.

    `tiers` gives the priority tier of each partition, `names` the names of all jobs by id.
    """
    state = flags(record.get("job_state"))
    runs = bool(state & _HOLDS_PLACES)
    if not runs and "PENDING" not in state:
        return
    reading = _Reading(record, names[number(record.get("job_id")) or 0])
    document = _document(reading, tiers, names)
    if runs:
        document["running"] = _running(reading, document)
        if not reading.text("nodes") or not document["running"]["replicas"]:
            note(f"job {reading.name}", "it holds nodes that its record does not name; it is left out")
            return
        if state & {"COMPLETING", "SUSPENDED", "STAGE_OUT"}:
            reading.strange.append(f"it is {'+'.join(sorted(state)).lower()}")
        document["preemptible"] = document["preemptible"] and not reading.strange
    elif reading.strange:
        document["held"] = True
    for each in reading.strange:
        note(f"job {reading.name}", each)
    for name in _tasks(reading, note):
        yield Job.model_validate(document | {"name": name})


def names_by_id(records: list[Record]) -> dict[int, str]:
    """Name of each job: its id, or `ARRAY_TASK` for a task of a job array, as users see it in squeue."""
    found = {}
    for record in records:
        job = number(record.get("job_id")) or 0
        array, task = number(record.get("array_job_id")), number(record.get("array_task_id"))
        is_task = array and task is not None and not record.get("array_task_string")
        found[job] = f"{array}_{task}" if is_task else str(job)
    return found


def _tasks(reading: _Reading, note: Callable[[str, str], None]) -> list[str]:
    """Names of the jobs of a record: its own, or those of the pending tasks of a job array."""
    text = reading.text("array_task_string").strip("[]")
    if not text:
        return [reading.name]
    tasks, _, most = text.partition("%")
    if most:
        note(f"job {reading.name}", f"its limit of {most} tasks at a time is not kept")
    found = [f"{reading.name}_{task}" for each in tasks.split(",") for task in _stepped(each)]
    if len(found) > _MOST_TASKS:
        note(f"job {reading.name}", f"of its {len(found):,} tasks the first {_MOST_TASKS:,} are planned")
    return found[:_MOST_TASKS]


def _stepped(text: str) -> range | tuple[int, ...]:
    """Numbers of a range with a step, such as `0-15:4`."""
    bounds, _, step = text.partition(":")
    first, _, last = bounds.partition("-")
    return range(int(first), int(last) + 1, int(step or 1)) if last else indices(first)


def _document(reading: _Reading, tiers: Mapping[str, int], names: Mapping[int, str]) -> dict[str, Any]:
    partitions = words(reading.record.get("partition"))
    if len(partitions) > 1:
        reading.strange.append(f"it may use any of the partitions {', '.join(partitions)}")
    limit = number(reading.record.get("time_limit"))
    begin, submitted = reading.number("eligible_time"), reading.number("submit_time")
    request, models = _request(reading)
    name = reading.text("name")
    labels = {NAME_LABEL: name} if name and name.isprintable() else {}
    return {
        "name": reading.name,
        "queue": reading.text("account") or (partitions[0] if partitions else "slurm"),
        "user": reading.text("user_name") or "unknown",
        "priority": min(10_000, max((tiers.get(each, 0) for each in partitions), default=0)),
        "request": request,
        "replicas": reading.nodes,
        "spread": {"level": "node", "max": 1} if reading.nodes > 1 else None,
        "gpu_models": models,
        "node_selector": {f"{PARTITION_LABEL}{partitions[0]}": "true"} if partitions else {},
        "affinity": _affinity(reading),
        "submitted_at": _time(submitted),
        "expected_duration": limit * 60 if limit else None,
        "not_before": _time(begin) if begin > submitted else None,
        "deadline": _time(reading.number("deadline")) if reading.number("deadline") else None,
        "hard_deadline": bool(reading.number("deadline")),
        **_dependencies(reading, names),
        "co_start": f"het-{het}" if (het := reading.number("het_job_id")) else None,
        "preemptible": bool(reading.record.get("requeue")),
        "held": reading.text("state_reason") in _HELD or reading.record.get("hold") is True,
        "labels": labels,
    }


def _request(reading: _Reading) -> tuple[dict[str, Any], list[str]]:
    """What each node gives, and the GPU models that the job names."""
    asked = tres_of(reading.record.get("tres_req_str"))
    nodes = reading.nodes
    cpus = asked.get("cpu", reading.number("cpus"))
    memory = asked.get("mem", 0) or reading.number("memory_per_node") * nodes
    count, models = _gpus(reading)
    request: dict[str, Any] = {"gpus": count, "cpus": -(-cpus // nodes), "memory_mib": -(-memory // nodes)}
    others = other_gres(reading.record.get("tres_per_node"))
    if others:
        request["resources"] = others
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
    return [each for each in types if each and each != ANY_MODEL]


def _affinity(reading: _Reading) -> list[dict[str, Any]]:
    """Conditions on nodes: features, and nodes that are required or excluded."""
    found: list[dict[str, Any]] = []
    if features := reading.text("features"):
        if _FEATURES.match(features):
            found += [{"key": f"{FEATURE_LABEL}{each}", "operator": "Exists"} for each in features.split("&")]
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


def _dependencies(reading: _Reading, names: Mapping[int, str]) -> dict[str, Any]:
    """Dependencies on jobs that are still there; those that are met are not in Slurm's text."""
    text = reading.text("dependency")
    if not text:
        return {}
    any_of = "?" in text
    found: dict[str, DependencyKind] = {}
    for part in split_outside_brackets(text.replace("?", ",")):
        kind, _, jobs = re.sub(r"\(.*\)$", "", part).partition(":")
        if kind not in _CONDITION:
            reading.strange.append(f"its dependency {part} has no counterpart")
            continue
        for job in jobs.split(":"):
            array = job.partition("_")[0].partition("+")[0]
            targets = _targets(array, names) if array.isdigit() else []
            if not targets:
                reading.strange.append(f"it depends on job {job}, which is not in the queue")
            found |= dict.fromkeys(targets, _CONDITION[kind])
    listed = [{"job": name, "kind": kind} for name, kind in found.items()]
    return {"depends_on": listed, "depends_on_at_least": 1 if any_of and listed else None}


def _targets(array: str, names: Mapping[int, str]) -> list[str]:
    """Jobs of an id: itself, or all known tasks of that job array."""
    tasks = [name for name in names.values() if name.startswith(f"{array}_")]
    return tasks or [name for name in (names.get(int(array)),) if name]


def _running(reading: _Reading, document: Mapping[str, Any]) -> dict[str, Any]:
    """Start and places of a running job; the places of all nodes are in Slurm's order of nodes."""
    nodes = hosts(reading.text("nodes"))
    details = [text for text in reading.record.get("gres_detail") or [] if text]
    held = tres_of(reading.record.get("tres_alloc_str"))
    count = max(1, len(nodes))
    cpus, memory = -(-held.get("cpu", reading.number("cpus")) // count), -(-held.get("mem", 0) // count)
    replicas = []
    for position, node in enumerate(nodes):
        detail = details[position] if position < len(details) else ""
        gpus = [index for each in gpus_of(detail) for index in each.indices]
        if len(gpus) != document["request"]["gpus"]:
            reading.strange.append(f"it holds {len(gpus)} GPUs on {node}, not {document['request']['gpus']}")
        shares = [{"index": index, "milli": MILLI} for index in gpus]
        replicas.append({"node": node, "gpus": shares, "cpus": cpus, "memory_mib": memory})
    return {"started_at": _time(reading.number("start_time")), "replicas": replicas}


def _time(seconds: int) -> datetime:
    return datetime(1970, 1, 1, tzinfo=UTC) + timedelta(seconds=seconds)
