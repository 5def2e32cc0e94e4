"""review(old, new) → PolicyReview: compare two plans of one snapshot, each under a different policy."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

from gpuplan.models.errors import PlannerError
from gpuplan.models.plan.actions import JobAction, Migrate
from gpuplan.models.plan.plan import Plan
from gpuplan.models.units import MILLI, print_milli
from gpuplan.models.verifier.verify import verify_target
from gpuplan.planner.analysis.job_changes import lost_gpu_hours
from gpuplan.planner.analysis.policy_changes import changed_knobs
from gpuplan.planner.whatif.answers.policy_review import (
    PolicyDifference,
    PolicyPlan,
    PolicyReview,
    QueueChange,
    ReplicaCountChange,
)
from gpuplan.planner.whatif.trials import failure_text

if TYPE_CHECKING:
    from collections.abc import Iterator

    from gpuplan.solvers.worker import ChildOutcome


def plan_of(outcome: ChildOutcome, which: str) -> Plan:
    """
    Return the plan that a task has made.

    Raises
    ------
    PlannerError
        There is no plan; the message gives the reason.
    """
    if isinstance(outcome.last, Plan):
        return outcome.last
    why = outcome.last if isinstance(outcome.last, str) else failure_text(outcome, "planning")
    raise PlannerError(f"there is no plan under the {which} policy: {why}")


def review_plans(old: Plan, new: Plan) -> PolicyReview:
    """Find the jobs that gain or lose under the new policy, and the cost; both plans are of one snapshot."""
    changes = list(_job_changes(old, new))
    judged = verify_target(new.snapshot, new.policy, old.target)
    gain = None if judged.violations else new.solution.objective - judged.objective
    found = PolicyReview(
        snapshot=new.base.snapshot,
        epoch=new.epoch,
        seed=new.seed,
        knobs=tuple(
            PolicyDifference(path=path, before=before, after=after)
            for path, before, after in changed_knobs(old.policy, new.policy)
        ),
        old=_figures(old),
        new=_figures(new),
        gains=tuple(each for each in changes if each.replicas_after > each.replicas_before),
        losses=tuple(each for each in changes if each.replicas_after < each.replicas_before),
        moved=tuple(sorted(_moved(old) ^ _moved(new))),
        broken_promises=tuple(sorted(_promised(old) - _promised(new) - _running(new))),
        queues=tuple(_queues(old, new)),
        gain_by_new=gain,
    )
    undecided = not found.same and gain is not None and abs(gain) <= max(_unknown(old), _unknown(new))
    return found.model_copy(update={"undecided": undecided})


def _job_changes(old: Plan, new: Plan) -> Iterator[ReplicaCountChange]:
    before, after = _job_actions(old), _job_actions(new)
    held = {each.job: each for each in old.placements}, {each.job: each for each in new.placements}
    reasons = {each.job: each.reason for each in new.waiting}
    found = []
    for job in new.snapshot.jobs:
        replicas = [len(each[job.name].replicas) if job.name in each else 0 for each in held]
        if replicas[0] == replicas[1]:
            continue
        gpus = [
            sum(r.quota_milli for r in each[job.name].replicas) if job.name in each else 0 for each in held
        ]
        action = after[job.name]
        found.append(
            ReplicaCountChange(
                job=job.name,
                queue=job.queue,
                user=job.user,
                before=before[job.name].type,
                after=action.type,
                replicas_before=replicas[0],
                replicas_after=replicas[1],
                gpus=print_milli(gpus[1] - gpus[0]),
                reason=reasons.get(job.name, action.reason).text,
            )
        )
    yield from sorted(found, key=lambda each: (-abs(each.gpus), each.job))


def _queues(old: Plan, new: Plan) -> Iterator[QueueChange]:
    before, after = _by_queue(old), _by_queue(new)
    for queue in sorted(before.keys() | after.keys()):
        (gpus_before, running_before), (gpus_after, running_after) = (
            each.get(queue, (0, 0)) for each in (before, after)
        )
        if (gpus_before, running_before) != (gpus_after, running_after):
            yield QueueChange(
                queue=queue,
                gpu_milli_before=print_milli(gpus_before),
                gpu_milli_after=print_milli(gpus_after),
                running_before=running_before,
                running_after=running_after,
            )


def _by_queue(plan: Plan) -> dict[str, tuple[int, int]]:
    gpus: Counter[str] = Counter()
    running: Counter[str] = Counter()
    for placement in plan.placements:
        queue = plan.snapshot.job_by_name[placement.job].queue
        running[queue] += 1
        gpus[queue] += sum(replica.quota_milli for replica in placement.replicas)
    return {queue: (gpus[queue], count) for queue, count in running.items()}


def _figures(plan: Plan) -> PolicyPlan:
    solution, jobs = plan.solution, plan.metrics.jobs
    held = sum(replica.quota_milli for placement in plan.placements for replica in placement.replicas)
    return PolicyPlan(
        plan_id=plan.plan_id,
        policy=plan.base.policy,
        status=solution.status,
        objective=solution.objective,
        bound=solution.bound,
        gap=solution.gap,
        terms=dict(sorted(solution.terms.items())),
        started=jobs.started,
        preempted=jobs.preempted,
        waiting=jobs.waiting,
        gpus_held=held / MILLI,
        lost_gpu_hours=lost_gpu_hours(plan.actions),
        promises=jobs.promised,
    )


def _unknown(plan: Plan) -> int:
    """Points that a longer search could still gain: bound − objective, or |objective| without a bound."""
    bound, objective = plan.solution.bound, plan.solution.objective
    return abs(objective) if bound is None else bound - objective


def _job_actions(plan: Plan) -> dict[str, JobAction]:
    return {action.job: action for action in plan.actions if isinstance(action, JobAction)}


def _moved(plan: Plan) -> set[str]:
    return {action.job for action in plan.actions if isinstance(action, Migrate)}


def _promised(plan: Plan) -> set[str]:
    return {each.job for each in plan.planned if each.promised}


def _running(plan: Plan) -> set[str]:
    return {each.job for each in plan.placements}
