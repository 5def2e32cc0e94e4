"""The question that a snapshot asks, in one line."""

from __future__ import annotations

from gpuplan.models.queue import ALL_MODELS, queue_limits
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
    held = {job.queue: job.request.total_gpu_milli * job.gang.minimum}
    every = (queue_limits(snapshot.queues, resource) for resource in (ALL_MODELS, gpu_model))
    return all(
        limit is None or limits.usage(held)[name] <= limit
        for limits in every
        for name, limit in limits.limit.items()
    )
