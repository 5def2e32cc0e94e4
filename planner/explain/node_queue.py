"""
Explanations of a node and of a queue.

explain_node(plan, name) → NodeExplanation: its jobs, its free resources, and the waiting jobs near it.
explain_queue(plan, name) → QueueExplanation: its quotas and usage, and its waiting jobs.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final

from gpuplan.models.cluster import rack_of
from gpuplan.models.eligibility.node_eligibility import eligibility_key, ineligibility
from gpuplan.models.placement import GpuShare
from gpuplan.models.plan.reason import ReasonCode
from gpuplan.models.policy.policy import PriorityOrder
from gpuplan.models.queue import ALL_MODELS, queue_limits
from gpuplan.models.units import MILLI, print_milli
from gpuplan.models.value.start_value import StartValue
from gpuplan.planner.analysis.quota_headroom import usage_of_resource
from gpuplan.planner.explain.answers.node_queue import (
    GpuHolder,
    GpuUse,
    NodeBooking,
    NodeClosure,
    NodeExplanation,
    NodeTenant,
    QueueExplanation,
    QueueQuotaUse,
    Reclaimable,
    Stranded,
    WaitingFor,
)
from gpuplan.planner.explain.feasibility import PlanFeasibility
from gpuplan.planner.explain.hypothesis import Hypothesis
from gpuplan.planner.explain.verify_trial import TrialVerifier
from gpuplan.planner.problem_builder.quotas import Reclaiming, min_requested_gpu_milli, queue_and_model_of
from gpuplan.planner.text_format import (
    format_count,
    format_cpus,
    format_gib,
    format_gpus,
    format_mig_layout,
    node_size,
)
from gpuplan.planner.waiting.free_capacity import (
    CPU,
    DISK,
    GPUS,
    MEMORY,
    MIG,
    POWER,
    SHARE,
    FreeCapacity,
    replica_needs,
)

if TYPE_CHECKING:
    from collections.abc import Iterator

    from gpuplan.models.cluster import Node
    from gpuplan.models.job import Job
    from gpuplan.models.plan.plan import Plan
    from gpuplan.models.queue import Queue, Quota
    from gpuplan.planner.waiting.free_capacity import NodeRoom


def explain_node(plan: Plan, name: str) -> NodeExplanation:
    """Gather what a plan says about a node; the plan may add or remove the node."""
    ground = PlanFeasibility(plan)
    known = plan.snapshot.cluster.node_by_name | {node.name: node for node in plan.target.added}
    node = ground.nodes.get(name, known[name])
    gone = name not in ground.nodes
    any_job = plan.snapshot.jobs[0] if plan.snapshot.jobs else None
    place = None if gone or any_job is None else _place(name, Hypothesis.unchanged(plan, any_job), ground)
    free = place.free if place else None
    return NodeExplanation(
        plan_id=plan.plan_id,
        epoch=plan.epoch,
        node=name,
        size=node_size(node),
        state=tuple(_state(node, plan, gone=gone)),
        pool=node.pool,
        place="/".join(part for part in (node.region, node.zone, node.rack, node.nvlink_island) if part),
        price_per_hour=node.price_per_hour,
        gpus=() if gone else tuple(_gpus(node, ground, place)),
        free_cpu_milli=print_milli(max(0, free.cpu_milli)) if free else 0,
        cpu_milli=print_milli(node.cpu_milli),
        free_memory_mib=max(0, free.memory_mib) if free else 0,
        memory_mib=node.memory_mib,
        tenants=tuple(_tenants(name, ground)),
        bookings=tuple(_bookings(name, ground)),
        closures=tuple(_closures(name, ground)),
        stranded=tuple(_stranded(place, ground)) if place else (),
    )


def _place(name: str, question: Hypothesis, ground: PlanFeasibility) -> NodeRoom:
    """Free capacity of the node, limited by its rack's power cap too."""
    place = ground.counting.place(name, question)
    left = ground.counting.power.of_racks(question.rack_power, ()).get(rack_of(place.node))
    watts = place.node.gpus.watts if place.node.gpus else 0
    if left is None or not watts:
        return place
    milli = left // watts
    return place._replace(power_milli=milli if place.power_milli is None else min(milli, place.power_milli))


def _state(node: Node, plan: Plan, *, gone: bool) -> Iterator[str]:
    if gone:
        yield "removed by this plan"
    if node.name in {added.name for added in plan.target.added}:
        yield "added by this plan"
    if not node.ready:
        yield "not ready"
    if node.cordoned:
        yield "cordoned"
    if node.drain:
        yield "to be drained"
    if node.spot:
        yield "spot"
    for taint in node.taints:
        yield f"taint {taint.key}"


