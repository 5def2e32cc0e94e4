"""
Jobs of a Slurm cluster: what each node of a job gets, when it may start, and where it runs.

A job that cannot be expressed exactly is never guessed: pending, it is held; running, it keeps what it has
and may not be disturbed. Each such case is noted with the job's id and the reason.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from functools import lru_cache
from typing import TYPE_CHECKING, Any, Final

from gpuplan.models.affinity import Spread
from gpuplan.models.gang import Gang
from gpuplan.models.job import Job
from gpuplan.models.units import MILLI
from gpuplan.planner.sources.slurm.accounts.limits import is_refused, objections
from gpuplan.planner.sources.slurm.cluster.nodes import (
    FEATURE_LABEL,
    FEATURES_LABEL,
    NODE_LABEL,
    PARTITION_LABEL,
    PARTITIONS_LABEL,
)
from gpuplan.planner.sources.slurm.job_names import HOLDS_PLACES, dependencies, job_name, tasks_of
from gpuplan.planner.sources.slurm.job_request import (
    SHARED_GPUS,
    JobReading,
    UnknownConstraintError,
    matcher,
    plain_features,
    request_of,
)
from gpuplan.planner.sources.slurm.values import (
    LONGEST_REASON,
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
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from gpuplan.models.job import ResourceRequest
    from gpuplan.planner.sources.slurm.accounts.limits import AccountLimits
    from gpuplan.planner.sources.slurm.accounts.quotas import QuotaTree
    from gpuplan.planner.sources.slurm.cluster.partitions import SlurmPartition
    from gpuplan.planner.sources.slurm.cluster.reservations import Reserved
    from gpuplan.planner.sources.slurm.values import Record

NAME_LABEL: Final = "slurm/name"
ANY_LABEL: Final = "slurm/any"
"""Label of every job, for jobs that share their nodes with none."""

_HELD: Final = ("JobHeldUser", "JobHeldAdmin", "job_requeued_in_held_state", "launch_failed_requeued_held")
_ALONE: Final = "NONE"
"""Value of `shared` of a job with --exclusive."""
_ALONE_BY_OWNER: Final = frozenset({"USER", "MCS", "TOPO"})
"""Values of `shared` of jobs that share nodes with some jobs only."""

_NOT_PLANNED: Final = {
    "burst_buffer": "a burst buffer",
    "cluster_features": "a cluster with features",
    "contiguous": "contiguous nodes",
    "licenses": "licenses",
    "required_switches": "a number of switches",
}
"""Fields of a job's requirements that have no counterpart, with what they ask for."""
_NO_CORES: Final = 0x7FFE
"""A number of reserved cores from this one on means that none are asked for."""
_NO_LIMIT: Final = 100 * 365 * 24 * 60
"""Minutes of a time limit that is none: a century."""
_ALWAYS: Final = frozenset({"preemptible"})
"""Fields with a default that is not empty."""
_ONE_ON_EACH_NODE: Final = Spread()
_LAYOUT: Final = ("sockets_per_node", "cores_per_socket", "threads_per_core")


@dataclass(frozen=True, slots=True)
class Around:
    """What a job refers to."""

    partitions: Mapping[str, SlurmPartition]
    reserved: Reserved
    limits: AccountLimits
    quotas: QuotaTree
    weights: Mapping[tuple[int, int], float]
    """Weight of a job by the tier of its partition and its priority in Slurm."""
    label_sets: Mapping[str, Mapping[str, frozenset[str]]]
    """What the values of the labels for all features and all partitions of a node stand for."""
    targets: Mapping[str, Sequence[str]]
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
    reading = JobReading(record, job_name(record))
    document = _document(reading, around)
    if runs:
        document["running"] = _running(reading, document)
        if not reading.text("nodes") or not document["running"]["replicas"]:
            note(f"job {reading.name}", "it holds nodes that its record does not name; it is left out")
            return
        if state & {"COMPLETING", "SUSPENDED", "STAGE_OUT"}:
            reading.strange.append(f"it is {'+'.join(sorted(state)).lower()}")
        around.reserved.of_running(reading, document)
        document["preemptible"] = document["preemptible"] and not reading.strange
    else:
        _check_start(reading, document, around)
        around.reserved.of_pending(reading, document)
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
        document |= {"held": True, "hold_reason": "; ".join(reading.strange)[:LONGEST_REASON]}
    for each in (*reading.strange, *reading.remarks, *tasks.remarks):
        note(f"job {reading.name}", each)
    for index, name in enumerate(tasks.names):
        whole = document | {"name": name, "held": document["held"] or index >= room}
        # Fields without a value need no validation, of which fifty thousand jobs need seconds.
        yield Job.model_validate({key: value for key, value in whole.items() if value or key in _ALWAYS})


