"""Position of a waiting job: its quotas, free capacity, the jobs ahead, and the jobs that hold either."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from gpuplan.models.eligibility.node_eligibility import ineligibility
from gpuplan.models.plan.reason import ReasonCode
from gpuplan.models.queue import ALL_MODELS, queue_limits
from gpuplan.models.units import MILLI, print_milli
from gpuplan.models.value.start_value import StartValue
from gpuplan.planner.analysis.quota_headroom import usage_of_resource
from gpuplan.planner.explain.answers.job import (
    CompetingJob,
    FreeBlock,
    QueuePosition,
    QuotaLevel,
    ResourceHolder,
    Urgency,
)
from gpuplan.planner.explain.queue import queue_order_key, queue_subtree
from gpuplan.planner.problem_builder.reclaiming import Reclaiming, min_requested_gpu_milli, queue_and_model_of
from gpuplan.planner.waiting.eligible_nodes import EligibilityIndex

if TYPE_CHECKING:
    from collections.abc import Iterator
    from datetime import datetime

    from gpuplan.models.job import Job
    from gpuplan.planner.analysis.quota_headroom import QuotaShortage
    from gpuplan.planner.explain.feasibility import PlanFeasibility
    from gpuplan.planner.explain.hypothesis import Hypothesis
    from gpuplan.planner.waiting.free_capacity import NodeRoom

_MOST_TOLD: Final = 5

_FOR_ROOM: Final = (
    ReasonCode.RESOURCES,
    ReasonCode.FRAGMENTED,
    ReasonCode.LAYOUT_BLOCKED,
    ReasonCode.DOMAIN,
    ReasonCode.NOT_CHOSEN,
)


def explain_position(question: Hypothesis, ground: PlanFeasibility) -> QueuePosition:
    """Gather the position of one waiting job."""
    job = question.job
    matching = [node.name for node in ground.cluster.nodes if ineligibility(job, node) is None]
    short = ground.shortage(question)
    reason = next((each.reason.code for each in ground.plan.waiting if each.job == job.name), None)
    lacking = short is not None or reason in _FOR_ROOM
    earnings = StartValue(ground.plan.snapshot, ground.plan.policy)
    ahead = list(_ahead(job, short, ground, earnings)) if lacking else []
    holders = list(_holders(question, set(matching), short, ground)) if lacking else []
    return QueuePosition(
        points=earnings.full_points(job),
        urgency=Urgency(**_urgency(job, earnings, ground.plan.snapshot.taken_at)),
        replicas_fitting=min(job.gang.minimum, sum(ground.counting.counts(question).values())),
        replicas_needed=job.gang.minimum,
        matching_nodes=len(matching),
        largest_free=_largest_free(matching, question, ground),
        quotas=tuple(_quotas(question, ground)),
        ahead=tuple(ahead[:_MOST_TOLD]),
        ahead_in_all=len(ahead),
        holders=tuple(holders[:_MOST_TOLD]),
        holders_in_all=len(holders),
    )


def _quotas(question: Hypothesis, ground: PlanFeasibility) -> Iterator[QuotaLevel]:
    """The limits from the job's queue up to the root, for all models together and for its eligible models."""
    job = question.job
    own = ground.quotas.own(0)
    models = sorted(job.gpu_models) or sorted({model for held in own.values() for model in held})
    for resource in (ALL_MODELS, *models):
        limits = queue_limits(question.queues, resource)
        usage = limits.usage(usage_of_resource(own, resource))
        needed = job.request.total_gpu_milli * job.gang.minimum
        name: str | None = job.queue
        while name is not None and needed > 0:
            used, limit, kept = usage[name], limits.limit[name], limits.kept[name]
            if limit is not None:
                yield QuotaLevel(
                    queue=name,
                    gpu_model=resource,
                    used_milli=print_milli(used),
                    limit_milli=print_milli(limit),
                    needed_milli=print_milli(needed),
                    binds=used + needed > limit,
                )
            needed = max(0, used + needed - kept) - max(0, used - kept)
            name = limits.parent[name]


