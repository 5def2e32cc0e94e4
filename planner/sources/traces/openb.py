"""
Snapshots from openb, the production trace of a GPU-sharing cluster at Alibaba (cluster-trace-gpu-v2023).

The trace lists nodes and single pods, each pod with the seconds of its creation, scheduling and deletion.
It does not say on which node a pod ran, so every pod of a snapshot waits, and the planner places it.
Described in Weng et al., "Beware of Fragmentation", USENIX ATC 2023.
"""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from enum import StrEnum
from typing import TYPE_CHECKING, Final

from gpuplan.models.cluster import MOST_GPUS, Cluster, Node, NodeGpus
from gpuplan.models.errors import BadInputError, InputProblem
from gpuplan.models.job import Job, ResourceRequest
from gpuplan.models.queue import Queue
from gpuplan.models.snapshot import Snapshot
from gpuplan.models.units import LARGEST_COUNT, LARGEST_MIB, MILLI
from gpuplan.planner.sources.traces.csv_rows import CsvFile, CsvRow, is_name

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path


TRACE_START: Final = datetime(2023, 1, 1, tzinfo=UTC)
"""Second 0 of the trace. The trace states no date; this one is a substitute."""

LATEST_SECOND: Final = 10 * 366 * 24 * 3600
"""Upper bound of all times, in seconds since the start of the trace, which spans five months."""

GPU_MEMORY_MIB: Final = {"A10": 24576, "P100": 16384, "T4": 15360, "V100M16": 16384, "V100M32": 32768}
"""Memory of one GPU in MiB by model; it is unknown for the undisclosed models G1, G2 and G3."""

_NODE_COLUMNS: Final = ("sn", "cpu_milli", "memory_mib", "gpu", "model")
POD_COLUMNS: Final = ("name", "cpu_milli", "memory_mib", "num_gpu", "gpu_milli")
_CREATED: Final = "creation_time"
_QOS: Final = "qos"


class OpenbQos(StrEnum):
    """Quality of service of a pod; LS is latency-sensitive, BE best effort."""

    GUARANTEED = "Guaranteed"
    LS = "LS"
    BURSTABLE = "Burstable"
    BE = "BE"


PRIORITY: Final = {OpenbQos.GUARANTEED: 2, OpenbQos.LS: 2, OpenbQos.BURSTABLE: 1, OpenbQos.BE: 0}
"""
Priority by quality of service; the trace has no priorities.

Kubernetes evicts best-effort pods first and guaranteed ones last. Latency-sensitive pods serve requests and
get the priority of guaranteed ones.
"""

UNSPECIFIED: Final = "unspecified"
"""Queue of pods in a file without the column qos."""

QOS_LABEL: Final = "openb/qos"


def read_openb(nodes: Path, pods: Path, *, at: int | None = None) -> Snapshot:
    """
    Read a node list and a pod list of the trace.

    Parameters
    ----------
    at
        An instant in seconds since the start of the trace: the snapshot has the pods created by then and not
        yet deleted. None takes every pod of the list, at the instant at which the last one was created.

    Raises
    ------
    BadInputError
        With all problems of both files.
    """
    node_file = CsvFile(nodes, what="a node list of the trace, such as openb_node_list_all_node.csv")
    pod_file = CsvFile(pods, what="a pod list of the trace, such as openb_pod_list_default.csv")
    found_nodes = tuple(_nodes(node_file))
    found_pods = tuple(_pods(pod_file, *(() if at is None else (_CREATED,))))
    problems = [*node_file.all_problems(), *pod_file.all_problems()]
    if at is not None and not 0 <= at <= LATEST_SECOND:
        expected = f"0 to {LATEST_SECOND} seconds since the trace's start"
        problems.append(InputProblem("--at", f"is {at}; expected {expected}."))
    if problems:
        raise BadInputError(tuple(problems))
    instant = max((created for created, _, _ in found_pods), default=0) if at is None else at
    return Snapshot(
        taken_at=_instant(instant),
        cluster=Cluster(name="openb", nodes=found_nodes),
        queues=tuple(Queue(name=name) for name in _queue_names(pod_file)),
        jobs=tuple(
            job
            for created, deleted, job in found_pods
            if at is None or (created <= at and (deleted is None or at < deleted))
        ),
    ).canonical()


def read_openb_pods(pods: Path) -> tuple[Job, ...]:
    """
    Read only a pod list of the trace, in the order of the file; a pod is submitted when it was created.

    Raises
    ------
    BadInputError
        With all problems of the file.
    """
    file = CsvFile(pods, what="a pod list of the trace, such as openb_pod_list_default.csv")
    return file.read(job for _, _, job in _pods(file, _CREATED))


