"""pose(snapshot, policy) → Problem: who may go where, what is free, and who is like whom."""

from __future__ import annotations

from collections import defaultdict
from typing import TYPE_CHECKING, Any, Final

from planner.models.occupancy import free_capacity
from planner.models.policy import completion_points, job_points
from planner.models.problem import FreeNode, JobClass, NodeGroup, Option, Problem, QueueBudget, Shape
from planner.models.queue import ALL_MODELS, queue_limits
from planner.models.selection import filters, refusal
from planner.quota_room import of_resource, own_usage
from planner.unmodelled import not_modelled

if TYPE_CHECKING:
    from planner.models.cluster import Node
    from planner.models.job import Job
    from planner.models.placement import Placement
    from planner.models.policy import Policy
    from planner.models.snapshot import Snapshot

_STANDARD_RESOURCES: Final = ("CPU cores", "memory in MiB", "disk in MiB")
"""With spaces, as no name in a document has: a countable resource cannot be taken for one of them."""


def pose(snapshot: Snapshot, policy: Policy) -> Problem:
    """Ask the question of one epoch: a pure function of snapshot and policy, whatever their order."""
    snapshot = snapshot.canonical()
    waiting = [
        job for job in snapshot.jobs if job.running is None and not job.held and not_modelled(job) is None
    ]
    nodes = [node for node in snapshot.cluster.nodes if node.schedulable]
    further = sorted({name for job in waiting for name in job.request.resources})
    groups = _groups(nodes, waiting)
    queues = tuple(queue.name for queue in snapshot.queues)
    return Problem(
        resources=(*_STANDARD_RESOURCES, *further),
        nodes=_free_nodes(nodes, snapshot.running_placements, further),
        groups=groups,
        classes=_classes(snapshot, policy, waiting, nodes, groups, further),
        queues=queues,
        budgets=_budgets(snapshot, queues),
    )


def _free_nodes(
    nodes: list[Node], running: tuple[Placement, ...], further: list[str]
) -> tuple[FreeNode, ...]:
    free = free_capacity(nodes, running)
    return tuple(
        FreeNode(
            name=node.name,
            gpus=tuple(max(0, milli) for milli in left.gpu_milli),
            amounts=tuple(
                max(0, amount)
                for amount in (
                    left.cpu_milli,
                    left.memory_mib,
                    left.disk_mib,
                    *(left.resources.get(name, 0) for name in further),
                )
            ),
        )
        for node in nodes
        for left in (free[node.name],)
    )


def _groups(nodes: list[Node], waiting: list[Job]) -> tuple[NodeGroup, ...]:
    """Nodes that `refusal` cannot tell apart for any waiting job."""
    selectors = sorted({item for job in waiting for item in job.node_selector.items()})
    members: dict[Any, list[int]] = defaultdict(list)
    for index, node in enumerate(nodes):
        gpus = node.gpus
        key = (
            (gpus.model, gpus.count, gpus.memory_mib) if gpus else ("", 0, 0),
            tuple(node.labels.get(label) == value for label, value in selectors),
            tuple(sorted((taint.key, taint.value, taint.effect) for taint in node.taints)),
        )
        members[key].append(index)
    return tuple(
        NodeGroup(gpu_model=key[0][0] or None, gpus=key[0][1], nodes=tuple(indices))
        for key, indices in sorted(members.items())
    )


def _shape(job: Job, further: list[str]) -> Shape:
    request = job.request
    return Shape(
        gpus=request.gpus,
        gpu_milli=request.gpu_milli,
        amounts=(
            request.cpu_milli,
            request.memory_mib,
            request.disk_mib,
            *(request.resources.get(name, 0) for name in further),
        ),
    )


def _classes(
    snapshot: Snapshot,
    policy: Policy,
    waiting: list[Job],
    nodes: list[Node],
    groups: tuple[NodeGroup, ...],
    further: list[str],
) -> tuple[JobClass, ...]:
    queue_index = {queue.name: index for index, queue in enumerate(snapshot.queues)}
    members: dict[Any, list[Job]] = defaultdict(list)
    for job in waiting:
        key = (
            job.queue,
            job_points(policy, job, snapshot.taken_at),
            job.gang.minimum,
            job.gang.maximum,
            tuple(sorted(job.gpu_models.items())),
            filters(job),
            _shape(job, further),
        )
        members[key].append(job)
    classes = []
    allowed_by_filter: dict[Any, dict[str | None, tuple[int, ...]]] = {}
    for key, jobs in members.items():
        job = jobs[0]
        if (allowed := allowed_by_filter.get(filters(job))) is None:
            allowed = allowed_by_filter[filters(job)] = _allowed_groups(job, nodes, groups)
        options = tuple(
            Option(model, allowed[model], completion_points(key[1], job, model, 1))
            for model in sorted(allowed, key=lambda model: (-job.speed_milli(model), model or ""))
        )
        if options:
            first = sorted(jobs, key=lambda job: (job.submitted_at, job.name))
            classes.append(
                JobClass(
                    jobs=tuple(job.name for job in first),
                    shape=_shape(job, further),
                    minimum=job.gang.minimum,
                    maximum=job.gang.maximum,
                    queue=queue_index[job.queue],
                    options=options,
                )
            )
    return tuple(classes)


def _allowed_groups(
    job: Job, nodes: list[Node], groups: tuple[NodeGroup, ...]
) -> dict[str | None, tuple[int, ...]]:
    """Groups the job may use, by GPU model; under None for a job without GPUs."""
    allowed: dict[str | None, list[int]] = defaultdict(list)
    for index, group in enumerate(groups):
        if refusal(job, nodes[group.nodes[0]]) is None:
            allowed[group.gpu_model if job.request.needs_gpu else None].append(index)
    return {model: tuple(indices) for model, indices in allowed.items()}


def _budgets(snapshot: Snapshot, queues: tuple[str, ...]) -> tuple[QueueBudget, ...]:
    models = sorted({model for queue in snapshot.queues for model in queue.gpu_models})
    position = {name: index for index, name in enumerate(queues)}
    usage = own_usage(snapshot, snapshot.running_placements)
    budgets = []
    for resource in (ALL_MODELS, *models):
        limits = queue_limits(snapshot.queues, resource)
        own = of_resource(usage, resource)
        total = limits.usage(own)
        budgets.append(
            QueueBudget(
                resource=resource,
                leaves_first=tuple(position[name] for name in limits.leaves_first),
                parent=tuple(
                    None if (above := limits.parent[name]) is None else position[above] for name in queues
                ),
                kept=tuple(limits.kept[name] for name in queues),
                limit=tuple(
                    None if (limit := limits.limit[name]) is None else max(limit, total[name])
                    for name in queues
                ),
                own=tuple(own.get(name, 0) for name in queues),
            )
        )
    return tuple(budgets)
