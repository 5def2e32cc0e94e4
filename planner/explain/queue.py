"""explain_queue(plan, name) → QueueExplanation: its quotas and usage, and its waiting jobs."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from typing import TYPE_CHECKING, Final

from pydantic import Field

from gpuplan.models.base import Noun
from gpuplan.models.plan.reason import ReasonCode
from gpuplan.models.policy.policy import PriorityOrder
from gpuplan.models.queue import (
    Queue,
    Quota,
    QuotaResource,
    is_gpu_model,
    queue_and_below,
    queue_limits,
    quota_resources,
    resource_name,
)
from gpuplan.models.units import MILLI, Count, Milli, Name, QuotaMilli, Timestamp, print_milli
from gpuplan.models.value.start_value import StartValue
from gpuplan.planner.analysis.quota_headroom import usage_of_resource
from gpuplan.planner.explain.feasibility import PlanFeasibility
from gpuplan.planner.explain.verify_trial import TrialVerifier
from gpuplan.planner.problem_builder.quotas import Reclaiming, guaranteed_demand, queue_and_model_of
from gpuplan.planner.text_format import (
    format_count,
    quota_number,
)

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator

    from gpuplan.models.job import Job
    from gpuplan.models.plan.plan import Plan


class QueueQuotaUse(Noun):
    """One quota of a queue; usage includes all queues below it."""

    resource: QuotaResource = "gpus"
    """What it counts: GPUs, CPU cores, or memory in MiB."""
    gpu_model: str
    """Empty for all models together."""
    nominal_milli: QuotaMilli = Field(alias="nominal")
    """The queue's own nominal quota."""
    limit_milli: QuotaMilli | None = Field(alias="limit")
    """The most it may use; None means no limit."""
    used_milli: QuotaMilli = Field(alias="used")
    borrowed_milli: QuotaMilli = Field(alias="borrowed")
    """Part of `used` beyond the quota of the queue and the queues below it."""
    unused_milli: QuotaMilli = Field(alias="unused")
    """Unused part of that quota; other queues may have borrowed it."""
    guarantee_milli: Milli | None = Field(default=None, alias="guarantee")
    missing_milli: Milli = Field(default=0, alias="missing")
    """Part of the guarantee that the queue's jobs ask for and do not get."""


class WaitingFor(Noun):
    """Jobs of a queue that wait for one reason."""

    code: ReasonCode
    jobs: Count
    gpu_milli: Milli = Field(alias="gpus")
    """Sum of their minimum requests."""


class Reclaimable(Noun):
    """A running job that may be preempted to reclaim quota for this queue, whatever its priority."""

    job: Name
    queue: Name
    gpu_milli: Milli = Field(alias="gpus")


class QueueExplanation(Noun):
    """Explanation of one queue of a plan."""

    plan_id: str
    """Id of the plan."""
    epoch: Timestamp
    """The instant that the plan is for."""
    queue: Name
    """Name of the queue."""
    parent: Name | None
    """The queue above it; None at the top."""
    children: tuple[Name, ...]
    """The queues directly below it."""
    quotas: tuple[QueueQuotaUse, ...]
    """What it may hold and holds: over all GPU models, then of each that has a quota of its own."""
    running: Count
    """Jobs of the queue and of the queues below it; the fields that follow count the same way."""
    started: Count
    """Running jobs that the plan starts."""
    waiting: tuple[WaitingFor, ...] = ()
    """Most jobs first."""
    guarantee_note: str = ""
    """Why the guarantee is not met; empty if it is met."""
    may_be_reclaimed: bool = False
    """
    True if the queue holds more than its nominal quota and its guarantee, and another queue has one of these.

    Queues below what they are entitled to may then reclaim the excess, whatever the priorities.
    """
    reclaimable: tuple[Reclaimable, ...] = ()
    """The first few, by name."""
    reclaimable_in_all: Count = 0
    """How many such jobs there are."""
    one_more: Name | None = None
    """First job in the waiting order that would start with one more GPU of quota; None if none would."""
    one_more_points: int | None = None
    """What that job would bring, in objective points."""
    one_more_tried: Count = 0
    """Number of jobs tried: the first that wait for quota; 0 for a queue without a quota of its own."""


