"""
Carry a plan out: prove that it is still true, do its actions one by one, and leave a record of each.

The only caller of a cluster's changing methods. The order of writing makes it safe to kill at any moment:
the intent is durable before the deed, the deed is done once for its key, and what an interrupted run left
unknown is asked of the cluster, which alone says what is done.
"""

from __future__ import annotations

import logging
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from gpuplan.models.errors import PlannerError
from gpuplan.planner.action_labels import label
from gpuplan.planner.apply.journal import Journal
from gpuplan.planner.apply.live_view import LiveView
from gpuplan.planner.apply.outcome import ApplyOutcome, FailedAction, raise_unless_complete, unrecorded
from gpuplan.planner.apply.promises import PromiseStep, reminded_of, steps_of
from gpuplan.planner.apply.standing import Standing, key_of, refuse_bad_order, refuse_unfit, standing_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence
    from datetime import datetime

    from gpuplan.models.plan.audit import AuditRecord
    from gpuplan.models.plan.plan import Plan
    from gpuplan.models.policy.policy import Drift
    from gpuplan.planner.apply.audit_log import AuditLog
    from gpuplan.planner.apply.promises import Step
    from gpuplan.planner.executors.interface import Executor

_LOG: Final = logging.getLogger(__name__)


def apply_plan(
    plan: Plan,
    cluster: Executor,
    audit: AuditLog,
    *,
    who: str,
    now: Callable[[], datetime],
    resume: bool = False,
    drift_mode: Drift | None = None,
    on_progress: Callable[[int, int, str], None] | None = None,
    stop: Callable[[], bool] | None = None,
) -> ApplyOutcome:
    """
    Do what a plan says, all of it or up to the first failure; the promises that it makes come last.

    Parameters
    ----------
    who
        user@host, for the audit log.
    resume
        Go on with a plan of which an earlier run did a part.
    drift_mode
        How much the cluster may have changed since the plan was made; by default as the plan's policy says.
    on_progress
        Called after each action with the number done, the number of all, and what was done.
    stop
        Asked before each action; once it says so, the run ends there.

    Raises
    ------
    StalePlanError
        The cluster has changed, or is another one; nothing was done by this run.
    UnperformedError
        The log has steps as done that the cluster has not performed; nothing was done by this run.
    PartlyAppliedError
        Some of the plan is done and some is not: an action failed or `stop` said so; or an earlier run did
        a part of it and `resume` is not set.
    PlannerError
        The first action failed, or the run was stopped before it: nothing was changed. Or another process
        is at work on the cluster or the log.
    """
    refuse_bad_order(plan)
    with cluster.exclusively(), audit.writing(who=who, now=now) as log:
        standing = _standing(plan, cluster, log.records)
        journal = Journal(log, plan=plan, cluster=cluster.identity, who=who, now=now)
        if not standing.left:
            return _complete(journal, standing)
        live = reminded_of(cluster.snapshot(), plan.snapshot)
        refuse_unfit(plan, live, standing, resume=resume, drift_mode=drift_mode)
        before, total = len(standing.done), standing.total
        how = f"resumed: {before} of {total} done before" if before else "from the start"
        _begin(journal, how, standing.owed)
        started = time.perf_counter()
        view = LiveView.of(live, plan.actions)
        run = _Run(plan, cluster, journal, view, before, total, on_progress, stop)
        with journal.written_whatever_happens():
            outcome = run.carry_out(standing.left, standing.done_ids)
        _close(journal, plan, outcome, total=total)
    _LOG.info("phase=apply plan=%s seconds=%.3f", plan.plan_id, time.perf_counter() - started)
    raise_unless_complete(plan.plan_id, outcome)
    return outcome


def check_plan(
    plan: Plan, cluster: Executor | None, audit: AuditLog, *, resume: bool, drift_mode: Drift | None = None
) -> Standing:
    """
    How far a cluster is with a plan, if that can be applied: raises what apply would raise, and does nothing.

    Without a cluster it is one that is to be made from the plan's own snapshot.
    """
    refuse_bad_order(plan)
    records = audit.records_if_writable()
    if cluster is None:
        steps = tuple(steps_of(plan))
        standing = Standing(total=len(steps), left=steps)
        refuse_unfit(plan, plan.snapshot, standing, resume=resume, drift_mode=drift_mode)
        return standing
    with cluster.exclusively():
        standing = _standing(plan, cluster, records)
        if standing.left:
            live = reminded_of(cluster.snapshot(), plan.snapshot)
            refuse_unfit(plan, live, standing, resume=resume, drift_mode=drift_mode)
    return standing


