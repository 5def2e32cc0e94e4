"""Position of a waiting job: its quotas, free capacity, the jobs ahead, and the jobs that hold either."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from gpuplan.models.eligibility.node_eligibility import refusal
from gpuplan.models.plan.reason import ReasonCode
from gpuplan.models.queue import ALL_MODELS, queue_limits
from gpuplan.models.units import MILLI, print_milli
from gpuplan.models.value.start_value import Earnings
from gpuplan.planner.analysis.quota_headroom import of_resource
from gpuplan.planner.explain.answers.contention import (
    FreeBlock,
    Holder,
    QuotaStanding,
    Rival,
    Standing,
    Urgency,
)
from gpuplan.planner.explain.queue import before, below
from gpuplan.planner.problem_builder.reclaiming import Reclaiming, holding_of, least_asked
from gpuplan.planner.waiting.eligible_nodes import Matcher

if TYPE_CHECKING:
    from collections.abc import Iterator
    from datetime import datetime

    from gpuplan.models.job import Job
    from gpuplan.planner.analysis.quota_headroom import QuotaShortage
    from gpuplan.planner.explain.feasibility import Ground
    from gpuplan.planner.explain.hypothesis import Question
    from gpuplan.planner.waiting.free_capacity import Place

_MOST_TOLD: Final = 5

_FOR_ROOM: Final = (
    ReasonCode.RESOURCES,
    ReasonCode.FRAGMENTED,
    ReasonCode.LAYOUT_BLOCKED,
    ReasonCode.DOMAIN,
    ReasonCode.NOT_CHOSEN,
)


def standing(question: Question, ground: Ground) -> Standing:
    """Gather the position of one waiting job."""
    job = question.job
    matching = [node.name for node in ground.cluster.nodes if refusal(job, node) is None]
    short = ground.shortage(question)
    reason = next((each.reason.code for each in ground.plan.waiting if each.job == job.name), None)
    lacking = short is not None or reason in _FOR_ROOM
    earnings = Earnings(ground.plan.snapshot, ground.plan.policy)
    ahead = list(_ahead(job, short, ground, earnings)) if lacking else []
    holders = list(_holders(question, set(matching), short, ground)) if lacking else []
    return Standing(
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


def _quotas(question: Question, ground: Ground) -> Iterator[QuotaStanding]:
    """The limits from the job's queue up to the root, for all models together and for its eligible models."""
    job = question.job
    own = ground.quotas.own(0)
    models = sorted(job.gpu_models) or sorted({model for held in own.values() for model in held})
    for resource in (ALL_MODELS, *models):
        limits = queue_limits(question.queues, resource)
        usage = limits.usage(of_resource(own, resource))
        needed = job.request.total_gpu_milli * job.gang.minimum
        name: str | None = job.queue
        while name is not None and needed > 0:
            used, limit, kept = usage[name], limits.limit[name], limits.kept[name]
            if limit is not None:
                yield QuotaStanding(
                    queue=name,
                    gpu_model=resource,
                    used_milli=print_milli(used),
                    limit_milli=print_milli(limit),
                    needed_milli=print_milli(needed),
                    binds=used + needed > limit,
                )
            needed = max(0, used + needed - kept) - max(0, used - kept)
            name = limits.parent[name]


def _largest_free(matching: list[str], question: Question, ground: Ground) -> FreeBlock | None:
    """The node with the most whole GPUs free; ties go to the largest share, then CPUs, then memory."""
    if not matching:
        return None
    places = [ground.counting.offered(name, question) for name in matching]

    def room(place: Place) -> tuple[int, int, int, int]:
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


def _urgency(job: Job, earnings: Earnings, now: datetime) -> dict[str, Any]:
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
        "waited_seconds": job.waited(now),
    }


def _ahead(job: Job, short: QuotaShortage | None, ground: Ground, earnings: Earnings) -> Iterator[Rival]:
    """
    Waiting jobs that are ahead of a job and wait for the same thing, in order.

    Ahead are jobs of higher priority, where priorities are tiers, and then jobs with more points per GPU. The
    same thing is the quota of the queue that blocks the job, or else capacity on nodes that both may use.
    """
    plan = ground.plan
    jobs, own = plan.snapshot.job_by_name, before(job, plan, earnings)
    reasons = {each.job: each.reason for each in plan.waiting}
    waiting = [jobs[name] for name in reasons if name != job.name and jobs[name].running is None]
    better = [other for other in waiting if before(other, plan, earnings) < own and not other.held]
    matcher = Matcher(ground.cluster.nodes, [job, *better])
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
    for other in sorted(found, key=lambda each: (before(each, plan, earnings), each.submitted_at, each.name)):
        yield Rival(job=other.name, queue=other.queue, **_urgency(other, earnings, plan.snapshot.taken_at))


def _holders(
    question: Question, matching: set[str], short: QuotaShortage | None, ground: Ground
) -> Iterator[Holder]:
    """Jobs that run once the plan is applied and hold the quota or the nodes, by expected end."""
    plan = ground.plan
    family = below(plan, short.queue) if short else frozenset[str]()
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
        taken = question.job.queue, least_asked(question.job), holding_of(job, plan.snapshot)
        above = question.job.priority >= job.priority + rules.priority_gap
        yields = above or (job.running is not None and reclaiming.may_take(*taken))
        yield Holder(
            job=job.name,
            queue=job.queue,
            user=job.user,
            priority=job.priority,
            gpu_milli=print_milli(milli),
            nodes=tuple(sorted({each.node for each in there})),
            ends_at=future.moment(stay.end),
            may_be_stopped=rules.preempt and yields and rules.may_disturb(job, plan.snapshot.taken_at),
        )
