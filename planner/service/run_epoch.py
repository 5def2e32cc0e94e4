"""One epoch of a run: read, plan, save, apply; it always returns a record, also after an error."""

from __future__ import annotations

import logging
import time
from collections import Counter
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Any, Final, Protocol

from gpuplan.models.errors import PlannerError, StalePlanError
from gpuplan.models.gang import Gang
from gpuplan.models.plan.actions import Change, NodeAction, PoolAction, changes_of, info_of
from gpuplan.planner.analysis.effects import nodes_touched, snapshot_after
from gpuplan.planner.apply.outcome import ApplyOutcome
from gpuplan.planner.apply.promises import carry_over_promises, steps_of
from gpuplan.planner.approval.conditions import approval_reason
from gpuplan.planner.epoch import plan_epoch
from gpuplan.planner.epoch_cache import EpochCache
from gpuplan.planner.service.clusters import AppliedSteps, resume_refusal
from gpuplan.planner.service.event_log import log_event
from gpuplan.planner.service.history import EpochOutcome, EpochRecord

if TYPE_CHECKING:
    from collections.abc import Callable, Collection
    from datetime import datetime

    from gpuplan.models.job import Job
    from gpuplan.models.plan.plan import Plan
    from gpuplan.models.policy.approval import Approval
    from gpuplan.models.policy.policy import Policy
    from gpuplan.models.snapshot import Snapshot
    from gpuplan.planner.service.run_files import LastReadPolicy, PlanStore
    from gpuplan.planner.service.shutdown import StopSignal


_LOG: Final = logging.getLogger(__name__)


class Applier(Protocol):
    """Applies plans, and reports their progress."""

    def apply(self, plan: Plan, *, resume: bool) -> ApplyOutcome:
        """Carry out a plan; raises the errors of `gpuplan.planner.apply.apply`."""
        ...

    def applied_steps(self, plan: Plan) -> AppliedSteps:
        """Progress of a plan, by this run or any other."""
        ...

    def under_way(self) -> tuple[Change, ...]:
        """Actions of earlier plans that may still land."""
        ...


@dataclass(frozen=True, slots=True)
class RunContext:
    """Dependencies that all epochs of one run share."""

    read: Callable[[], Snapshot]
    policy: LastReadPolicy
    plans: PlanStore
    applier: Applier | None
    """None if plans are saved but not applied."""
    remembers_promises: bool
    """True if snapshots contain earlier promises; otherwise they are taken from the last plan."""
    seed: int
    now: Callable[[], datetime]
    stop: StopSignal
    cache: EpochCache = field(default_factory=EpochCache)
    planned_by: str = ""
    """user@host of the run."""
    approval: Callable[[Policy], Approval] = lambda policy: policy.approval
    """The approval rules in force on the cluster, given the policy of the run."""