def _check_start(reading: JobReading, document: Mapping[str, Any], around: Around) -> None:
    """What keeps a pending job from a start that its request alone would allow."""
    most = reading.number("max_nodes")
    if most > reading.nodes:
        reading.strange.append(f"it may use {reading.nodes} to {most} nodes")
    request: ResourceRequest = document["request"]
    amounts = (request.gpus, request.cpu_milli // MILLI, request.memory_mib)
    if not most and any(amount > offered for amount, offered in zip(amounts, around.largest, strict=True)):
        reading.strange.append("it needs more nodes than it asks for, and Slurm chooses how many")
    if absent := sorted(request.resources.keys() - around.resources):
        reading.strange.append(f"it asks for {', '.join(absent)}, which no node has under that name")
    asked = [what for key, what in _NOT_PLANNED.items() if reading.is_set(key)]
    if asked:
        reading.strange.append(f"it asks for {' and '.join(asked)}")
    if any(reading.number(key) for key in _LAYOUT) or 0 < reading.number("core_spec") < _NO_CORES:
        reading.strange.append("it asks for a layout of sockets, cores and threads")
    limits = tuple(around.limits.of(around.limits.payer(reading.record)))
    reading.strange += objections(limits, reading.record, reading.nodes)
    if is_refused(reason := reading.text("state_reason"), limits):
        reading.strange.append(f"Slurm says {reason}")
    if prefers := reading.text("prefer"):
        reading.remarks.append(f"its preference for {prefers} is not kept")


def holds_places(record: Record) -> bool:
    """True if a job has nodes now."""
    return bool(flags(record.get("job_state")) & HOLDS_PLACES)


def has_nodes_alone(record: Record) -> bool:
    """True if a running job keeps others from what it leaves of its nodes, or shares GPUs with them."""
    others = other_gres(record.get("tres_per_node"))
    alone = flags(record.get("shared")) & _ALONE_BY_OWNER
    return holds_places(record) and bool(
        alone or any(each.partition(":")[0] in SHARED_GPUS for each in others)
    )


def _document(reading: JobReading, around: Around) -> dict[str, Any]:
    limit = number(reading.record.get("time_limit"))
    begin, submitted = reading.number("eligible_time"), reading.number("submit_time")
    partitions = _partitions(reading, around, limit if limit and limit < _NO_LIMIT else None)
    request = request_of(reading)
    name = reading.text("name")
    printable = "".join(each if each.isprintable() else "?" for each in name)[:LONGEST_REASON]
    labels = {ANY_LABEL: "true"} | ({NAME_LABEL: printable} if name else {})
    alone = wants_nodes_alone(reading.record, around.partitions)
    if flags(reading.record.get("shared")) & _ALONE_BY_OWNER:
        reading.strange.append("it shares nodes with jobs of its user or group only (--exclusive=…)")
    queue = around.quotas.queue_of(around.limits.payer(reading.record))
    queue = queue or (partitions[0] if partitions else "slurm")
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
        "priority": tier_of(partitions, around.partitions),
        "weight": around.weights.get(rank_of(reading.record, around.partitions), 1),
        "request": request.amounts,
        "replicas": _gang(reading.nodes),
        "spread": _ONE_ON_EACH_NODE if reading.nodes > 1 else None,
        "gpu_models": list(request.models),
        "node_selector": {f"{PARTITION_LABEL}{name_of(partitions[0])}": "true"}
        if len(partitions) == 1
        else {},
        "affinity": _affinity(reading, partitions, around),
        "anti_affinity": [{"labels": {ANY_LABEL: "true"}}] if alone else [],
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


def wants_nodes_alone(record: Record, partitions: Mapping[str, SlurmPartition]) -> bool:
    """True if a job shares its nodes with no other: --exclusive, or a partition that gives whole nodes."""
    listed = (partitions.get(each) for each in words(record.get("partition")))
    return _ALONE in flags(record.get("shared")) or any(each and each.whole_nodes for each in listed)


def tier_of(names: list[str], partitions: Mapping[str, SlurmPartition]) -> int:
    """Priority tier of a job: the lowest of its partitions, so that it preempts nothing without right."""
    return min((partitions[each].tier for each in names if each in partitions), default=0)


def rank_of(record: Record, partitions: Mapping[str, SlurmPartition]) -> tuple[int, int]:
    """Tier and priority of a job, which order the jobs of a cluster."""
    return tier_of(words(record.get("partition")), partitions), number(record.get("priority")) or 0


def _partitions(reading: JobReading, around: Around, minutes: int | None) -> list[str]:
    """The partitions of a job that may start it; all of them if none may."""
    names = words(reading.record.get("partition"))
    if reading.text("nodes"):
        return names
    objections = {
        name: objection
        for name in names
        if (partition := around.partitions.get(name))
        and (
            objection := partition.objection(
                nodes=reading.nodes, minutes=minutes, account=reading.text("account"), qos=reading.text("qos")
            )
        )
    }
    said = [f"its partition {name} {objection}" for name, objection in objections.items()]
    if len(said) == len(names):
        reading.strange += said
        return names
    usable = [name for name in names if name not in objections]
    if len({around.partitions[name].tier for name in usable if name in around.partitions}) > 1:
        reading.remarks.append("of its partitions the lowest tier is its priority")
    return usable


def _affinity(reading: JobReading, partitions: list[str], around: Around) -> list[dict[str, Any]]:
    """Conditions on nodes: one of several partitions, features, and nodes that are required or excluded."""
    found: list[dict[str, Any]] = []
    if len(partitions) > 1:
        sets = around.label_sets[PARTITIONS_LABEL]
        values = sorted(value for value, names in sets.items() if not names.isdisjoint(partitions))
        found += _one_of(PARTITIONS_LABEL, values)
    if features := reading.text("features"):
        if listed := plain_features(features):
            found += [{"key": f"{FEATURE_LABEL}{name_of(each)}", "operator": "Exists"} for each in listed]
        else:
            found += _constraint(reading, features, around)
    if nodes := hosts(reading.text("required_nodes")):
        if len(nodes) >= reading.nodes:
            found.append({"key": NODE_LABEL, "operator": "In", "values": nodes})
        else:
            reading.strange.append("it requires some of its nodes by name")
    if nodes := hosts(reading.text("excluded_nodes")):
        found.append({"key": NODE_LABEL, "operator": "NotIn", "values": nodes})
    return found


def _constraint(reading: JobReading, features: str, around: Around) -> list[dict[str, Any]]:
    """Condition for a constraint that is no list of features."""
    try:
        suits = matcher(features, reading.nodes)
    except UnknownConstraintError as error:
        reading.strange.append(f"its constraint {features} is not planned: {error}")
        return []
    sets = around.label_sets[FEATURES_LABEL]
    return _one_of(FEATURES_LABEL, sorted(value for value, names in sets.items() if suits(names)))


def _one_of(label: str, values: list[str]) -> list[dict[str, Any]]:
    """A condition that a label has one of these values; without any, one that no node meets."""
    if not values:
        return [{"key": label, "operator": "DoesNotExist"}]
    return [{"key": label, "operator": "In", "values": values}]


def _running(reading: JobReading, document: Mapping[str, Any]) -> dict[str, Any]:
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
        if len(gpus) != (asked := document["request"].gpus):
            reading.strange.append(f"it holds {len(gpus)} GPUs on {node}, not {asked}")
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


@lru_cache(maxsize=10_000)
def _gang(nodes: int) -> Gang:
    return Gang(minimum=nodes, maximum=nodes)


@lru_cache(maxsize=10_000)
def _time(seconds: int) -> datetime:
    return datetime(1970, 1, 1, tzinfo=UTC) + timedelta(seconds=seconds)
