"""Static node filters of a job: eligibility regardless of free resources."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from gpuplan.models.affinity import MatchOperator, NodeMatch
from gpuplan.models.mig import mig_geometry
from gpuplan.models.units import MILLI

if TYPE_CHECKING:
    from collections.abc import Hashable

    from gpuplan.models.cluster import Node, NodeGpus
    from gpuplan.models.job import Job, ResourceRequest

_NONE: Final[frozenset[Hashable]] = frozenset()


def eligibility_key(job: Job) -> tuple[Hashable, ...]:
    """All attributes of a job that `ineligibility` reads: equal filters give equal answers."""
    request = job.request
    return (
        request.needs_gpu,
        # The share matters only together with a GPU memory request.
        (request.gpu_memory_mib, request.gpu_milli) if request.gpu_memory_mib else None,
        # Nodes with time-sliced GPUs refuse shares.
        bool(request.gpu_milli) and not job.time_slicing,
        tuple(sorted(request.mig)) if request.mig else (),
        tuple(sorted(job.gpu_models)) if job.gpu_models else (),
        tuple(sorted(job.node_selector.items())) if job.node_selector else (),
        # Most jobs have none of these.
        frozenset(job.tolerations) if job.tolerations else _NONE,
        frozenset(job.affinity) if job.affinity else _NONE,
        frozenset(job.regions) if job.regions else _NONE,
    )


def ineligibility(job: Job, node: Node) -> str | None:
    """Reason why the node cannot take a replica of the job in its present state; None if it is eligible."""
    if not node.ready:
        return "node is not ready"
    if node.cordoned:
        return "node is cordoned"
    if node.drain:
        return "node is to be drained"
    for key, value in job.node_selector.items():
        if node.labels.get(key) != value:
            return f"node lacks label {key}={value}"
    for match in job.affinity:
        if not match.holds(node.labels):
            return f"node does not meet {format_match(match)}"
    if job.regions and node.region not in job.regions:
        return f"region {node.region or 'unknown'} is not allowed"
    for taint in node.taints:
        if not job.tolerates(taint):
            return f"taint {taint.key} is not tolerated"
    if job.request.needs_gpu:
        return _gpu_ineligibility(job, node.gpus)
    return None


def _gpu_ineligibility(job: Job, gpus: NodeGpus | None) -> str | None:
    """Reason why the GPUs of a node do not suit a job that requests GPUs."""
    if gpus is None:
        return "node has no GPUs"
    if job.gpu_models and gpus.model not in job.gpu_models:
        return f"GPU model {gpus.model} is not allowed"
    if gpus.may_be_unhealthy:
        return "the cluster chooses the GPUs, and one of them is unhealthy"
    request = job.request
    if request.gpu_milli and gpus.time_sliced and not job.time_slicing:
        return "shares of its GPUs are time-sliced"
    for profile in sorted(request.mig):
        if not _offers(gpus, profile):
            return f"GPU model {gpus.model} offers no MIG profile {profile}"
    if request.gpu_memory_mib > (memory_mib := memory_per_gpu(gpus, request)):
        return f"GPU memory of {memory_mib if request.mig else gpus.memory_mib} MiB is too small"
    return None


def _offers(gpus: NodeGpus, profile: str) -> bool:
    """True if the GPU model supports the MIG profile, or one of these GPUs has such an instance."""
    if geometry := mig_geometry(gpus.model):
        return profile in geometry.profiles
    return any(profile == instance.profile for gpu in gpus.details for instance in gpu.mig or ())


def memory_per_gpu(gpus: NodeGpus, request: ResourceRequest) -> int:
    """MiB of each GPU or part of a GPU; of several MIG instances the smallest counts."""
    if not request.mig:
        # A share gets the same fraction of the device memory.
        return gpus.memory_mib * (request.gpu_milli or MILLI) // MILLI
    geometry = mig_geometry(gpus.model)
    if geometry is None:
        return 0
    slices = min(geometry.profiles[profile].memory_slices for profile in request.mig)
    return gpus.memory_mib * slices // geometry.memory_slices


def format_match(match: NodeMatch) -> str:
    """A label condition in words: `tier in gold, silver`, `no label spot`."""
    match match.operator:
        case MatchOperator.IN:
            return f"{match.key} in {', '.join(match.values)}"
        case MatchOperator.NOT_IN:
            return f"{match.key} not in {', '.join(match.values)}"
        case MatchOperator.EXISTS:
            return f"label {match.key}"
        case MatchOperator.DOES_NOT_EXIST:
            return f"no label {match.key}"
