"""A small snapshot as a document, and jobs to stand in another."""

from __future__ import annotations

BASE = """
taken_at: 2026-11-20T12:00:00Z
cluster:
- {name: n0, gpus: {model: H100-80GB, count: 8, memory_mib: 81559}, cpus: 96, memory_mib: 768Gi}
- {name: n1, gpus: {model: H100-80GB, count: 8, memory_mib: 81559}, cpus: 96, memory_mib: 768Gi}
queues:
- {name: research}
- {name: batch, parent: research}
"""

JOB = "{name: train-a, queue: research, submitted_at: 2026-11-20T11:00:00Z, %s}"
"""One job with further fields."""


def running(*gpus):
    """What a running job holds on n0, of each GPU (index, thousandths)."""
    held = ", ".join(f"{{index: {index}, milli: {milli}}}" for index, milli in gpus)
    return f"running: {{started_at: 2026-11-20T11:30:00Z, replicas: [{{node: n0, gpus: [{held}]}}]}}"
