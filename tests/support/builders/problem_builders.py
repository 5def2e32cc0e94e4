"""The question that a snapshot asks, in one line, and places for its jobs, legal or not."""

from __future__ import annotations

from gpuplan.models.placement import GpuShare, MigSlice, Replica
from gpuplan.models.queue import ALL_MODELS, CPUS, MEMORY, queue_limits
from gpuplan.models.units import print_milli
from gpuplan.planner.problem_builder import build_problem
from tests.support.builders import build


def posed(policy=None, **more):
    return build_problem(build.snapshot(**more), build.by_value(**policy or {}))


def names(problem, groups):
    return {problem.nodes[index].name for group in groups for index in problem.groups[group].nodes}


def allowed(problem, number=0):
    """Names of the nodes that a class may use."""
    return names(problem, [group for option in problem.classes[number].options for group in option.groups])


def quotas_allow(snapshot, job, gpu_model):
    """Whether a job, as small as it may be, keeps all limits if no other is there."""
    request, count = job.request, job.gang.minimum
    asked = dict.fromkeys((ALL_MODELS, gpu_model), request.total_gpu_milli * count)
    asked |= {CPUS: request.cpu_milli * count, MEMORY: request.memory_mib * count}
    every = ((queue_limits(snapshot.queues, resource), amount) for resource, amount in asked.items())
    return all(
        limit is None or limits.usage({job.queue: amount})[name] <= limit
        for limits, amount in every
        for name, limit in limits.limit.items()
    )


def replica_on(job, node):
    """What a job asks for on the first healthy GPUs of a node, as far as there are, free or not."""
    request = job.request
    healthy = [index for index, gpu in node.gpus.by_index.items() if gpu.healthy] if node.gpus else []
    milli = 1000 if request.gpus else request.gpu_milli
    shares = [GpuShare(index=index, milli=milli) for index in healthy[: request.gpus or bool(milli)]]
    profiles = [profile for profile, count in request.mig.items() for _ in range(count)]
    slices = [MigSlice(index=healthy[0], profile=profile, start=0) for profile in profiles if healthy]
    return Replica(
        node=node.name,
        gpus=(*shares, *slices),
        cpus=print_milli(request.cpu_milli),
        memory_mib=request.memory_mib,
        disk_mib=request.disk_mib,
        resources=request.resources,
    )
