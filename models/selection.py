"""Which nodes a job may use at all, whatever is free there: the filters before any arithmetic."""

from __future__ import annotations

from typing import TYPE_CHECKING

from planner.models.units import MILLI

if TYPE_CHECKING:
    from collections.abc import Hashable

    from planner.models.cluster import Node
    from planner.models.job import Job


def filters(job: Job) -> tuple[Hashable, ...]:
    """All that `refusal` looks at in a job: equal filters, equal answers."""
    request = job.request
    return (
        request.needs_gpu,
        # The share matters only together with a demand for GPU memory.
        (request.gpu_memory_mib, request.gpu_milli) if request.gpu_memory_mib else None,
        tuple(sorted(job.gpu_models)),
        tuple(sorted(job.node_selector.items())),
        job.tolerations,
    )


def refusal(job: Job, node: Node) -> str | None:
    """Why the node can never take a replica of the job as things stand; None if it may."""
    if not node.ready:
        return "node is not ready"
    if node.cordoned:
        return "node is cordoned"
    for key, value in job.node_selector.items():
        if node.labels.get(key) != value:
            return f"node lacks label {key}={value}"
    for taint in node.taints:
        if not job.tolerates(taint):
            return f"taint {taint.key} is not tolerated"
    request = job.request
    if request.needs_gpu:
        if node.gpus is None:
            return "node has no GPUs"
        if job.gpu_models and node.gpus.model not in job.gpu_models:
            return f"GPU model {node.gpus.model} is not allowed"
        # A share gets its part of the device's memory.
        if request.gpu_memory_mib > node.gpus.memory_mib * (request.gpu_milli or MILLI) // MILLI:
            return f"GPU memory of {node.gpus.memory_mib} MiB is too small"
    return None
