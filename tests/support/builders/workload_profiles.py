"""A small cluster and its workload, as one describes what is to be drawn at random."""

from __future__ import annotations

from gpuplan.planner.sources.workload_profile import WorkloadProfile

SMALL = {
    "name": "small",
    "taken_at": "2026-11-20T12:00:00Z",
    "layout": {"region": "north", "nodes_per_rack": 2, "racks_per_zone": 2},
    "nodes": [
        {
            "count": 5,
            "node": {"name": "big", "gpus": {"model": "B", "count": 8}, "cpus": 96, "memory_mib": 9000},
        },
        {
            "count": 3,
            "node": {"name": "old", "gpus": {"model": "O", "count": 2}, "cpus": 8, "memory_mib": 3000},
        },
        {"count": 1, "node": {"name": "cpu", "cpus": 32, "memory_mib": 1000}},
    ],
    "queues": [
        {"queue": {"name": "top"}},
        {"queue": {"name": "a", "parent": "top", "quota": {"nominal": 14, "borrowing_limit": 2}}, "share": 3},
        {
            "queue": {
                "name": "b",
                "parent": "top",
                "quota": {"nominal": 8},
                "gpu_models": {"O": {"nominal": 1}},
            },
            "share": 1,
            "users": 3,
            "priorities": [{"share": 1, "priority": 4, "preemptible": False}, {"share": 2, "priority": 1}],
        },
    ],
    "model_choices": [{"share": 1}, {"share": 1, "gpu_models": ["O"]}],
    "durations": [{"share": 1, "shortest": "2m", "longest": "2h"}],
    "backlog": "6h",
    "running": {"gpu_ratio": 0.5, "ended_ratio": 0.3, "longest_wait": "30m"},
    "jobs": [
        {"count": 20, "request": {"gpus": 1, "cpus": 6, "memory_mib": 500}},
        {"count": 20, "request": {"gpu_milli": 400, "cpus": 1}},
        {"count": 4, "request": {"cpus": 20}},
        {"count": 3, "replicas": 2, "queues": ["a"], "request": {"gpus": 4, "cpus": 30}},
    ],
}


def profile(**changes):
    return WorkloadProfile.model_validate(SMALL | changes)
