"""The rule about quotas: Kueue's arithmetic as in `models.queue`, in an independent implementation."""

from __future__ import annotations

from collections import defaultdict
from math import inf
from typing import TYPE_CHECKING

from gpuplan.models.plan.violation import Rule, Violation
from gpuplan.models.queue import ALL_MODELS
from gpuplan.models.verifier.job_changes import Change
from gpuplan.models.verifier.messages import format_gpus
from gpuplan.models.verifier.quota_usage import children_first, held_gpu_milli, usage_of_resource

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    from gpuplan.models.placement import Replica
    from gpuplan.models.queue import Queue
    from gpuplan.models.verifier.context import Context


def quota_limits(case: Context) -> Iterator[Violation]:
    """
    No queue, and no queue above it, exceeds its limit, for all GPUs and for each model with quotas.

    A queue with running jobs that already exceed its limit may stay there, but nothing is added, and released
    quota is not reused. A migrated job keeps its quota; one that resumes later does not.
    """
    tree = children_first(case.snapshot.queues)
    models = sorted({model for queue in tree for model in queue.gpu_models})
    for resource in (ALL_MODELS, *models):
        kept, limit = kept_and_limit(tree, resource)
        used = usage_up_the_tree(tree, kept, usage_of_resource(case.usage_after, resource))
        if all(used[queue.name] <= limit[queue.name] for queue in tree):
            continue
        used_by_staying = usage_up_the_tree(tree, kept, held_before_and_after(case, resource))
        for queue in tree:
            allowed = max(limit[queue.name], used_by_staying[queue.name])
            if used[queue.name] > allowed:
                subject = f"queue {queue.name}" + (f" on {resource}" if resource != ALL_MODELS else "")
                found = format_gpus(used[queue.name])
                yield Violation(Rule.QUOTA, subject, found, format_gpus(int(allowed)))


def held_before_and_after(case: Context, resource: str) -> dict[str, int]:
    """Thousandths of GPUs that running jobs directly in each queue hold both before and after the plan."""
    held: dict[str, int] = defaultdict(int)
    for each in case.judged_placements:
        if each.job is None:
            continue
        if each.change is Change.KEPT:
            held[each.job.queue] += milli_of_replicas(case, each.placement.replicas, resource)
        elif each.job.running and each.change is not Change.STARTED:
            before = milli_of_replicas(case, each.job.running.replicas, resource)
            after = milli_of_replicas(case, each.placement.replicas, resource)
            held[each.job.queue] += min(before, after)
    return held


def milli_of_replicas(case: Context, replicas: Iterable[Replica], resource: str) -> int:
    """Thousandths of GPUs that replicas hold, of one model or of all."""
    return sum(
        held_gpu_milli(replica)
        for replica in replicas
        if (node := case.nodes.get(replica.node))
        and node.gpu_model
        and resource in (ALL_MODELS, node.gpu_model)
    )


def kept_and_limit(tree: list[Queue], resource: str) -> tuple[dict[str, float], dict[str, float]]:
    """Quota that each queue does not lend, and its limit; infinite without a limit."""
    lent: dict[str | None, list[float]] = defaultdict(list)  # by children, to the key
    kept: dict[str, float] = {}
    limit: dict[str, float] = {}
    for queue in tree:
        quota, from_children = queue.quota_for(resource), lent[queue.name]
        if quota is None:
            subtree = sum(from_children) if from_children else inf
            lending, borrowing, kept[queue.name] = inf, inf, 0
        else:
            # A child without a limit has no quota to lend.
            subtree = quota.nominal + sum(part for part in from_children if part < inf)
            lending = inf if quota.lending_limit is None else quota.lending_limit
            borrowing = inf if quota.borrowing_limit is None else quota.borrowing_limit
            kept[queue.name] = max(0, subtree - lending)
        lent[queue.parent].append(min(subtree, lending))
        limit[queue.name] = subtree if queue.parent is None else subtree + borrowing
    return kept, limit


def usage_up_the_tree(tree: list[Queue], kept: Mapping[str, float], own: Mapping[str, int]) -> dict[str, int]:
    """Thousandths of GPUs that each queue uses: its own, and those that its children do not keep."""
    usage = {queue.name: own.get(queue.name, 0) for queue in tree}
    for queue in tree:
        if queue.parent is not None:
            usage[queue.parent] += int(max(0, usage[queue.name] - kept[queue.name]))
    return usage