_MOST_TOLD: Final = 5

_MOST_ASKED: Final = 30
"""Number of waiting jobs that one more GPU of quota is tried for, first in the waiting order."""


def _others_own(plan: Plan, family: Collection[str]) -> bool:
    """True if a queue outside the family has a quota or a guarantee: only such a queue reclaims."""
    return any(
        quota.nominal or quota.guarantee
        for queue in plan.snapshot.queues
        if queue.name not in family
        for quota in (*([queue.quota] if queue.quota else ()), *queue.gpu_models.values())
    )


def explain_queue(plan: Plan, name: str) -> QueueExplanation:
    """Gather what a plan says about a queue of its snapshot."""
    ground = PlanFeasibility(plan)
    queue = next(each for each in plan.snapshot.queues if each.name == name)
    family = frozenset(queue_and_below(name, plan.snapshot.child_queues))
    reasons = {each.job: each.reason for each in plan.waiting}
    waiting = [job for job in plan.snapshot.jobs if job.queue in family and job.name in reasons]
    running = [job for job in plan.snapshot.jobs if job.queue in family and job.name in ground.placed]
    quotas = tuple(_quotas(queue, waiting, ground))
    reclaiming = Reclaiming(plan.snapshot, plan.rules, ground.outlook.holds.usage(0))
    reclaimable = list(_reclaimable(plan, queue, family, reclaiming, ground))
    candidates = _short_of_quota(queue, waiting, ground)
    starter = _one_more(queue, candidates, ground)
    kinds = Counter(reasons[job.name].code for job in waiting)
    short = any(quota.missing_milli for quota in quotas)
    return QueueExplanation(
        plan_id=plan.plan_id,
        epoch=plan.epoch,
        queue=name,
        parent=queue.parent,
        children=tuple(sorted(each.name for each in plan.snapshot.queues if each.parent == name)),
        quotas=quotas,
        running=len(running),
        started=sum(job.running is None for job in running),
        waiting=tuple(
            WaitingFor(
                code=code,
                jobs=jobs,
                gpu_milli=print_milli(
                    sum(
                        job.request.total_gpu_milli * job.gang.minimum
                        for job in waiting
                        if reasons[job.name].code is code
                    )
                ),
            )
            for code, jobs in sorted(kinds.items(), key=lambda each: (-each[1], each[0]))
        ),
        guarantee_note=_note(kinds) if short else "",
        may_be_reclaimed=reclaiming.borrows(name) and _others_own(plan, family),
        reclaimable=tuple(reclaimable[:_MOST_TOLD]),
        reclaimable_in_all=len(reclaimable),
        one_more=starter[0] if starter else None,
        one_more_points=starter[1] if starter else None,
        one_more_tried=len(candidates),
    )


def _quotas(queue: Queue, waiting: list[Job], ground: PlanFeasibility) -> Iterator[QueueQuotaUse]:
    family = queue_and_below(queue.name, ground.plan.snapshot.child_queues)
    for resource in quota_resources((queue,)):
        quota, gpu_quota = queue.limits_for(resource), queue.quota_for(resource)
        limits = queue_limits(ground.plan.snapshot.queues, resource)
        own = usage_of_resource(ground.outlook.holds.usage(0), resource)
        used, limit = limits.usage(own)[queue.name], limits.limit[queue.name]
        # A limit is the quota of the subtree plus what it may borrow; a root borrows nothing.
        borrowing = quota.borrowing_limit if quota and queue.parent else 0
        subtree = quota.nominal if quota else 0
        if limit is not None:
            subtree = limit - (borrowing or 0)
        held = sum(milli for name, milli in own.items() if name in family)
        guarantee = gpu_quota.guarantee if gpu_quota else None
        yield QueueQuotaUse(
            resource=resource_name(resource),
            gpu_model=resource if is_gpu_model(resource) else "",
            nominal_milli=quota_number(quota.nominal if quota else 0, resource),
            limit_milli=None if limit is None else quota_number(limit, resource),
            used_milli=quota_number(used, resource),
            borrowed_milli=quota_number(
                max(0, used - subtree) if quota or limit is not None else 0, resource
            ),
            unused_milli=quota_number(max(0, subtree - used), resource),
            guarantee_milli=None if guarantee is None else print_milli(guarantee),
            missing_milli=print_milli(_missing(gpu_quota, resource, waiting, held)),
        )


