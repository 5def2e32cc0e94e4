"""The terms of the objective for unmet entitlements of queues, in points."""

from __future__ import annotations

from collections import defaultdict
from typing import TYPE_CHECKING, TypeAlias

from gpuplan.models.queue import ALL_MODELS
from gpuplan.models.units import MILLI
from gpuplan.models.verifier.quota_usage import subtree_totals, usage_of_resource

if TYPE_CHECKING:
    from gpuplan.models.verifier.context import Context

    Owed: TypeAlias = dict[tuple[str, str], int]
    """Thousandths of GPUs by queue and resource."""


def guarantee_term(case: Context) -> int:
    """
    The price of each GPU (rounded up) missing from the guarantee of a queue and all queues below it.

        missing = max(0, min(guarantee, demand) − held)

    for all GPUs, and for each model. Demand is what its running jobs held, plus the requests of those of its
    pending jobs with a minimum size that fits within the guarantee.
    """
    queues = case.snapshot.queues
    resources = {ALL_MODELS, *(model for queue in queues for model in queue.gpu_models)}
    owed = {
        (queue.name, resource): quota.guarantee
        for queue in queues
        for resource in resources
        if (quota := queue.quota_for(resource)) and quota.guarantee
    }
    return -case.policy.owed(case.policy.prices.guarantee) * _missing(case, owed)


def nominal_quota_term(case: Context) -> int:
    """
    The same for nominal quotas that exceed the guarantee and are contested.

    A quota is contested while a pending job may reclaim what other queues borrow: quotas of its own queue, of
    queues above it that have room for it, and of the borrowing queues.
    """
    price, entitlements = case.policy.owed(case.policy.prices.nominal), case.entitlements
    if not price:
        return 0
    owed = {
        key: entitled
        for key in entitlements.contested
        if (entitled := entitlements.entitled(*key)) > entitlements.guarantee(*key)
    }
    return -price * _missing(case, owed)


def _missing(case: Context, owed: Owed) -> int:
    """Whole GPUs by which queues hold less than their entitlement, as far as they have demand."""
    if not owed:
        return 0
    queues, missing = case.snapshot.queues, 0
    for resource in sorted({resource for _, resource in owed}):
        held = subtree_totals(queues, usage_of_resource(case.usage_after, resource))
        before = subtree_totals(queues, usage_of_resource(case.usage_before, resource))
        for (queue, counted), amount in owed.items():
            if counted == resource:
                asked = subtree_totals(queues, _asked(case, resource, amount))
                due = min(amount, before[queue] + asked[queue]) - held[queue]
                missing += -(-max(0, due) // MILLI)
    return missing


def _asked(case: Context, resource: str, amount: int) -> dict[str, int]:
    """Maximum usage of a resource by pending jobs directly in each queue, if their minimum fits an amount."""
    asked: dict[str, int] = defaultdict(int)
    for job in case.snapshot.waiting:
        usable = resource == ALL_MODELS or not job.gpu_models or resource in job.gpu_models
        milli = job.request.total_gpu_milli
        if usable and not job.held and milli * job.gang.minimum <= amount:
            asked[job.queue] += milli * job.gang.maximum
    return asked
