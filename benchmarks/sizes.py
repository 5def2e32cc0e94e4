"""
The synthetic clusters of the benchmarks: S, M, L, L5 and XL, each generated from a seed.

Nodes have eight GPUs of three models, in racks of sixteen nodes. Running jobs hold three of four GPUs, and
the queue asks for several times the remaining GPUs: shares, MIG instances, single GPUs, gangs of up to 64
nodes (half of them bound to a rack), one job in ten with a high CPU demand, and queues with quotas and
guarantees.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from gpuplan.planner.sources.synthetic import generate_snapshot
from gpuplan.planner.sources.workload_profile import WorkloadProfile

if TYPE_CHECKING:
    from collections.abc import Iterator

    from gpuplan.models.snapshot import Snapshot

_H100, _A100, _L40S = "H100-80GB", "A100-80GB", "L40S-48GB"


@dataclass(frozen=True)
class Size:
    """Size of a cluster and its queue."""

    nodes: int
    jobs: int
    """Approximate number of waiting jobs; running jobs are drawn from the same shapes."""
    largest: int
    """Nodes of the largest gang."""


SIZES = {
    "S": Size(32, 100, 2),
    "M": Size(157, 500, 8),
    "L": Size(1_250, 1_000, 64),
    "L5": Size(1_250, 5_000, 16),
    "XL": Size(12_500, 10_000, 64),
}

_QUEUES = (("foundation", 34), ("vision", 26), ("search", 22), ("sandbox", 18))
"""Leaf queues with their percentage of the jobs."""


def made_up(size: Size, seed: int) -> Snapshot:
    """The snapshot of a size."""
    return generate_snapshot(profile_of(size), seed=seed)


def profile_of(size: Size) -> WorkloadProfile:
    """The workload profile of a size."""
    gpus = 8 * size.nodes
    return WorkloadProfile.model_validate(
        {
            "name": "made-up",
            "taken_at": "2026-11-20T12:00:00Z",
            "layout": {"nodes_per_rack": 16, "racks_per_zone": 32},
            "nodes": list(_nodes(size.nodes)),
            "queues": list(_queues(gpus)),
            "jobs": list(_jobs(size)),
            "model_choices": [
                {"share": 50},
                {"share": 30, "gpu_models": {_H100: 1, _A100: 0.5}},
                {"share": 20, "gpu_models": {_A100: 1, _L40S: 0.7}},
            ],
            "durations": [
                {"share": 40, "shortest": "20m", "longest": "3h"},
                {"share": 40, "shortest": "3h", "longest": "12h"},
                {"share": 20, "shortest": "12h", "longest": "48h"},
            ],
            "backlog": "24h",
            "running": {
                "gpu_ratio": 0.75,
                "ended_ratio": 0.2,
                "longest_wait": "4h",
                "oldest_checkpoint": "2h",
            },
        }
    )


def _nodes(nodes: int) -> Iterator[dict[str, Any]]:
    """Half H100; a third A100, one in sixteen of them with MIG instances; the rest L40S."""
    cut = max(1, nodes // 50)
    a100, l40s = nodes // 3 - cut, nodes // 6
    plain: dict[str, Any] = {"cpus": 96, "memory_mib": "960Gi"}
    layout = [{"profile": "3g.40gb", "start": 0}, {"profile": "2g.20gb", "start": 4}]
    mig = [{"index": gpu, "mig": layout if gpu % 2 else []} for gpu in range(8)]
    gpus: dict[str, Any] = {"count": 8, "memory_mib": "80Gi"}
    yield {
        "count": nodes - a100 - cut - l40s,
        "node": {"name": "h100", "gpus": gpus | {"model": _H100}} | plain,
    }
    yield {"count": a100, "node": {"name": "a100", "gpus": gpus | {"model": _A100}} | plain}
    yield {"count": cut, "node": {"name": "mig", "gpus": gpus | {"model": _A100, "details": mig}} | plain}
    yield {
        "count": l40s,
        "node": {"name": "l40s", "gpus": {"model": _L40S, "count": 8, "memory_mib": "48Gi"}} | plain,
    }


def _queues(gpus: int) -> Iterator[dict[str, Any]]:
    yield {"queue": {"name": "company"}}
    for name, part in _QUEUES:
        quota = {"nominal": gpus * part // 100, "guarantee": gpus * part // 160}
        priorities = [
            {"share": 60, "priority": 0},
            {"share": 30, "priority": 2},
            {"share": 10, "priority": 5},
        ]
        yield {
            "queue": {"name": name, "parent": "company", "quota": quota},
            "share": part,
            "users": 20,
            "priorities": priorities,
        }


def _jobs(size: Size) -> Iterator[dict[str, Any]]:
    """Shapes with their counts, running jobs included."""
    usual = {"cpus": 8, "memory_mib": "64Gi"}
    # Running jobs take three quarters of the GPUs, 5.5 GPUs per job, as all gangs bound to a rack wait.
    jobs = size.jobs + int(0.75 * 8 * size.nodes / 5.5)

    def shape(percent: float, request: dict[str, Any], **others: Any) -> dict[str, Any]:
        return {"count": max(1, round(jobs * percent / 100)), "request": request} | others

    for gpus, percent in ((1, 24), (2, 17), (4, 15), (8, 14)):
        yield shape(percent, {"gpus": gpus} | {"cpus": 8 * gpus, "memory_mib": f"{64 * gpus}Gi"})
    for gpus, percent in ((1, 5), (2, 3), (4, 2)):  # heavy on CPU
        yield shape(percent, {"gpus": gpus, "cpus": 20 * gpus, "memory_mib": f"{100 * gpus}Gi"})
    yield shape(4, {"gpu_milli": 500} | usual, gpu_models=[_L40S])
    yield shape(2, {"cpus": 16, "memory_mib": "64Gi"})
    for profile, percent in (("1g.10gb", 2), ("2g.20gb", 1), ("3g.40gb", 1)):
        yield shape(percent, {"mig": {profile: 1}} | usual, gpu_models=[_A100])
    whole = {"gpus": 8, "cpus": 64, "memory_mib": "512Gi"}
    nodes, part = 2, 4.0
    while nodes <= size.largest:
        bound = {"locality": {"required": "rack"}} if nodes <= 16 else {}
        yield shape(part / 2, whole, replicas=nodes, gpu_models=[_H100], **bound)
        yield shape(part / 2, whole, replicas=nodes)
        nodes, part = 2 * nodes, part / 2