@dataclass
class RunningEpoch:
    """State of one epoch, and afterwards its result."""

    number: int
    context: RunContext
    last: Plan | None
    """The last good plan."""
    plan: Plan | None = None
    """This epoch's plan, once it is saved."""
    outcome: ApplyOutcome | None = None
    """Outcome of its apply."""
    plan_seconds: float = 0.0
    _done_before: tuple[str, ...] = ()
    """Steps of the plan that an earlier run carried out."""
    found: dict[str, Any] = field(default_factory=dict)
    """Fields of the record that are known so far."""

    def work(self) -> EpochRecord:
        """Run the whole epoch."""
        return self._recorded(self._plan_and_carry_out)

    def resume(self, plan: Plan, trail: AppliedSteps, applier: Applier) -> EpochRecord:
        """Run the rest of an earlier run's last plan in place of an epoch."""
        return self._recorded(partial(self._go_on, plan, trail, applier))

    def _recorded(self, work: Callable[[], EpochOutcome]) -> EpochRecord:
        began = self.context.now()
        try:
            ended, error = work(), ""
        except PlannerError as failure:
            self.outcome = getattr(failure, "outcome", None) or self._outcome_by_trail()
            ended, error = self._outcome_of(failure), str(failure)
        except KeyboardInterrupt:
            # A search is interrupted only after a stop request.
            ended, error = EpochOutcome.STOPPED, "it was told to stop before it had a plan."
        except Exception as failure:  # noqa: BLE001 - a defect in one epoch must not end all that follow
            self.outcome = self._outcome_by_trail()
            ended, error = self._outcome_of(failure), f"defect: {type(failure).__name__}: {failure}"
            log_event(_LOG, "defect", level=logging.ERROR, traced=True, epoch=self.number)
        return EpochRecord(
            number=self.number,
            began_at=began,
            ended_at=self.context.now(),
            outcome=ended,
            error=error,
            **self.found,
            **self._counts(),
        )

    def _plan_and_carry_out(self) -> EpochOutcome:
        policy, began = self._reread_policy(), time.monotonic()
        # What lands after this is left alone for one epoch more than needed.
        pending = self.context.applier.under_way() if self.context.applier else ()
        snapshot = left_alone(self.context.read(), pending)
        if pending:
            ids = [change.id for change in pending]
            log_event(_LOG, "under_way", level=logging.WARNING, epoch=self.number, actions=ids)
        if self.last is not None and not self.context.remembers_promises:
            snapshot = carry_over_promises(snapshot, self.last)
        self.found |= {"taken_at": snapshot.taken_at}
        started = time.perf_counter()
        try:
            plan = plan_epoch(
                snapshot,
                policy,
                seed=self.context.seed,
                created_at=self.context.now(),
                watch=self.context.stop.end_search,
                last=self.last,
                cache=self.context.cache,
                began=began,
            )
        finally:
            self.plan_seconds = time.perf_counter() - started
        plan = plan.model_copy(update={"planned_by": self.context.planned_by})
        path = self.context.plans.save(plan, self.number)
        self.plan = plan
        self.found |= _facts(plan, self.plan_seconds)
        log_event(
            _LOG,
            "planned",
            epoch=self.number,
            plan=plan.plan_id,
            status=plan.solution.status,
            solver=plan.solution.solver,
            objective=plan.solution.objective,
            gap=None if plan.solution.gap is None else round(plan.solution.gap, 6),
            changes=len(changes_of(plan.actions)),
            waiting=len(plan.waiting),
            seconds=round(self.plan_seconds, 3),
            file=str(path),
        )
        return self._carry_out(plan)

    def _reread_policy(self) -> Policy:
        in_force = self.context.policy
        changes = in_force.reread()
        for change in changes:
            log_event(
                _LOG,
                "policy_changed",
                level=logging.WARNING,
                epoch=self.number,
                whole=change.model_dump(),
            )
        if in_force.error:
            log_event(
                _LOG,
                "policy_unreadable",
                level=logging.ERROR,
                epoch=self.number,
                in_force=in_force.policy.fingerprint(),
                error=in_force.error,
            )
        self.found |= {
            "policy": in_force.policy.fingerprint(),
            "policy_changes": changes,
            "policy_error": in_force.error,
        }
        return in_force.policy

    def _carry_out(self, plan: Plan) -> EpochOutcome:
        if not steps_of(plan):
            return EpochOutcome.UNCHANGED
        if self.context.applier is None:
            return EpochOutcome.PLANNED
        if why := approval_reason(plan, self.context.approval(self.context.policy.policy)):
            log_event(
                _LOG, "awaits_approval", level=logging.WARNING, epoch=self.number, plan=plan.plan_id, why=why
            )
            return EpochOutcome.AWAITS_APPROVAL
        if self.context.stop.requested:
            return EpochOutcome.STOPPED
        self.outcome = self.context.applier.apply(plan, resume=False)
        return EpochOutcome.APPLIED

    def _go_on(self, plan: Plan, trail: AppliedSteps, applier: Applier) -> EpochOutcome:
        self.plan = plan
        self.found |= _facts(plan, None)
        self._done_before = trail.done
        policy = self.context.policy.policy
        if why := resume_refusal(plan, trail, policy, self.context.approval(policy)):
            raise PlannerError(f"the rest of it is not carried out: {why}.")
        self.outcome = applier.apply(plan, resume=True)
        return EpochOutcome.RESUMED

    def _outcome_by_trail(self) -> ApplyOutcome | None:
        """Outcome of an apply that ended without one, from the trail."""
        if self.plan is None or self.context.applier is None:
            return None
        try:
            done = self.context.applier.applied_steps(self.plan).done
        except PlannerError:
            # The audit log itself is broken.
            done = self._done_before
        before = set(self._done_before)
        return ApplyOutcome(tuple(step for step in done if step not in before), self._done_before)

    def _outcome_of(self, failure: Exception) -> EpochOutcome:
        if isinstance(failure, StalePlanError):
            return EpochOutcome.STALE
        outcome = getattr(failure, "outcome", None)
        if self.context.stop.requested and outcome is not None and not outcome.failures:
            return EpochOutcome.STOPPED
        partly = self.outcome is not None and (self.outcome.done or self.outcome.skipped)
        return EpochOutcome.PARTLY_APPLIED if partly else EpochOutcome.FAILED

    def _counts(self) -> dict[str, int]:
        """Number of steps by outcome."""
        if self.plan is None:
            return {}
        outcome = self.outcome or ApplyOutcome(done=())
        done, before = len(outcome.done), len(outcome.skipped)
        return {"done": done, "done_before": before, "undone": len(steps_of(self.plan)) - done - before}


