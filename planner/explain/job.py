"""explain(plan, job) → Explanation: why one job starts, runs or waits, when it starts, and its position."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from gpuplan.models.eligibility.node_eligibility import ineligibility
from gpuplan.models.eligibility.preemption_order import least_follower
from gpuplan.models.errors import require_known
from gpuplan.models.placement import node_names
from gpuplan.models.plan.actions import Grow, JobAction, Keep, Migrate, Preempt, Shrink, Start, Wait
from gpuplan.models.plan.reason import ReasonCode
from gpuplan.models.queue import (
    ALL_MODELS,
    NOT_OF_GPUS,
    amount_index,
    is_gpu_model,
    queue_and_below,
    resource_name,
)
from gpuplan.models.timing.durations import DurationSource, LeftBasis
from gpuplan.models.timing.learnt_speeds import has_learnt_scaling
from gpuplan.models.units import MILLI, print_milli
from gpuplan.models.value.disruption_cost import recovery_seconds
from gpuplan.models.value.job_value import JobValue
from gpuplan.models.value.start_value import StartValue
from gpuplan.planner.analysis.budget_use import BudgetKeeper
from gpuplan.planner.analysis.projected_schedule import Prerequisites, ProjectedSchedule
from gpuplan.planner.analysis.quota_headroom import QuotaHeadroom
from gpuplan.planner.analysis.stay_reasons import StayReasons
from gpuplan.planner.explain.explanation import (
    AwaitedJob,
    CompetingJob,
    Exchange,
    ExpectedDuration,
    Explanation,
    FreeBlock,
    HeldNodes,
    JobScaling,
    Neighbour,
    QueuePosition,
    QuotaLevel,
    ResourceHolder,
    Urgency,
)
from gpuplan.planner.explain.feasibility import PlanFeasibility
from gpuplan.planner.explain.hypothesis import Hypothesis
from gpuplan.planner.explain.queue import queue_order_key
from gpuplan.planner.explain.remedies.minimal_remedies import remedies
from gpuplan.planner.plan_builder.later_starts import deadline_outlook, overlap
from gpuplan.planner.problem_builder.quotas import Reclaiming, min_requested_gpu_milli, queue_and_model_of
from gpuplan.planner.text_format import format_time, gang_size, join_first_names, quota_number
from gpuplan.planner.waiting.eligible_nodes import EligibilityIndex
from gpuplan.planner.waiting.time_messages import window_name

if TYPE_CHECKING:
    from collections.abc import Iterator
    from datetime import datetime

    from gpuplan.models.job import Job
    from gpuplan.models.plan.plan import Plan
    from gpuplan.planner.analysis.projected_schedule import JobInterval, SatisfactionEstimate
    from gpuplan.planner.analysis.quota_headroom import QuotaShortage
    from gpuplan.planner.waiting.free_capacity import NodeRoom

GIVEN_NAME: Final = "slurm/name"
"""Label with the name that its user gave to a job which Slurm counts by number."""


def explain(plan: Plan, name: str, *, source: str) -> Explanation:
    """
    Gather what a plan says about a job; messages name `source` as the origin of the plan or its snapshot.

    Raises
    ------
    BadInputError
        The plan's snapshot has no such job.
    """
    require_known("job", [name], plan.snapshot.job_by_name, source)
    job = plan.snapshot.job_by_name[name]
    action = next(one for one in plan.actions if isinstance(one, JobAction) and one.job == name)
    waiting = next((one for one in plan.waiting if one.job == name), None)
    ground = None if waiting is None or job.running is not None else PlanFeasibility(plan)
    future = ground.outlook.future if ground else ProjectedSchedule(plan.snapshot, plan.policy, plan.target)
    stay = future.stays.get(name)
    return Explanation(
        plan_id=plan.plan_id,
        epoch=plan.epoch,
        job=name,
        given_name=job.labels.get(GIVEN_NAME, ""),
        queue=job.queue,
        user=job.user,
        priority=job.priority,
        asks_for=gang_size(job.request, job.gang.minimum, job.gang.maximum),
        action=action.type,
        finding=next((each for each in plan.findings if each.job == name), None),
        reason=waiting.reason if waiting and isinstance(action, Wait) else action.reason,
        stays=_why_it_stays(action, plan, future),
        scaling=_scaling(job, stay, future),
        duration=_duration(job, stay, future, JobValue(plan.snapshot, plan.policy, future.durations)),
        depends_on=tuple(_awaited(job, future)),
        depends_on_at_least=job.depends_on_at_least,
        nodes=tuple(stay.nodes) if stay else (),
        nodes_before=tuple(sorted(action.before.nodes)) if isinstance(action, _LEAVING_PLACES) else (),
        exchange=tuple(_exchange(action, plan)),
        horizon_end=future.instant_at(future.slots.end) if future.slots.count > 1 else None,
        projected_start=waiting.projected_start if waiting else None,
        promised=waiting is not None and waiting.promised,
        waits_for=waiting.waits_for if waiting else "",
        projected_finish=future.instant_at(stay.end) if stay else None,
        earlier_promise=job.promise.start if job.promise else None,
        promise_changed=waiting.promise_changed if waiting else "",
        kill_at=action.kill_at if isinstance(action, Start) else job.running.kill_at if job.running else None,
        held=_held(job, future),
        deadline=deadline_outlook(job, future) if job.deadline else None,
        standing=None if ground is None else explain_position(Hypothesis.unchanged(plan, job), ground),
        remedies=None if ground is None else remedies(ground, job),
        neighbours=tuple(_neighbours(stay, future)) if stay and stay.slot else (),
    )


def _why_it_stays(action: JobAction, plan: Plan, future: ProjectedSchedule) -> str:
    """`although h100-2 is to be drained: not preemptible`; empty for a job that need not leave."""
    if not isinstance(action, Keep):
        return ""
    job, nodes = plan.snapshot.job_by_name[action.job], plan.snapshot.cluster.node_by_name
    there = sorted(node_names(job.running.replicas)) if job.running else []
    if drained := [name for name in there if (node := nodes.get(name)) is not None and node.drain]:
        verb = "is" if len(drained) == 1 else "are"
        return f"although {join_first_names(drained)} {verb} to be drained: {StayReasons(plan).of_drain(job)}"
    if (window := future.windows.forced_leave_window(job)) is not None:
        begins = format_time(future.instant_at(window.begins), plan.epoch)
        return f"although {window_name(window)} begins at {begins}: {StayReasons(plan).of_window(job)}"
    return ""


_LEAVING_PLACES: Final = (Preempt, Shrink, Grow, Migrate)


def _exchange(action: JobAction, plan: Plan) -> Iterator[Exchange]:
    """What the plan does to the jobs that the reason of an action names."""
    numbers = action.reason.numbers
    told = (str(numbers.get(key, "")) for key in ("takes_the_place_of", "makes_room_for"))
    names = {name for each in told for name in each.split(", ") if name}
    for other in plan.actions:
        if isinstance(other, JobAction) and other.job in names:
            theirs = other.reason.numbers
            yield Exchange(
                job=other.job,
                action=other.type,
                points=int(theirs.get("points", 0)),
                lost_gpu_hours=float(theirs.get("lost_gpu_hours", 0)),
            )


def _scaling(job: Job, stay: JobInterval | None, future: ProjectedSchedule) -> JobScaling | None:
    if not job.gang.scaled:
        return None
    model = future.gpu_model(job, stay.replicas) if stay else None
    return JobScaling(
        speeds={size: job.gang.speed_milli(size, model) / MILLI for size in job.gang.sizes(model)},
        gpu_model=model,
        learnt=has_learnt_scaling(future.snapshot, job),
    )


def _duration(
    job: Job, stay: JobInterval | None, future: ProjectedSchedule, worth: JobValue
) -> ExpectedDuration:
    estimate = future.durations.expected(job)
    learnt = estimate.source not in (DurationSource.DECLARED, DurationSource.DEFAULT)
    model = future.gpu_model(job, stay.replicas) if stay else None
    # The job in its waiting state, for saved progress and recovery; a running job that goes on now has none.
    goes_on = stay is not None and stay.slot == 0
    waits = job if job.running is None else None if goes_on else future.durations.stopped(job)
    progress = waits.progress if waits else job.progress
    basis = worth.left_basis(job)
    ordered = job.running is None and basis in (LeftBasis.MEAN, LeftBasis.GITTINS_INDEX)
    return ExpectedDuration(
        seconds=estimate.seconds,
        source=estimate.source,
        samples=estimate.samples,
        percentile=future.policy.durations.percentile if learnt else None,
        seconds_in_order=worth.seconds_left(job) if ordered else None,
        basis_in_order=basis if ordered else None,
        gpu_model=model,
        seconds_there=-(-estimate.seconds * MILLI // job.speed_milli(model)) if stay else None,
        seconds_left=_left(job, stay, future),
        seconds_saved=progress.completed_milli // MILLI if progress else None,
        recovery_seconds=recovery_seconds(future.policy, job) if waits and progress else None,
    )


def _left(job: Job, stay: JobInterval | None, future: ProjectedSchedule) -> int | None:
    """Seconds to the end of a job that has run; None for any other job."""
    if not job.has_run:
        return None
    return future.shortest_run_seconds(job) if stay is None else stay.seconds


def _awaited(job: Job, future: ProjectedSchedule) -> Iterator[AwaitedJob]:
    if not job.depends_on or job.running is not None:
        return
    state = Prerequisites(future).dependencies(job)
    open_ = {_key(each): each for each in (*state.outstanding, *state.never)}
    for dependency in job.depends_on:
        foreseen = open_.get((dependency.job, dependency.kind))
        second = foreseen.second if foreseen else None
        yield AwaitedJob(
            job=dependency.job,
            kind=dependency.kind,
            satisfied=foreseen is None,
            never=foreseen is not None and foreseen.never,
            expected_at=None if second is None else future.instant_at(second),
        )


def _key(foreseen: SatisfactionEstimate) -> tuple[str, str]:
    return foreseen.dependency.job, foreseen.dependency.kind


def _held(job: Job, future: ProjectedSchedule) -> HeldNodes | None:
    """Nodes held for a job, or its place beside the job for which they are held."""
    hold = future.windows.node_hold
    if hold is None or not hold.is_for(job.name):
        return None
    places = {name for name, jobs in hold.beside.items() if job.name in jobs}
    own = hold.nodes if job.name == hold.job.name else places
    return HeldNodes(job=hold.job.name, nodes=tuple(sorted(own)), begins=future.instant_at(hold.begins))


def _neighbours(stay: JobInterval, future: ProjectedSchedule) -> Iterator[Neighbour]:
    """Jobs on the nodes of a stay at some time before its start, by node and end."""
    for node in stay.nodes:
        there = [other for other in future.on_node.get(node, ()) if other.job.name != stay.job.name]
        for other in sorted(there, key=lambda each: (each.end, each.job.name)):
            if other.slot < stay.slot:
                held = tuple(replica for replica in stay.replicas if replica.node == node)
                yield Neighbour(
                    job=other.job.name,
                    node=node,
                    starts_at=future.begin(other.slot) if other.slot else None,
                    until=future.instant_at(other.end),
                    in_its_place=overlap(held, other.replicas),
                )


# Position of a waiting job: its quotas, free capacity, the jobs ahead, and the jobs that hold either.


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
        beside_promises=ground.counting.until(question) > 0,
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
    """
    The limits from the job's queue up to the root: for all models together, for its eligible models, for CPU
    cores and memory.
    """
    job = question.job
    own = ground.outlook.holds.usage(0)
    there = {model for held in own.values() for model in held}
    models, room = sorted(job.gpu_models or filter(is_gpu_model, there)), QuotaHeadroom(question.queues, own)
    for resource in (ALL_MODELS, *models, *NOT_OF_GPUS):
        needed = job.request.quota[amount_index(resource)] * job.gang.minimum
        for level in room.levels(job.queue, needed, resource):
            yield QuotaLevel(
                queue=level.queue,
                resource=resource_name(resource),
                gpu_model=resource if is_gpu_model(resource) else "",
                used_milli=quota_number(level.used, resource),
                limit_milli=quota_number(level.limit, resource),
                needed_milli=quota_number(level.needed, resource),
                binds=level.used + level.needed > level.limit,
            )


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

    Ahead are jobs of higher priority, where priorities are tiers, and then jobs with more points per GPU,
    unless the plan starts them later. The same thing is the quota of the queue that blocks the job, or else
    capacity on nodes that both may use.
    """
    plan = ground.plan
    jobs, own = plan.snapshot.job_by_name, queue_order_key(job, plan, earnings)
    reasons = {each.job: each.reason for each in plan.waiting}
    waiting = [jobs[name] for name in reasons if name != job.name and jobs[name].running is None]
    future = ground.outlook.future
    slots, never = {name: each.slot for name, each in future.planned.items()}, future.slots.count
    better = [
        other
        for other in waiting
        if queue_order_key(other, plan, earnings) < own
        and not other.withheld
        # One that starts after it is not ahead of it.
        and slots.get(other.name, never) <= slots.get(job.name, never)
    ]
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
    family = queue_and_below(short.queue, plan.snapshot.child_queues) if short else ()
    reclaiming = Reclaiming(plan.snapshot, plan.rules)
    future = ground.outlook.future
    rules = plan.rules.disruption
    keeper = BudgetKeeper(plan.snapshot, plan.rules, plan.target)
    stays = [future.stays[name] for name in ground.placed]
    for stay in sorted(stays, key=lambda each: (each.end, each.job.name)):
        job = stay.job
        there = [each for each in stay.replicas if short or each.node in matching]
        milli = sum(each.quota_milli for each in there)
        wanted = milli if short is None else sum(each.quota[amount_index(short.resource)] for each in there)
        of_use = bool(wanted) or (short is None and not question.job.request.needs_gpu)
        if (short and job.queue not in family) or not there or not of_use:
            continue
        taken = (
            question.job.queue,
            min_requested_gpu_milli(question.job),
            queue_and_model_of(job, plan.snapshot),
        )
        above = question.job.priority >= least_follower(
            plan.rules, job, plan.snapshot.taken_at
        ) and not reclaiming.keeps_turn(job, question.job.queue)
        yields = above or (job.running is not None and reclaiming.may_take(*taken))
        yield ResourceHolder(
            job=job.name,
            queue=job.queue,
            user=job.user,
            priority=job.priority,
            gpu_milli=print_milli(milli),
            nodes=tuple(sorted({each.node for each in there})),
            ends_at=future.instant_at(stay.end),
            may_be_stopped=rules.preempt
            and yields
            and rules.may_disturb(job, plan.snapshot.taken_at)
            and keeper.against(job) is None,
        )