def _queue_names(pods: CsvFile) -> list[str]:
    """Names of the queues: one per quality of service."""
    return [qos.lower() for qos in OpenbQos] if _QOS in pods.columns else [UNSPECIFIED]


def _instant(second: int) -> datetime:
    return TRACE_START + timedelta(seconds=second)


def _nodes(file: CsvFile) -> Iterator[Node]:
    line_of: dict[str, int] = {}
    for row in file.rows(*_NODE_COLUMNS):
        name = _unique_name(row, "sn", "node", line_of)
        count = row.whole("gpu", most=MOST_GPUS)
        model = row.name("model") if count else None
        if not count and row.text("model") and "gpu" not in row.faulty:
            row.complain("model", "no model on a node with 0 GPUs")
        yield Node(
            name=name,
            gpus=NodeGpus(model=model, count=count, memory_mib=GPU_MEMORY_MIB.get(model, 0))
            if model
            else None,
            cpu_milli=_milli(row),
            memory_mib=row.whole("memory_mib", most=LARGEST_MIB),
        )


def _pods(file: CsvFile, *further_columns: str) -> Iterator[tuple[int, int | None, Job]]:
    """Pods with the seconds at which they were created and deleted."""
    line_of: dict[str, int] = {}
    for row in file.rows(*POD_COLUMNS, *further_columns):
        name = _unique_name(row, "name", "pod", line_of)
        qos = _qos(row)
        created = row.whole(_CREATED, most=LATEST_SECOND) if _CREATED in file.columns else 0
        scheduled = _not_before(row, "scheduled_time", created)
        deleted = _not_before(row, "deletion_time", created if scheduled is None else scheduled)
        job = Job(
            name=name,
            queue=qos.lower() if qos else UNSPECIFIED,
            priority=PRIORITY[qos] if qos else 0,
            request=_request(row),
            gpu_models=dict.fromkeys(_gpu_models(row), 1),
            submitted_at=_instant(created),
            # A pod that was never scheduled gives no information about its duration.
            expected_duration=None if deleted is None or scheduled is None else deleted - scheduled,
            labels={QOS_LABEL: qos.value} if qos else {},
        )
        yield created, deleted, job


def _unique_name(row: CsvRow, column: str, kind: str, line_of: dict[str, int]) -> str:
    name = row.name(column)
    first = line_of.setdefault(name, row.line)
    if first != row.line and row.text(column) == name:
        row.complain(column, f"each {kind} once, and it is on line {first} already")
    return name


def _milli(row: CsvRow) -> str:
    return f"{row.whole('cpu_milli', most=LARGEST_COUNT * MILLI)}m"


def _request(row: CsvRow) -> ResourceRequest:
    """Whole GPUs, or a share of one: `gpu_milli` is per GPU, and below 1000 only if there is one GPU."""
    gpus = row.whole("num_gpu", most=MOST_GPUS)
    milli = row.whole("gpu_milli", most=MILLI)
    share = gpus == 1 and 0 < milli < MILLI
    if not share and milli != (MILLI if gpus else 0) and not row.faulty & {"num_gpu", "gpu_milli"}:
        expected = {0: "0 with num_gpu 0", 1: "1 to 1000 with num_gpu 1"}
        row.complain("gpu_milli", expected.get(gpus, f"1000 with num_gpu {gpus}"))
    return ResourceRequest(
        gpus=0 if share else gpus,
        gpu_milli=milli if share else 0,
        cpu_milli=_milli(row),
        memory_mib=row.whole("memory_mib", most=LARGEST_MIB),
    )


def _gpu_models(row: CsvRow) -> list[str]:
    """Allowed models; the trace repeats some, so duplicates are removed."""
    listed = row.text("gpu_spec")
    if not listed:
        return []
    models = sorted(set(listed.split("|")))
    if all(is_name(model) for model in models):
        return models
    row.complain("gpu_spec", "GPU models such as V100M16|V100M32, or nothing")
    return []


def _qos(row: CsvRow) -> OpenbQos | None:
    if _QOS not in row.cells:
        return None
    try:
        return OpenbQos(row.text(_QOS))
    except ValueError:
        row.complain(_QOS, f"one of {', '.join(OpenbQos)}")
        return None


def _not_before(row: CsvRow, column: str, earliest: int) -> int | None:
    second = row.optional_whole(column, most=LATEST_SECOND)
    if second is not None and second < earliest:
        row.complain(column, f"{earliest} or later: a pod is created, then scheduled, then deleted")
        return None
    return second