def _gpus(node: Node, ground: PlanFeasibility, place: NodeRoom | None) -> Iterator[GpuUse]:
    if node.gpus is None:
        return
    holders: dict[int, list[GpuHolder]] = defaultdict(list)
    for job, replica in ground.on_node.get(node.name, ()):
        for held in replica.gpus:
            what = (
                format_gpus(held.milli) if isinstance(held, GpuShare) else f"{held.profile} at {held.start}"
            )
            holders[held.index].append(GpuHolder(job=job.name, holds=what))
    measured = {each.index: each for each in ground.plan.snapshot.measured if each.node == node.name}
    for index, gpu in node.gpus.by_index.items():
        seen = measured.get(index)
        milli = place.free.gpu_milli[index] if place else MILLI
        yield GpuUse(
            index=index,
            healthy=gpu.healthy,
            fault=gpu.fault,
            layout=None if gpu.mig is None else format_mig_layout(gpu.mig),
            utilization=seen.utilization if seen else None,
            memory_mib=seen.memory_mib if seen else None,
            holders=tuple(sorted(holders[index], key=lambda each: (each.job, each.holds))),
            free_milli=print_milli(max(0, milli)),
        )


def _tenants(name: str, ground: PlanFeasibility) -> Iterator[NodeTenant]:
    future = ground.outlook.future
    replicas = Counter(job.name for job, _ in ground.on_node.get(name, ()))
    stays = [future.stays[job] for job in replicas]
    for stay in sorted(stays, key=lambda each: (each.end, each.job.name)):
        job = stay.job
        yield NodeTenant(
            job=job.name,
            queue=job.queue,
            user=job.user,
            priority=job.priority,
            replicas=replicas[job.name],
            starts=job.running is None,
            ends_at=future.instant_at(stay.end),
        )


def _bookings(name: str, ground: PlanFeasibility) -> Iterator[NodeBooking]:
    future = ground.outlook.future
    later = [stay for stay in future.on_node.get(name, ()) if stay.slot]
    for stay in sorted(later, key=lambda each: (each.slot, each.job.name)):
        promised = future.planned[stay.job.name].promised
        yield NodeBooking(job=stay.job.name, starts_at=future.begin(stay.slot), promised=promised)


def _closures(name: str, ground: PlanFeasibility) -> Iterator[NodeClosure]:
    future = ground.outlook.future
    for window in future.windows.of(name):
        yield NodeClosure(
            reservation=window.reservation.name,
            begins_at=future.instant_at(window.begins),
            ends_at=future.instant_at(window.ends),
        )


def _stranded(place: NodeRoom, ground: PlanFeasibility) -> Iterator[Stranded]:
    """Waiting jobs that may use the node, by what one replica lacks there or else waits for."""
    plan = ground.plan
    jobs = plan.snapshot.job_by_name
    found: dict[str, list[str]] = defaultdict(list)
    kinds: dict[Any, str | None] = {}
    for waiting in plan.waiting:
        job = jobs[waiting.job]
        needs = replica_needs(job, ground.cluster, capped=place.power_milli is not None)
        kind = (eligibility_key(job), tuple(needs.items()))
        if kind not in kinds:
            kinds[kind] = _lacking(job, needs, place)
        lacking = kinds[kind]
        if lacking is not None:
            found[lacking or f"fit here, wait for {waiting.reason.code.value}"].append(job.name)
    for why, names in sorted(found.items(), key=lambda each: (-len(each[1]), each[0])):
        yield Stranded(why=why, jobs=len(names), example=names[0])


def _lacking(job: Job, needs: dict[str, int], place: NodeRoom) -> str | None:
    """What one replica lacks on the node; empty if nothing, None if the node is not eligible for the job."""
    if ineligibility(job, place.node) is not None:
        return None
    pool = FreeCapacity([place])
    missing = [
        _words(dimension, pool)
        for dimension, need in needs.items()
        if not pool.count_replicas({dimension: need}, 1)
    ]
    return f"too few {' and '.join(missing)}" if missing else ""


