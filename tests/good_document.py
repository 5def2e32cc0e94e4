"""One valid snapshot document that uses nearly every field, and every place in it."""

from __future__ import annotations

GOOD = {
    "format_version": "1.0",
    "taken_at": "2026-11-20T12:00:00Z",
    "cluster": {
        "name": "alps",
        "nodes": [
            {
                "name": "n0",
                "gpus": {
                    "model": "H100-80GB",
                    "count": 8,
                    "memory_mib": 81559,
                    "details": [{"index": 7, "mig": [{"profile": "3g.40gb", "start": 4}], "numa": 1}],
                },
                "cpus": 96.5,
                "memory_mib": "768Gi",
                "resources": {"rdma/hca": 8},
                "rack": "r1",
                "labels": {"tier": "gold"},
                "taints": [{"key": "dedicated", "value": "x", "effect": "NoExecute"}],
                "price_per_hour": 24.5,
                "spot": False,
            },
            {"name": "n1", "gpus": {"model": "A100-80GB", "count": 4}},
            {"name": "n2", "cpus": 64},
        ],
    },
    "queues": [
        {"name": "top", "quota": {"nominal": 8, "borrowing_limit": 2, "lending_limit": "500m"}},
        {"name": "low", "parent": "top", "gpu_models": {"H100-80GB": {"nominal": 4}}},
    ],
    "jobs": [
        {
            "name": "run",
            "queue": "top",
            "request": {"gpus": 2, "cpus": 8},
            "replicas": {"min": 1, "max": 2},
            "submitted_at": "2026-11-20T09:00:00Z",
            "running": {
                "started_at": "2026-11-20T10:00:00Z",
                "last_checkpoint_at": "2026-11-20T11:00:00Z",
                "replicas": [
                    {
                        "node": "n0",
                        "gpus": [{"index": 0, "milli": 1000}, {"index": 1, "milli": 1000}],
                        "cpus": 8,
                    }
                ],
            },
        },
        {
            "name": "slice",
            "queue": "low",
            "request": {"mig": {"3g.40gb": 1}},
            "submitted_at": "2026-11-20T09:00:00Z",
            "running": {
                "started_at": "2026-11-20T10:00:00Z",
                "replicas": [{"node": "n0", "gpus": [{"index": 7, "profile": "3g.40gb", "start": 4}]}],
            },
        },
        {
            "name": "wait",
            "queue": "low",
            "user": "ada",
            "priority": 7,
            "weight": 1.5,
            "request": {"gpu_milli": 500, "gpu_memory_mib": 4096, "memory_mib": "4Gi"},
            "gpu_models": {"H100-80GB": 1, "A100-80GB": 0.3},
            "node_selector": {"tier": "gold"},
            "tolerations": [{"key": "dedicated"}],
            "locality": {"required": "rack", "preferred": "nvlink_island"},
            "submitted_at": "2026-11-20T09:00:00Z",
            "expected_duration": "1h30m",
            "deadline": "2026-11-21T09:00:00Z",
            "preemptible": False,
            "labels": {"a": "b"},
        },
    ],
}


def paths(value, path=()):
    """Every place in a document, the document itself left out."""
    steps = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, inner in steps:
        yield (*path, key)
        yield from paths(inner, (*path, key))


PATHS = tuple(paths(GOOD))
