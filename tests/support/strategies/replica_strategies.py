"""Hypothesis strategy for placing one job: where there is room, on GPUs that suit it."""

from __future__ import annotations

from hypothesis import strategies as st

from gpuplan.models.eligibility.free_resources import free_resources_by_node
from gpuplan.models.eligibility.node_eligibility import ineligibility
from gpuplan.models.placement import GpuShare, MigSlice, Placement, Replica
from gpuplan.models.units import MILLI, print_milli


@st.composite
def placements_of(draw, job, nodes, placements, only_if_it_fits=False):
    """All replicas of a job on suitable nodes, where other placements leave room if there is any."""
    suitable = [node for node in nodes if ineligibility(job, node) is None]
    if job.request.needs_gpu and suitable:
        model = draw(st.sampled_from(sorted({node.gpu_model for node in suitable})))
        suitable = [node for node in suitable if node.gpu_model == model]
    if not suitable:
        return None
    free = free_resources_by_node(nodes, placements)
    request, fullest_first, replicas = job.request, draw(st.booleans()), []
    wanted = request.gpus + bool(request.gpu_milli) + sum(request.mig.values())
    for _ in range(draw(st.integers(job.gang.minimum, job.gang.maximum))):
        every = [replica_for(job, node, free[node.name], fullest_first=fullest_first) for node in suitable]
        fitting = [
            replica for replica in every if len(replica.gpus) == wanted and free[replica.node].holds(replica)
        ]
        if only_if_it_fits and not fitting:
            return None
        replicas.append(draw(st.sampled_from(fitting or every)))
        free[replicas[-1].node].take(replicas[-1])
    return Placement(job=job.name, replicas=tuple(replicas))


def replica_for(job, node, free, *, fullest_first=False):
    """A replica that holds what the job asks for, on GPUs of one node that have room if there are enough."""
    request = job.request
    milli = MILLI if request.gpus else request.gpu_milli
    order = sorted(
        range(node.gpu_count),
        key=lambda index: (
            free.gpu_milli[index] < milli,
            free.gpu_milli[index] * (1 if fullest_first else -1),
        ),
    )
    return Replica(
        node=node.name,
        gpus=(
            *(GpuShare(index=index, milli=milli) for index in order[: request.gpus or bool(milli)]),
            *_instances(request, node, free),
        ),
        cpus=print_milli(request.cpu_milli),
        memory_mib=request.memory_mib,
        disk_mib=request.disk_mib,
        resources=request.resources,
    )


def _instances(request, node, free):
    """MIG instances of a node that a request could hold, unused ones first."""
    for profile, count in request.mig.items():
        present = [
            MigSlice(index=index, profile=profile, start=instance.start)
            for index, gpu in node.gpus.by_index.items()
            for instance in gpu.mig or ()
            if instance.profile == profile
        ]
        present.sort(key=lambda one: (one.index, one.start) in free.mig_used)
        yield from present[:count] or [MigSlice(index=0, profile=profile, start=0)]