def _words(dimension: str, pool: FreeCapacity) -> str:
    """A resource in words, with its free amount."""
    free = 0 if dimension.startswith(MIG) else pool.largest(dimension)
    match dimension:
        case _ if dimension.startswith(MIG):
            return f"MIG slices for {dimension.removeprefix(MIG)}"
        case _ if dimension == GPUS:
            return f"whole GPUs ({free:,} free)"
        case _ if dimension == SHARE:
            return f"shares of a GPU ({format_gpus(free)} free of one)"
        case _ if dimension == CPU:
            return f"CPUs ({format_cpus(free)} free)"
        case _ if dimension == MEMORY:
            return f"GiB of memory ({format_gib(free)} free)"
        case _ if dimension == DISK:
            return f"GiB of disk ({format_gib(free)} free)"
        case _ if dimension == POWER:
            return f"watts ({format_gpus(free)} may draw power)"
        case _:
            return f"{dimension} ({free:,} free)"


_MOST_TOLD: Final = 5

_MOST_ASKED: Final = 30
"""Number of waiting jobs that one more GPU of quota is tried for, first in the waiting order."""


def explain_queue(plan: Plan, name: str) -> QueueExplanation:
    """Gather what a plan says about a queue of its snapshot."""
    ground = PlanFeasibility(plan)
    queue = next(each for each in plan.snapshot.queues if each.name == name)
    family = queue_subtree(plan, name)
    reasons = {each.job: each.reason for each in plan.waiting}
    waiting = [job for job in plan.snapshot.jobs if job.queue in family and job.name in reasons]
    running = [job for job in plan.snapshot.jobs if job.queue in family and job.name in ground.placed]
    quotas = tuple(_quotas(queue, waiting, ground))
    reclaiming = Reclaiming(plan.snapshot, plan.rules)
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
        may_be_reclaimed=reclaiming.borrows(name),
        reclaimable=tuple(reclaimable[:_MOST_TOLD]),
        reclaimable_in_all=len(reclaimable),
        one_more=starter[0] if starter else None,
        one_more_points=starter[1] if starter else None,
        one_more_tried=len(candidates),
    )


def queue_subtree(plan: Plan, root: str) -> frozenset[str]:
    """A queue and all queues below it."""
    children: dict[str | None, list[str]] = defaultdict(list)
    for queue in plan.snapshot.queues:
        children[queue.parent].append(queue.name)
    found = [root]
    for name in found:  # the loop itself appends to the list
        found += children[name]
    return frozenset(found)


def _quotas(queue: Queue, waiting: list[Job], ground: PlanFeasibility) -> Iterator[QueueQuotaUse]:
    family = queue_subtree(ground.plan, queue.name)
    for resource in (ALL_MODELS, *sorted(queue.gpu_models)):
        quota = queue.quota_for(resource)
        limits = queue_limits(ground.plan.snapshot.queues, resource)
        own = usage_of_resource(ground.quotas.own(0), resource)
        used, limit = limits.usage(own)[queue.name], limits.limit[queue.name]
        # A limit is the quota of the subtree plus what it may borrow; a root borrows nothing.
        borrowing = quota.borrowing_limit if quota and queue.parent else 0
        subtree = quota.nominal if quota else 0
        if limit is not None:
            subtree = limit - (borrowing or 0)
        held = sum(milli for name, milli in own.items() if name in family)
        yield QueueQuotaUse(
            gpu_model=resource,
            nominal_milli=print_milli(quota.nominal if quota else 0),
            limit_milli=None if limit is None else print_milli(limit),
            used_milli=print_milli(used),
            borrowed_milli=print_milli(max(0, used - subtree) if quota or limit is not None else 0),
            unused_milli=print_milli(max(0, subtree - used)),
            guarantee_milli=print_milli(quota.guarantee) if quota and quota.guarantee is not None else None,
            missing_milli=print_milli(_missing(quota, resource, waiting, held)),
        )


def _missing(quota: Quota | None, resource: str, waiting: list[Job], held: int) -> int:
    """Unmet part of a guarantee; demand is what running jobs hold plus what waiting jobs could hold."""
    if quota is None or quota.guarantee is None:
        return 0
    asked = sum(
        job.request.total_gpu_milli * job.gang.maximum
        for job in waiting
        if not job.withheld and (resource == ALL_MODELS or not job.gpu_models or resource in job.gpu_models)
        if min_requested_gpu_milli(job) <= quota.guarantee
    )
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
    """The first jobs in order that wait for quota; none for a queue without a quota of its own."""
    plan = ground.plan
    if queue.quota is None:
        return []
    earnings = StartValue(plan.snapshot, plan.policy)
    short = {each.job for each in plan.waiting if each.reason.code in _FOR_QUOTA}
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
