"""explain(plan, job) → Explanation: why one job starts, runs or waits, and when it starts."""

from __future__ import annotations

from typing import TYPE_CHECKING

from gpuplan.models.errors import BadInputError, InputProblem, Suggestions
from gpuplan.models.plan.actions import Grow, JobAction, Migrate, Preempt, Shrink, Start, Wait
from gpuplan.models.timing.durations import DurationSource, LeftBasis
from gpuplan.models.timing.learnt_scaling import has_learnt_scaling
from gpuplan.models.units import MILLI
from gpuplan.models.value.disruption_cost import recovery_seconds
from gpuplan.models.value.job_value import JobValue
from gpuplan.planner.analysis.prerequisites import Prerequisites
from gpuplan.planner.analysis.projected_schedule import ProjectedSchedule
from gpuplan.planner.explain.answers.job import (
    AwaitedJob,
    Exchange,
    ExpectedDuration,
    Explanation,
    JobScaling,
    Neighbour,
)
from gpuplan.planner.explain.feasibility import PlanFeasibility
from gpuplan.planner.explain.hypothesis import Hypothesis
from gpuplan.planner.explain.queue_position import explain_position
from gpuplan.planner.explain.remedies.minimal_remedies import remedies
from gpuplan.planner.plan_builder.later_starts import deadline_outlook, overlap
from gpuplan.planner.text_format import gang_size

if TYPE_CHECKING:
    from collections.abc import Iterator

    from gpuplan.models.job import Job
    from gpuplan.models.plan.plan import Plan
    from gpuplan.planner.analysis.prerequisites import SatisfactionEstimate
    from gpuplan.planner.analysis.projected_schedule import JobInterval


def explain(plan: Plan, name: str, *, source: str) -> Explanation:
    """
    Gather what a plan says about a job; messages name `source` as the origin of the plan or its snapshot.

    Raises
    ------
    BadInputError
        The plan's snapshot has no such job.
    """
    job = plan.snapshot.job_by_name.get(name)
    if job is None:
        hint = Suggestions().hint(name, plan.snapshot.job_by_name)
        raise BadInputError((InputProblem(source, f"no job has the name {name!r}.{hint}"),))
    action = next(one for one in plan.actions if isinstance(one, JobAction) and one.job == name)
    waiting = next((one for one in plan.waiting if one.job == name), None)
    ground = None if waiting is None or job.running is not None else PlanFeasibility(plan)
    future = ground.outlook.future if ground else ProjectedSchedule(plan.snapshot, plan.policy, plan.target)
    stay = future.stays.get(name)
    return Explanation(
        plan_id=plan.plan_id,
        epoch=plan.epoch,
        job=name,
        queue=job.queue,
        user=job.user,
        priority=job.priority,
        asks_for=gang_size(job.request, job.gang.minimum, job.gang.maximum),
        action=action.type,
        finding=next((each for each in plan.findings if each.job == name), None),
        reason=waiting.reason if waiting and isinstance(action, Wait) else action.reason,
        scaling=_scaling(job, stay, future),
        duration=_duration(job, stay, future, JobValue(plan.snapshot, plan.policy, future.durations)),
        depends_on=tuple(_awaited(job, future)),
        depends_on_at_least=job.depends_on_at_least,
        nodes=tuple(sorted({replica.node for replica in stay.replicas})) if stay else (),
        nodes_before=_nodes_before(action),
        exchange=tuple(_exchange(action, plan)),
        horizon_end=future.instant_at(future.slots.end) if future.slots.count > 1 else None,
        projected_start=waiting.projected_start if waiting else None,
        promised=waiting is not None and waiting.promised,
        waits_for=waiting.waits_for if waiting else "",
        projected_finish=future.instant_at(stay.end) if stay else None,
        earlier_promise=job.promise.start if job.promise else None,
        promise_changed=waiting.promise_changed if waiting else "",
        kill_at=action.kill_at if isinstance(action, Start) else job.running.kill_at if job.running else None,
        deadline=deadline_outlook(job, future) if job.deadline else None,
        standing=None if ground is None else explain_position(Hypothesis.unchanged(plan, job), ground),
        remedies=None if ground is None else remedies(ground, job),
        neighbours=tuple(_neighbours(stay, future)) if stay and stay.slot else (),
    )


def _nodes_before(action: JobAction) -> tuple[str, ...]:
    if not isinstance(action, Preempt | Shrink | Grow | Migrate):
        return ()
    return tuple(sorted({replica.node for replica in action.before.replicas}))


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


def _neighbours(stay: JobInterval, future: ProjectedSchedule) -> Iterator[Neighbour]:
    """Jobs on the nodes of a stay at some time before its start, by node and end."""
    for node in sorted({replica.node for replica in stay.replicas}):
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