def _standing(plan: Plan, cluster: Executor, records: Iterable[AuditRecord]) -> Standing:
    return standing_of(
        plan, cluster.identity, records, performed=lambda step: cluster.performed(key_of(plan, step))
    )


def _complete(journal: Journal, standing: Standing) -> ApplyOutcome:
    """Nothing is left to do; an apply that was cut off gets the end of its records."""
    if standing.owed or not standing.closed:
        _begin(journal, f"resumed: all of {standing.total} done before", standing.owed)
        journal.end(_ending(standing.total, standing.total, state="complete"))
    return ApplyOutcome(done=(), skipped=standing.done_ids)


@dataclass(frozen=True, slots=True)
class _Run:
    """One apply at work."""

    plan: Plan
    cluster: Executor
    journal: Journal
    view: LiveView
    before: int
    """Steps that were done before."""
    total: int
    on_progress: Callable[[int, int, str], None] | None
    stop: Callable[[], bool] | None

    def carry_out(self, left: Sequence[Step], skipped: tuple[str, ...]) -> ApplyOutcome:
        """Do the steps in order; end at the first failure, or when told to."""
        ids = _ids(left)
        for count, step in enumerate(left):
            if self.stop is not None and self.stop():
                return ApplyOutcome(ids[:count], skipped, remaining=ids[count:])
            if (why := self._do(step)) is not None:
                return ApplyOutcome(ids[:count], skipped, FailedAction(step.id, why), ids[count + 1 :])
            if self.on_progress is not None:
                self.on_progress(self.before + count + 1, self.total, _label(step))
        return ApplyOutcome(ids, skipped)

    def _do(self, step: Step) -> str | None:
        """Check, write the intent, act; why it failed, None if it was done."""
        sights = () if isinstance(step, PromiseStep) else self.view.sights(step)
        seen = tuple(sight.text for sight in sights)
        if unmet := [str(sight.drift) for sight in sights if sight.drift]:
            why = f"a precondition does not hold: {'; '.join(unmet)}"
            self.journal.failed(step, why=why, seen=seen)
            return why
        self.journal.intent(step, detail=_label(step), seen=seen)
        try:
            self.journal.write()
        except PlannerError as error:
            return f"its intent cannot be recorded: {error}"
        started = time.perf_counter()
        try:
            self._perform(step)
        except PlannerError as error:
            self.journal.failed(step, why=str(error), seconds=time.perf_counter() - started)
            return str(error)
        self.journal.done(step, seconds=time.perf_counter() - started)
        return None

    def _perform(self, step: Step) -> None:
        key = key_of(self.plan, step)
        if isinstance(step, PromiseStep):
            self.cluster.keep_promises(step.promises, key)
        else:
            self.cluster.perform(step, key)
            self.view.done(step)


def _label(step: Step) -> str:
    return step.label if isinstance(step, PromiseStep) else label(step)


def _begin(journal: Journal, how: str, owed: Iterable[Step]) -> None:
    """Open the records of this apply, with the outcomes that an interrupted one owed."""
    journal.begin(how)
    for step in owed:
        journal.skipped(step)


def _close(journal: Journal, plan: Plan, outcome: ApplyOutcome, *, total: int) -> None:
    state = "failed" if outcome.failed else "stopped" if outcome.remaining else "complete"
    try:
        journal.end(_ending(len(outcome.skipped) + len(outcome.done), total, state=state))
    except PlannerError as error:
        if state == "complete":
            raise unrecorded(plan.plan_id, outcome, error) from None
        _LOG.warning("phase=apply plan=%s end=unrecorded reason=%s", plan.plan_id, error)


def _ending(done: int, total: int, *, state: str) -> str:
    return f"{state}: {done} of {total} done"


def _ids(steps: Iterable[Step]) -> tuple[str, ...]:
    return tuple(step.id for step in steps)
