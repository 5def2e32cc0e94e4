"""review(old, new) → PolicyReview: compare two plans of one snapshot, each under a different policy."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Any

from pydantic import Field

from gpuplan.models.base import Noun
from gpuplan.models.errors import PlannerError
from gpuplan.models.plan.actions import Migrate
from gpuplan.models.units import MILLI, Count, Milli, Name, Timestamp, print_milli
from gpuplan.models.verifier.verify import verify_target
from gpuplan.planner.analysis.job_changes import lost_gpu_hours
from gpuplan.planner.analysis.policy_changes import changed_knobs
from gpuplan.planner.whatif.compare import job_forecasts
from gpuplan.planner.whatif.runner import Variant, Workers, planned, run

if TYPE_CHECKING:
    from collections.abc import Iterator

    from gpuplan.models.plan.plan import Plan
    from gpuplan.models.policy.policy import Policy
    from gpuplan.models.snapshot import Snapshot


class PolicyDifference(Noun):
    """A setting that differs between two policies."""

    path: str
    """Path in the policy document, such as `prices.disruption`."""
    before: Any = None
    """None if the policy does not have it."""
    after: Any = None


class ReplicaCountChange(Noun):
    """A job that runs with another number of replicas under the new policy."""

    job: Name
    queue: Name
    user: Name
    before: str
    """Type of its action under the old policy: `start`, `keep`, `wait` and so on."""
    after: str
    replicas_before: Count
    """Running replicas; 0 if the job waits."""
    replicas_after: Count
    gpus: float
    """GPUs under the new policy minus GPUs under the old one."""
    reason: str
    """Reason of its action under the new policy."""


class QueueChange(Noun):
    """What the jobs directly in a queue hold under each policy."""

    queue: Name
    gpu_milli_before: Milli = Field(alias="gpus_before")
    gpu_milli_after: Milli = Field(alias="gpus_after")
    running_before: Count
    running_after: Count


class PolicyPlan(Noun):
    """Figures of one of the two plans."""

    plan_id: str
    policy: str
    """Fingerprint of the policy."""
    status: str
    objective: int
    """At the prices and weights of its own policy."""
    bound: int | None
    gap: float | None
    terms: dict[str, int]
    started: Count
    preempted: Count
    waiting: Count
    gpus_held: float
    lost_gpu_hours: float
    """Work since the last checkpoint of all jobs that are stopped or moved."""
    promises: Count
    """Later starts that are reserved for waiting jobs."""


class PolicyReview(Noun):
    """Effect of a change of policy on one snapshot."""

    snapshot: str
    """Fingerprint of the snapshot."""
    epoch: Timestamp
    seed: int
    knobs: tuple[PolicyDifference, ...]
    """Sorted by path."""
    old: PolicyPlan
    new: PolicyPlan
    gains: tuple[ReplicaCountChange, ...] = ()
    """Jobs with more replicas under the new policy, most GPUs first."""
    losses: tuple[ReplicaCountChange, ...] = ()
    """Jobs with fewer replicas under the new policy, most GPUs first."""
    moved: tuple[Name, ...] = ()
    """Jobs that move under only one of the policies, sorted."""
    broken_promises: tuple[Name, ...] = ()
    """Jobs with a promised start under the old policy only that the new one does not start; sorted."""
    queues: tuple[QueueChange, ...] = ()
    """Queues that differ, sorted by name."""
    gain_by_new: int | None = None
    """Points of the new plan minus the old plan's, both under the new policy; None if it forbids the old."""
    undecided: bool = False
    """True if the plans differ by no more than the gap: a longer search could reverse the result."""

    @property
    def same(self) -> bool:
        """True if all jobs run as under the old policy."""
        return not (self.gains or self.losses or self.moved or self.broken_promises)


def review(snapshot: Snapshot, old: Policy, new: Policy, workers: Workers, *, seed: int) -> PolicyReview:
    """
    Plan a snapshot under both policies, and compare the plans.

    Raises
    ------
    PlannerError
        A plan cannot be made; the message gives the reason.
    """
    variants = [
        Variant(name, snapshot, policy, seed, planned) for name, policy in (("old", old), ("new", new))
    ]
    plans = []
    for variant, found in zip(variants, run(variants, workers), strict=True):
        if found.value is None:
            raise PlannerError(f"there is no plan under the {variant.name} policy: {found.failure}")
        plans.append(found.value)
    return review_plans(*plans)


def review_plans(old: Plan, new: Plan) -> PolicyReview:
    """Find the jobs that gain or lose under the new policy, and the cost; both plans are of one snapshot."""
    changes = _job_changes(old, new)
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


def _job_changes(old: Plan, new: Plan) -> list[ReplicaCountChange]:
    before, after = job_forecasts(old), job_forecasts(new)
    reasons = {each.job: each.reason.text for each in new.waiting}
    found = [
        ReplicaCountChange(
            job=job.name,
            queue=job.queue,
            user=job.user,
            before=here.action,
            after=there.action,
            replicas_before=here.replicas,
            replicas_after=there.replicas,
            gpus=print_milli(there.gpu_milli - here.gpu_milli),
            reason=reasons.get(job.name, there.why),
        )
        for job in new.snapshot.jobs
        if (here := before[job.name]).replicas != (there := after[job.name]).replicas
    ]
    return sorted(found, key=lambda each: (-abs(each.gpus), each.job))


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


def _moved(plan: Plan) -> set[str]:
    return {action.job for action in plan.actions if isinstance(action, Migrate)}


def _promised(plan: Plan) -> set[str]:
    return {each.job for each in plan.planned if each.promised}


def _running(plan: Plan) -> set[str]:
    return {each.job for each in plan.placements}
