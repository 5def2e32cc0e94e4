"""
The rule about quotas: Kueue's arithmetic as in `models.queue`, in an independent implementation.

Amounts are thousandths of GPUs or CPU cores, or MiB of memory.
"""

from __future__ import annotations

from collections import defaultdict
from operator import add
from typing import TYPE_CHECKING

from gpuplan.models.plan.violation import Rule, Violation
from gpuplan.models.queue import ALL_MODELS, CPUS, MEMORY, Queue
from gpuplan.models.verifier.job_changes import Change
from gpuplan.models.verifier.messages import format_amount, format_gpus
from gpuplan.models.verifier.quota_usage import (
    children_first,
    held_of_resource,
    kept_and_limit,
    usage_of_resource,
)

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    from gpuplan.models.placement import Replica
    from gpuplan.models.verifier.context import Context


def quota_limits(case: Context) -> Iterator[Violation]:
    """
    No queue, and no queue above it, exceeds its limit of any resource with quotas: all GPUs, one GPU model,
    CPU cores, memory.

    A queue with running jobs that already exceed its limit may stay there, but nothing is added, and released
    quota is not reused. A migrated job keeps its quota; one that resumes later does not.
    """
    tree = children_first(case.snapshot.queues)
    for resource in limited_resources(tree):
        kept, limit = kept_and_limit(tree, resource)
        used = usage_up_the_tree(tree, kept, usage_of_resource(case.usage_after, resource))
        if all(used[queue.name] <= limit[queue.name] for queue in tree):
            continue
        used_by_staying = usage_up_the_tree(tree, kept, held_before_and_after(case, resource))
        for queue in tree:
            # A quota may have been cut below what runs: that may stay, and nothing may be added to it.
            allowed = max(limit[queue.name], used_by_staying[queue.name])
            if used[queue.name] > allowed:
                found, most = (quota_text(amount, resource) for amount in (used[queue.name], int(allowed)))
                yield Violation(Rule.QUOTA, quota_subject(queue, resource), found, most)


def limited_resources(queues: Iterable[Queue]) -> tuple[str, ...]:
    """All GPUs, each GPU model with a quota, CPU cores and memory."""
    models = {model for queue in queues for model in queue.gpu_models}
    return (ALL_MODELS, *sorted(models), CPUS, MEMORY)


def quota_subject(queue: Queue, resource: str) -> str:
    """A queue, with the GPU model if the limit is that of one."""
    return f"queue {queue.name}" + (f" on {resource}" if resource not in (ALL_MODELS, CPUS, MEMORY) else "")


def quota_text(amount: int, resource: str) -> str:
    """An amount of a resource in words."""
    return format_amount(amount, resource) if resource in (CPUS, MEMORY) else format_gpus(amount)


def held_before_and_after(case: Context, resource: str) -> dict[str, int]:
    """What running jobs directly in each queue hold of a resource both before and after the plan."""
    held: dict[str, int] = defaultdict(int)
    for each in case.judged_placements:
        if each.job is None:
            continue
        if each.change is Change.KEPT:
            held[each.job.queue] += amount_of_replicas(case, each.placement.replicas, resource)
        elif each.job.running and each.change is not Change.STARTED:
            before = amount_of_replicas(case, each.job.running.replicas, resource)
            after = amount_of_replicas(case, each.placement.replicas, resource)
            held[each.job.queue] += min(before, after)
    return held


def amount_of_replicas(case: Context, replicas: Iterable[Replica], resource: str) -> int:
    """What replicas hold of a resource."""
    total = 0
    for replica in replicas:
        node = case.nodes.get(replica.node)
        total += held_of_resource(replica, node.gpu_model if node else None, resource)
    return total


def usage_up_the_tree(tree: list[Queue], kept: Mapping[str, float], own: Mapping[str, int]) -> dict[str, int]:
    """What each queue uses: its own, and what its children do not keep."""
    usages = usages_up_the_tree(tree, kept, {name: [amount] for name, amount in own.items()}, 1)
    return {name: amount for name, (amount,) in usages.items()}


def usages_up_the_tree(
    tree: list[Queue], kept: Mapping[str, float], own: Mapping[str, list[int]], cases: int
) -> dict[str, list[int]]:
    """The same in several cases: a list for each queue, which is 0 in all of them if not given."""
    usages = {queue.name: own.get(queue.name) or [0] * cases for queue in tree}
    for queue in tree:
        if queue.parent is not None:
            keeps = int(kept[queue.name])
            lent = [max(0, usage - keeps) for usage in usages[queue.name]]
            usages[queue.parent] = list(map(add, usages[queue.parent], lent))
    return usages
