"""
Carry a plan out: prove that it is still true, do its actions one by one, and leave a record of each.

The only caller of a cluster's changing methods. The order of writing makes it safe to kill at any moment:
the intent is durable before the deed, the deed is done once for its key, and what an interrupted run left
unknown is asked of the cluster.
"""

from __future__ import annotations

import logging
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from planner.apply_outcome import (
    ApplyOutcome,
    DriftedPlanError,
    FailedAction,
    raise_unless_complete,
    refuse_unfinished,
    unrecorded,
)
from planner.change_words import label
from planner.drift import drift
from planner.journal import Journal
from planner.models.errors import PlannerError, StalePlanError
from planner.models.units import print_timestamp
from planner.preconditions import LiveView
from planner.progress import verify_rest
from planner.promises import PromiseStep, reminded_of, steps_of

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Sequence
    from datetime import datetime

    from planner.auditing import AuditLog
    from planner.executors.interface import Executor
    from planner.models.plan import Plan
    from planner.models.policy import Drift
    from planner.models.snapshot import Snapshot
    from planner.promises import Step

_LOG: Final = logging.getLogger(__name__)
_NAMED_AT_MOST: Final = 20


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
        The cluster has changed; nothing was done by this run.
    PartlyAppliedError
        Some of the plan is done and some is not: an action failed or `stop` said so; or an earlier run did
        a part of it and `resume` is not set.
    PlannerError
        The first action failed, or the run was stopped before it: nothing was changed. Or another process
        is at work on the cluster or the log.
    """
    steps = steps_of(plan)
    _refuse_bad_order(plan)
    with cluster.exclusively(), audit.writing(who=who, now=now) as log:
        journal = Journal(log, plan_id=plan.plan_id, cluster=cluster.identity, who=who, now=now)
        recorded = journal.recorded
        done = {step.id for step in steps if step.id in recorded or cluster.performed(key_of(plan, step))}
        skipped = tuple(step.id for step in steps if step.id in done)
        owed = [step for step in steps if step.id in done and step.id not in recorded]
        left = [step for step in steps if step.id not in done]
        if not left:
            if owed or not journal.closed:
                _begin(journal, f"resumed: all of {len(steps)} done before", owed)
                journal.end(_ending(len(steps), len(steps), state="complete"))
            return ApplyOutcome(done=(), skipped=skipped)
        if done and not resume:
            raise refuse_unfinished(plan.plan_id, skipped, _ids(left))
        live = reminded_of(cluster.snapshot(), plan.snapshot)
        if items := drift(plan, live, done=done, mode=drift_mode or plan.policy.drift):
            raise DriftedPlanError(plan.plan_id, items)
        _refuse_broken_rules(plan, live, done)
        how = f"resumed: {len(done)} of {len(steps)} done before" if done else "from the start"
        _begin(journal, how, owed)
        started = time.perf_counter()
        run = _Run(plan, cluster, journal, LiveView.of(live), len(done), len(steps), on_progress, stop)
        with journal.written_whatever_happens():
            outcome = run.carry_out(left, skipped)
        _close(journal, plan, outcome, total=len(steps))
    _LOG.info("phase=apply plan=%s seconds=%.3f", plan.plan_id, time.perf_counter() - started)
    raise_unless_complete(plan.plan_id, outcome)
    return outcome


def key_of(plan: Plan, step: Step) -> str:
    """The name of the step for ever; all applies of one plan share it."""
    return f"{plan.plan_id}:{step.id}"


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


def _refuse_broken_rules(plan: Plan, live: Snapshot, done: Collection[str]) -> None:
    """Whatever drift is accepted, the cluster as it would be must break no rule, quotas included."""
    past = sorted(each.job for each in plan.planned if each.promised and each.start <= live.taken_at)
    if past and not done:
        more = f" and {len(past) - 1} more" if len(past) > 1 else ""
        raise StalePlanError(
            f"Plan {plan.plan_id} is stale: it promises {past[0]}{more} a start that is past, as it is "
            f"{print_timestamp(live.taken_at)} in the cluster.\nRun `gpuplan plan` again."
        )
    violations = verify_rest(plan, live, done).violations
    if violations:
        listed = "".join(f"\n  {violation}" for violation in violations[:_NAMED_AT_MOST])
        more = (
            f"\n  … and {len(violations) - _NAMED_AT_MOST} more" if len(violations) > _NAMED_AT_MOST else ""
        )
        raise StalePlanError(
            f"Plan {plan.plan_id} is stale: in the cluster as it is now it would break rules:{listed}{more}\n"
            "Run `gpuplan plan` again."
        )


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


def _refuse_bad_order(plan: Plan) -> None:
    """Release before acquire is the order of the plan; one that breaks its own order is not begun."""
    seen: set[str] = set()
    for action in plan.actions:
        if action.id in seen:
            raise PlannerError(
                f"plan {plan.plan_id}: expected each action id once, found {action.id} twice.\n"
                "Run `gpuplan plan` again, and report this plan."
            )
        if early := sorted(set(action.after_actions) - seen):
            raise PlannerError(
                f"plan {plan.plan_id}: action {action.id} must come after {', '.join(early)}; "
                "expected those before it, found them later or not at all.\n"
                "Run `gpuplan plan` again, and report this plan."
            )
        seen.add(action.id)


def _ids(steps: Iterable[Step]) -> tuple[str, ...]:
    return tuple(step.id for step in steps)
