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
                    "details": [
                        {"index": 7, "mig": [{"profile": "3g.40gb", "start": 4}], "numa": 1, "nvlink": 2}
                    ],
                    "time_sliced": True,
                    "watts": 700,
                },
                "cpus": 96.5,
                "memory_mib": "768Gi",
                "resources": {"rdma/hca": 8},
                "rack": "r1",
                "labels": {"tier": "gold"},
                "taints": [{"key": "dedicated", "value": "x", "effect": "NoExecute"}],
                "price_per_hour": 24.5,
                "spot": False,
                "power_cap_watts": 5000,
            },
            {"name": "n1", "gpus": {"model": "A100-80GB", "count": 4}, "drain": True},
            {"name": "n2", "cpus": 64, "pool": "spot", "ready_at": "2026-11-20T12:05:00Z"},
        ],
        "pools": [
            {
                "name": "spot",
                "template": {"name": "spot", "gpus": {"model": "H100-80GB", "count": 8}, "spot": True},
                "min": 1,
                "max": 4,
                "provisioning": "5m",
                "interruptions_per_hour": 0.05,
            }
        ],
        "overcommit": {"burstable": {"cpus": 2, "memory": 1.2}, "best_effort": {"cpus": 4}},
        "datasets": [
            {
                "name": "corpus",
                "zones": {"z1": 0, "z2": 1.5},
                "elsewhere": 2,
                "available_at": "2026-11-20T13:00:00Z",
            }
        ],
        "rack_power": [{"rack": "r1", "watts": 12000}],
        "reservations": [
            {"name": "course", "nodes": ["n1"], "cron": "0 8 * * 1-5", "duration": "4h", "queues": ["top"]},
            {
                "name": "firmware",
                "kind": "maintenance",
                "count": 1,
                "gpu_model": "H100-80GB",
                "node_selector": {"tier": "gold"},
                "start": "2026-11-21T08:00:00Z",
                "duration": "2h",
            },
        ],
        "tariffs": [
            {
                "name": "peak",
                "cron": "0 17 * * *",
                "duration": "4h",
                "price_per_gpu_hour": 1.5,
                "gpu_models": ["H100-80GB"],
            }
        ],
    },
    "queues": [
        {"name": "top", "quota": {"nominal": 8, "borrowing_limit": 2, "lending_limit": "500m"}},
        {"name": "owed", "quota": {"nominal": 4, "guarantee": 2}},
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
                "kill_at": "2026-11-20T14:00:00Z",
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
            "hard_deadline": True,
            "not_before": "2026-11-20T15:00:00Z",
            "depends_on": [{"job": "run", "kind": "started"}, {"job": "over"}],
            "depends_on_at_least": 1,
            "co_start": "pair",
            "promise": {
                "start": "2026-11-20T16:00:00Z",
                "replicas": [{"node": "n1", "gpus": [{"index": 0, "milli": 500}], "memory_mib": 4096}],
            },
            "preemptible": False,
            "labels": {"a": "b"},
            "affinity": [{"key": "tier", "operator": "NotIn", "values": ["iron"]}],
            "preferred_nodes": [{"match": {"key": "disk", "operator": "Exists"}, "points": 5}],
            "regions": ["eu", ""],
            "spread": {"level": "rack", "max": 2},
            "anti_affinity": [{"labels": {"a": "b"}, "level": "zone"}],
            "datasets": ["corpus"],
            "workload_class": "inference",
            "qos": "burstable",
            "time_slicing": True,
            "checkpoint_duration": "30s",
            "restart_duration": "2m",
            "preemptions": 2,
        },
    ],
    "finished": [
        {
            "name": "over",
            "queue": "low",
            "user": "ada",
            "outcome": "failed",
            "started_at": "2026-11-20T08:00:00Z",
            "ended_at": "2026-11-20T09:30:00Z",
        }
    ],
    "measured": [{"node": "n0", "index": 7, "utilization": 41, "memory_mib": 20480, "period": "30s"}],
}


def paths(value, path=()):
    """Every place in a document, the document itself left out."""
    steps = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, inner in steps:
        yield (*path, key)
        yield from paths(inner, (*path, key))


PATHS = tuple(paths(GOOD))