def _facts(plan: Plan, seconds: float | None) -> dict[str, Any]:
    """Fields of a record about a plan."""
    types = Counter(action.type for action in plan.actions)
    solution = plan.solution
    return {
        "snapshot": plan.base.snapshot,
        "plan_id": plan.plan_id,
        "status": solution.status,
        "solver": solution.solver,
        "objective": solution.objective,
        "bound": solution.bound,
        "gap": solution.gap,
        "seconds": None if seconds is None else round(seconds, 3),
        "actions": dict(sorted(types.items())),
    }


# What a plan leaves alone while actions of an earlier plan are still under way.


def left_alone(live: Snapshot, under_way: Collection[Change]) -> Snapshot:
    """
    The snapshot to plan while these actions are under way: nothing that they touch changes.

    What they take, places and quota, counts as taken; what they free is not free yet. Nothing starts on their
    nodes, their jobs neither start nor are disturbed, and their pools do not grow.
    """
    if not under_way:
        return live
    of_jobs = [change for change in under_way if not isinstance(change, NodeAction)]
    live = snapshot_after(live, [change for change in of_jobs if info_of(change).takes])
    nodes = {name for change in under_way for name in nodes_touched(change)}
    jobs = {change.job for change in of_jobs}
    pools = {change.pool for change in under_way if isinstance(change, PoolAction)}
    sizes = Counter(node.pool for node in live.cluster.nodes)
    cluster = live.cluster.model_copy(
        update={
            "nodes": tuple(
                node.model_copy(update={"cordoned": True}) if node.name in nodes else node
                for node in live.cluster.nodes
            ),
            "pools": tuple(
                pool.model_copy(update={"maximum": max(pool.minimum, min(pool.maximum, sizes[pool.name]))})
                if pool.name in pools
                else pool
                for pool in live.cluster.pools
            ),
        }
    )
    kept = tuple(_kept(job) if job.name in jobs else job for job in live.jobs)
    return live.model_copy(update={"cluster": cluster, "jobs": kept}).canonical()


def _kept(job: Job) -> Job:
    """The job as one that no plan changes."""
    if job.running is None:
        return job.model_copy(update={"held": True})
    count = len(job.running.replicas)
    return job.model_copy(update={"preemptible": False, "gang": Gang(minimum=count, maximum=count)})