def _missing(quota: Quota | None, resource: str, waiting: list[Job], held: int) -> int:
    """Unmet part of a guarantee; demand is what running jobs hold plus what waiting jobs could hold."""
    if quota is None or quota.guarantee is None:
        return 0
    asked = sum(guaranteed_demand(job, resource, quota.guarantee) for job in waiting)
    return max(0, min(quota.guarantee, held + asked) - held)


def _note(kinds: Counter[ReasonCode]) -> str:
    """The reason that most of the queue's jobs wait for, in words."""
    if not kinds:
        return "it has no waiting job that could use more"
    code, jobs = min(kinds.items(), key=lambda each: (-each[1], each[0]))
    return f"{format_count(jobs, 'job')} of it wait{'s' if jobs == 1 else ''}, most for {code.value}"


def _reclaimable(
    plan: Plan, queue: Queue, family: frozenset[str], reclaiming: Reclaiming, ground: PlanFeasibility
) -> Iterator[Reclaimable]:
    rules = plan.rules.disruption
    if not rules.preempt:
        return
    for job in plan.snapshot.jobs:
        # One thousandth of a GPU asks whether the queue may reclaim anything at all.
        if job.queue in family or not reclaiming.may_take(
            queue.name, 1, queue_and_model_of(job, plan.snapshot)
        ):
            continue
        if job.name in ground.placed and rules.may_disturb(job, plan.snapshot.taken_at):
            milli = sum(replica.quota_milli for replica in ground.placed[job.name].replicas)
            yield Reclaimable(job=job.name, queue=job.queue, gpu_milli=print_milli(milli))


def _short_of_quota(queue: Queue, waiting: list[Job], ground: PlanFeasibility) -> list[Job]:
    """The first jobs in order that wait for a quota of GPUs; none for a queue without one of its own."""
    plan = ground.plan
    if queue.quota is None:
        return []
    earnings = StartValue(plan.snapshot, plan.policy)
    short = {
        each.job
        for each in plan.waiting
        if each.reason.code in _FOR_QUOTA and "resource" not in each.reason.numbers
    }
    asked = [job for job in waiting if job.name in short]
    return sorted(asked, key=lambda job: (queue_order_key(job, plan, earnings), job.name))[:_MOST_ASKED]


def queue_order_key(job: Job, plan: Plan, earnings: StartValue) -> tuple[float, float]:
    """Sort key of waiting jobs, first to start first: priority where priorities are tiers, points per GPU."""
    tiers = plan.policy.priority.order is PriorityOrder.TIERS
    return (-job.priority if tiers else 0, -earnings.points_per_gpu(job))


def _one_more(queue: Queue, asked: list[Job], ground: PlanFeasibility) -> tuple[str, int] | None:
    """The first job that starts with one more GPU of quota, and the points it brings."""
    plan = ground.plan
    if not asked or queue.quota is None:
        return None
    more = queue.quota.model_copy(update={"nominal": queue.quota.nominal + MILLI})
    queues = tuple(
        each.model_copy(update={"quota": more}) if each is queue else each for each in plan.snapshot.queues
    )
    judge = TrialVerifier(ground)
    for job in asked:
        question = replace(ground.question(job), queues=queues)
        start = judge.start(question)
        if start is not None and start.points > 0:
            return job.name, start.points
    return None


_FOR_QUOTA: Final = (ReasonCode.WAITING_FOR_QUOTA, ReasonCode.EXCEEDS_MAX_QUOTA)
