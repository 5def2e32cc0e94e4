"""
What a Slurm job asks for on each of its nodes, and the constraints (`--constraint`) on their features.

As the controller does it, operators of one level apply from left to right: `a|b&c` is `(a|b)&c`. Syntax: man
page of sbatch, Slurm 22.05 to 26.05; order of the operators: tried on 22.05.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from functools import cached_property, lru_cache
from typing import TYPE_CHECKING, Any, Final

from gpuplan.models.job import ResourceRequest
from gpuplan.models.units import LARGEST_COUNT
from gpuplan.planner.sources.slurm.cluster.nodes import ANY_MODEL
from gpuplan.planner.sources.slurm.values import gpus_of, hosts, name_of, number, other_gres, tres_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from gpuplan.planner.sources.slurm.values import GpuGres, Record


JOB_FIELDS: Final = (
    *("account", "admin_comment", "array_job_id", "array_max_tasks", "array_task_id", "array_task_string"),
    *(
        "burst_buffer",
        "cluster",
        "cluster_features",
        "comment",
        "contiguous",
        "core_spec",
        "cores_per_socket",
        "cpus",
    ),
    *("cpus_per_tres", "deadline", "dependency", "eligible_time", "excluded_nodes", "features"),
    *("gres_detail", "het_job_id", "hold", "job_id", "job_resources", "job_state", "last_sched_evaluation"),
    *("licenses", "max_nodes", "memory_per_cpu", "memory_per_node", "memory_per_tres"),
    *("minimum_cpus_per_node", "minimum_tmp_disk_per_node", "name", "node_count", "nodes", "partition"),
    *("prefer", "priority", "qos", "requeue", "required_nodes", "required_switches", "resv_name", "shared"),
    *("sockets_per_node", "start_time", "state_reason", "submit_time", "tasks", "tasks_per_node"),
    *("threads_per_core", "time_limit", "tres_alloc_str", "tres_per_job", "tres_per_node"),
    *("tres_per_socket", "tres_per_task", "tres_req_str", "user_name"),
)
"""Fields of a job record that are read."""

_ASKED: Final = (
    *("cpus", "cpus_per_tres", "memory_per_cpu", "memory_per_node", "memory_per_tres"),
    *("minimum_cpus_per_node", "minimum_tmp_disk_per_node", "tasks", "tres_per_job", "tres_per_node"),
    *("tres_per_socket", "tres_per_task", "tres_req_str"),
)
"""Those on which the request of each node depends, with the number of nodes."""

SHARED_GPUS: Final = frozenset({"shard", "mps"})
"""GRES that are parts of GPUs; they may have a type."""
_MOST_GPUS: Final = 128
"""GPUs that a snapshot allows on one node."""
_MIG: Final = re.compile(r"\d+g\.\d+gb")


@dataclass
class JobReading:
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
class NodeRequest:
    """What each node of a job gives."""

    amounts: ResourceRequest
    models: tuple[str, ...]
    """GPU models that the job names."""
    strange: tuple[str, ...]


def request_of(reading: JobReading) -> NodeRequest:
    """What each node gives; what of it cannot be expressed is added to the reading."""
    found = _known_request(reading.nodes, tuple(map(reading.record.get, _ASKED)))
    reading.strange += found.strange
    return found


@lru_cache(maxsize=10_000)
def _known_request(nodes: int, asked: tuple[object, ...]) -> NodeRequest:
    """The same by the fields that it depends on: fifty thousand jobs have few distinct requests."""
    placed = {"nodes": f"n[1-{nodes}]"}  # which nodes they are does not matter
    reading = JobReading(dict(zip(_ASKED, asked, strict=True)) | placed, "")
    amounts, models = _request(reading)
    return NodeRequest(ResourceRequest.model_validate(amounts), tuple(models), tuple(reading.strange))


def _request(reading: JobReading) -> tuple[dict[str, Any], list[str]]:
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
    if shared := sorted(each for each in others if each.partition(":")[0] in SHARED_GPUS):
        reading.strange.append(f"it shares GPUs ({', '.join(shared)})")
    if unread := [
        name
        for key in ("tres_per_job", "tres_per_task", "tres_per_socket")
        for name in other_gres(reading.record.get(key))
        if name not in ("cpu", "mem", "billing", "node")
    ]:
        reading.strange.append(f"it asks for {', '.join(unread)} by job, task or socket")
    return request, models


def _gpus(reading: JobReading) -> tuple[int, list[str]]:
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


def _models(reading: JobReading, named: tuple[GpuGres, ...]) -> list[str]:
    types = sorted({each.type for each in named})
    if any(_MIG.search(each) for each in types):
        reading.strange.append("it asks for MIG instances by type")
        return []
    if len(types) > 1:
        reading.strange.append(f"it asks for GPUs of several types on one node: {', '.join(types)}")
    return [name_of(each) for each in types if each and each != ANY_MODEL]


_TOKEN: Final = re.compile(r"\s*([&|()\[\]]|[^&|()\[\]\s]+)")
_COUNT: Final = re.compile(r"\*(\d+)$")
_PLAIN: Final = re.compile(r"[\w.:/@+-]+")


class UnknownConstraintError(ValueError):
    """A constraint that asks for more than features of each node."""


def plain_features(text: str) -> list[str] | None:
    """Features that each node must have; None if the constraint is not a plain list of them."""
    parts = text.split("&")
    return parts if all(_PLAIN.fullmatch(part) for part in parts) else None


def matcher(text: str, nodes: int) -> Callable[[frozenset[str]], bool]:
    """
    A function that is true of the features of nodes on which a job of so many nodes may run.

    Raises
    ------
    UnknownConstraintError
        The constraint is not one on each node by itself.
    """
    if "[" in text and (nodes > 1 or "*" in text):
        raise UnknownConstraintError("its nodes have to agree in a feature")
    tokens = [match[1] for match in _TOKEN.finditer(text)]
    rest = iter((*tokens, ""))
    test, end = _alternatives(rest, nodes)
    if end or "".join(tokens) != re.sub(r"\s", "", text):
        raise UnknownConstraintError("it is not understood")
    return test


def _alternatives(tokens: Iterator[str], nodes: int) -> tuple[Callable[[frozenset[str]], bool], str]:
    """The test of a level, and the token that ends it."""
    found = _operand(next(tokens), tokens, nodes)
    while (operator := next(tokens)) in ("&", "|"):
        found = _joined(operator, found, _operand(next(tokens), tokens, nodes))
    return found, operator


def _joined(
    operator: str, one: Callable[[frozenset[str]], bool], other: Callable[[frozenset[str]], bool]
) -> Callable[[frozenset[str]], bool]:
    if operator == "&":
        return lambda there: one(there) and other(there)
    return lambda there: one(there) or other(there)


def _operand(token: str, tokens: Iterator[str], nodes: int) -> Callable[[frozenset[str]], bool]:
    if token in ("(", "["):
        test, end = _alternatives(tokens, nodes)
        if end != {"(": ")", "[": "]"}[token]:
            raise UnknownConstraintError("its brackets do not match")
        return test
    if (count := _COUNT.search(token)) is not None:
        if int(count[1]) < nodes:
            raise UnknownConstraintError("it counts nodes by feature")
        token = token[: count.start()]
    if not _PLAIN.fullmatch(token):
        raise UnknownConstraintError("it is not understood")
    return lambda there: token in there
