"""
The fleet of 10,412 GPUs with a synthetic queue.

The fleet is `node_info.csv` of Alibaba's cluster-trace-v2026-spot-gpu (alibaba/clusterdata): for each node
its GPU model, number of GPUs and number of CPUs. It has no data on memory, racks or running jobs.
Assumptions: eight GiB of memory per CPU, which never binds before CPU does; racks of sixteen nodes of one
model in the order of the nodes' numbers; an empty fleet. The queue has jobs of the sizes that
`benchmarks.sizes` draws, with gangs and racks, but more single GPUs, and no MIG, as the file has no MIG data.

The file is not part of the project: GPUPLAN_ALIBABA_2026 names it.
"""

from __future__ import annotations

import csv
import os
from collections import Counter, defaultdict
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from gpuplan.models.cluster import Cluster, Node, NodeGpus
from gpuplan.models.job import Job
from gpuplan.models.queue import Queue
from gpuplan.models.snapshot import Snapshot
from gpuplan.models.units import MILLI

if TYPE_CHECKING:
    from collections.abc import Iterator

VARIABLE: Final = "GPUPLAN_ALIBABA_2026"
TAKEN_AT: Final = datetime(2026, 1, 1, tzinfo=UTC)
_MEMORY_MIB_PER_CPU: Final = 8 * 1024
_NODES_PER_RACK: Final = 16

_MIX: Final[tuple[tuple[float, dict[str, Any]], ...]] = (
    (50, {"gpus": 1}),
    (9, {"gpus": 1, "cpus": 24}),
    (12, {"gpu_milli": 500}),
    (8, {"gpus": 2}),
    (7, {"gpus": 4}),
    (7, {"gpus": 8}),
    (4.25, {"cpus": 16}),
    (1.5, {"gpus": 8, "replicas": 2, "rack": True}),
    (0.75, {"gpus": 8, "replicas": 4}),
    (0.5, {"gpus": 8, "replicas": 8, "rack": True}),
)
"""Percentages of the jobs, and the request; a third of the GPUs are the only one of their node."""


def is_named() -> bool:
    """True if the environment names the file."""
    return bool(os.environ.get(VARIABLE))


def file() -> Path:
    """The file that the environment names; raises KeyError if it names none."""
    return Path(os.environ[VARIABLE])


def read_fleet(file: Path) -> Cluster:
    """Read the nodes; the racks are synthetic."""
    with file.open(newline="") as lines:
        rows = sorted(csv.DictReader(lines), key=lambda row: int(row["node_name"]))
    racked: Counter[str] = Counter()
    nodes = []
    for row in rows:
        model = row["gpu_model"]
        rack, cpus = racked[model] // _NODES_PER_RACK, int(row["cpu_num"])
        racked[model] += 1
        nodes.append(
            Node(
                name=f"node-{int(row['node_name']):05d}",
                gpus=NodeGpus(model=model, count=int(row["gpu_capacity_num"])),
                cpu_milli=cpus,
                memory_mib=cpus * _MEMORY_MIB_PER_CPU,
                rack=f"{model}-{rack:03d}",
            )
        )
    return Cluster(name="alibaba-2026", nodes=tuple(nodes))


def case(file: Path, *, load: float = 1.2, seed: int = 0) -> Snapshot:
    """The empty fleet, and a queue that asks for `load` times its GPUs."""
    cluster = read_fleet(file)
    gpus = sum(node.gpu_count for node in cluster.nodes)
    jobs = tuple(_queue(cluster, int(load * gpus * MILLI), np.random.default_rng(seed)))
    return Snapshot(taken_at=TAKEN_AT, cluster=cluster, queues=(Queue(name="all"),), jobs=jobs).canonical()


def _queue(cluster: Cluster, wanted: int, draws: np.random.Generator) -> Iterator[Job]:
    """Jobs until their sum is `wanted` thousandths of GPUs; one in three names a model that can hold it."""
    models_of: dict[int, set[str]] = defaultdict(set)
    for node in cluster.nodes:
        if node.gpus:
            models_of[node.gpus.count].add(node.gpus.model)
    odds = np.array([percent for percent, _ in _MIX]) / sum(percent for percent, _ in _MIX)
    number = 0
    while wanted > 0:
        _, kind = _MIX[int(draws.choice(len(_MIX), p=odds))]
        gpus, replicas = kind.get("gpus", 0), kind.get("replicas", 1)
        able = sorted({model for count, models in models_of.items() if count >= gpus for model in models})
        request: dict[str, Any] = {"cpus": kind.get("cpus", 8 * max(1, gpus))}
        request |= {name: kind[name] for name in ("gpus", "gpu_milli") if name in kind}
        request["memory_mib"] = f"{4 * request['cpus']}Gi"
        picky = bool(gpus) and draws.random() < 1 / 3
        job = Job.model_validate(
            {
                "name": f"job-{number:05d}",
                "queue": "all",
                "priority": int(draws.choice([0, 2, 5], p=[0.6, 0.3, 0.1])),
                "request": request,
                "replicas": replicas,
                "gpu_models": {str(draws.choice(able)): 1} if picky else {},
                "locality": {"required": "rack"} if kind.get("rack") else {},
                "submitted_at": TAKEN_AT - timedelta(seconds=int(draws.integers(24 * 3600))),
            }
        )
        number += 1
        wanted -= job.request.total_gpu_milli * replicas
        yield job