def _largest_free(matching: list[str], question: Hypothesis, ground: PlanFeasibility) -> FreeBlock | None:
    """The node with the most whole GPUs free; ties go to the largest share, then CPUs, then memory."""
    if not matching:
        return None
    places = [ground.counting.offered(name, question) for name in matching]

    def room(place: NodeRoom) -> tuple[int, int, int, int]:
        free = place.free
        gpus = free.gpu_milli
        return gpus.count(MILLI), max(gpus, default=0), free.cpu_milli, free.memory_mib

    best = max(places, key=room)
    gpus, share, cpu_milli, memory_mib = room(best)
    return FreeBlock(
        node=best.node.name,
        gpus=gpus,
        largest_share_milli=print_milli(max(0, share)),
        cpu_milli=print_milli(max(0, cpu_milli)),
        memory_mib=max(0, memory_mib),
    )


def _urgency(job: Job, earnings: StartValue, now: datetime) -> dict[str, Any]:
    return {
        "priority": job.priority,
        "points": earnings.full_points(job),
        "gpu_milli": print_milli(job.request.total_gpu_milli * job.gang.maximum),
        "weight_milli": print_milli(job.weight_milli),
        "goal": earnings.worth.goal(job),
        "left_seconds": earnings.worth.seconds_left(job),
        "left_basis": earnings.worth.left_basis(job),
        "served_gpu_seconds": round(earnings.worth.service(job)),
        "rho": round(earnings.worth.rho(job), 4),
        "waited_seconds": job.waiting_seconds(now),
    }


def _ahead(
    job: Job, short: QuotaShortage | None, ground: PlanFeasibility, earnings: StartValue
) -> Iterator[CompetingJob]:
    """
    Waiting jobs that are ahead of a job and wait for the same thing, in order.

    Ahead are jobs of higher priority, where priorities are tiers, and then jobs with more points per GPU. The
    same thing is the quota of the queue that blocks the job, or else capacity on nodes that both may use.
    """
    plan = ground.plan
    jobs, own = plan.snapshot.job_by_name, queue_order_key(job, plan, earnings)
    reasons = {each.job: each.reason for each in plan.waiting}
    waiting = [jobs[name] for name in reasons if name != job.name and jobs[name].running is None]
    better = [other for other in waiting if queue_order_key(other, plan, earnings) < own and not other.held]
    matcher = EligibilityIndex(ground.cluster.nodes, [job, *better])
    mine = set(matcher.match(job).nodes)
    shared: dict[tuple[int, ...], bool] = {}
    found = []
    for other in better:
        reason = reasons[other.name]
        if short is not None:
            same = reason.code is ReasonCode.WAITING_FOR_QUOTA and reason.numbers.get("queue") == short.queue
        else:
            theirs = matcher.match(other).nodes
            if theirs not in shared:
                shared[theirs] = not mine.isdisjoint(theirs)
            same = reason.code in _FOR_ROOM and shared[theirs]
        if same:
            found.append(other)
    for other in sorted(
        found, key=lambda each: (queue_order_key(each, plan, earnings), each.submitted_at, each.name)
    ):
        yield CompetingJob(
            job=other.name, queue=other.queue, **_urgency(other, earnings, plan.snapshot.taken_at)
        )


def _holders(
    question: Hypothesis, matching: set[str], short: QuotaShortage | None, ground: PlanFeasibility
) -> Iterator[ResourceHolder]:
    """Jobs that run once the plan is applied and hold the quota or the nodes, by expected end."""
    plan = ground.plan
    family = queue_subtree(plan, short.queue) if short else frozenset[str]()
    reclaiming = Reclaiming(plan.snapshot, plan.policy)
    future = ground.outlook.future
    rules = plan.policy.disruption
    stays = [future.stays[name] for name in ground.placed]
    for stay in sorted(stays, key=lambda each: (each.end, each.job.name)):
        job = stay.job
        there = [each for each in stay.replicas if short or each.node in matching]
        milli = sum(each.quota_milli for each in there)
        if (short and job.queue not in family) or not there or (question.job.request.needs_gpu and not milli):
            continue
        taken = (
            question.job.queue,
            min_requested_gpu_milli(question.job),
            queue_and_model_of(job, plan.snapshot),
        )
        above = question.job.priority >= job.priority + rules.priority_gap
        yields = above or (job.running is not None and reclaiming.may_take(*taken))
        yield ResourceHolder(
            job=job.name,
            queue=job.queue,
            user=job.user,
            priority=job.priority,
            gpu_milli=print_milli(milli),
            nodes=tuple(sorted({each.node for each in there})),
            ends_at=future.instant_at(stay.end),
            may_be_stopped=rules.preempt and yields and rules.may_disturb(job, plan.snapshot.taken_at),
        )
