"""
Carry a plan out: check that it still holds, do its actions one by one, and record each of them.

This module is the only caller of a cluster's changing methods. The order of writes makes it safe to kill the
process at any time. The intent is durable before the action, and an action is done once for its key. After an
interruption the cluster alone decides which actions are done.
"""

from __future__ import annotations

import logging
import time
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from gpuplan.models.errors import PlannerError
from gpuplan.models.plan.audit import ActionOutcome, AuditEntry, AuditKind
from gpuplan.planner.action_labels import action_label, action_subject
from gpuplan.planner.apply.live_view import LiveView
from gpuplan.planner.apply.outcome import ApplyOutcome, FailedAction, raise_unless_complete, unrecorded_error
from gpuplan.planner.apply.promises import SUBJECT, PromiseStep, steps_of, with_promises_of
from gpuplan.planner.apply.standing import (
    ApplyProgress,
    key_of,
    progress_of,
    require_applicable,
    require_valid_order,
)
from gpuplan.planner.plan_file.plan_file import uid_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence
    from datetime import datetime

    from gpuplan.models.plan.audit import AuditRecord
    from gpuplan.models.plan.plan import Plan
    from gpuplan.models.policy.policy import Drift
    from gpuplan.planner.apply.audit_log import AuditLog, AuditWriter
    from gpuplan.planner.apply.promises import Step
    from gpuplan.planner.executors.interface import Executor


# Records that one apply writes to the audit log.


class ApplyJournal:
    """
    The records of one plan on one cluster.

    Records are collected until `write`, so that the outcome of one action and the intent of the next need
    only one disk write.
    """

    def __init__(
        self, log: AuditWriter, *, plan: Plan, cluster: str, actor: str, now: Callable[[], datetime]
    ) -> None:
        self._log = log
        self._plan_id = plan.plan_id
        self._plan_uid = uid_of(plan)
        self._cluster = cluster
        self._actor = actor
        self._now = now
        self._pending: list[AuditEntry] = []

    def begin(self, detail: str) -> None:
        """Note that an apply starts."""
        self._note(AuditKind.BEGIN, detail=detail)

    def intent(self, action: Step, *, detail: str, seen: tuple[str, ...]) -> None:
        """Note that an action is about to be done."""
        self._note(AuditKind.INTENT, action, detail=detail, seen=seen)

    def done(self, action: Step, *, seconds: float) -> None:
        """Note that an action was done."""
        self._note(AuditKind.OUTCOME, action, outcome=ActionOutcome.DONE, seconds=seconds)

    def skipped(self, action: Step) -> None:
        """Note an action that an earlier apply did but could not record."""
        detail = "the cluster had done it before"
        self._note(AuditKind.OUTCOME, action, outcome=ActionOutcome.SKIPPED, detail=detail)

    def failed(
        self, action: Step, *, why: str, seen: tuple[str, ...] = (), seconds: float | None = None
    ) -> None:
        """Note that an action failed."""
        outcome = ActionOutcome.FAILED
        self._note(AuditKind.OUTCOME, action, outcome=outcome, detail=why, seen=seen, seconds=seconds)

    def end(self, detail: str) -> None:
        """Note that the apply is over, and write everything."""
        self._note(AuditKind.END, detail=detail)
        self.write()

    def write(self) -> None:
        """Write all noted records durably."""
        if self._pending:
            self._log.append(self._pending)
            self._pending = []

    @contextmanager
    def written_whatever_happens(self) -> Iterator[None]:
        """Write the noted records even if the block ends with an unexpected error."""
        try:
            yield
        except BaseException:
            self.write()
            raise

    def _note(
        self,
        kind: AuditKind,
        action: Step | None = None,
        *,
        outcome: ActionOutcome | None = None,
        detail: str = "",
        seen: tuple[str, ...] = (),
        seconds: float | None = None,
    ) -> None:
        self._pending.append(
            AuditEntry(
                at=self._now(),
                who=self._actor,
                kind=kind,
                plan_id=self._plan_id,
                plan_uid=self._plan_uid,
                cluster=self._cluster,
                action=action.id if action else "",
                type=action.type if action else "",
                subject=_subject(action) if action else "",
                outcome=outcome,
                detail=detail,
                seen=seen,
                seconds=None if seconds is None else round(seconds, 6),
            )
        )


def _subject(step: Step) -> str:
    return SUBJECT if isinstance(step, PromiseStep) else action_subject(step)


# The apply itself.


_LOG: Final = logging.getLogger(__name__)


def apply_plan(
    plan: Plan,
    cluster: Executor,
    audit: AuditLog,
    *,
    actor: str,
    now: Callable[[], datetime],
    resume: bool = False,
    drift_mode: Drift | None = None,
    on_progress: Callable[[int, int, str], None] | None = None,
    stop: Callable[[], bool] | None = None,
) -> ApplyOutcome:
    """
    Carry out all steps of a plan, or the steps up to the first failure; its promises come last.

    Parameters
    ----------
    actor
        user@host, for the audit log.
    resume
        Continue a plan that an earlier run applied in part.
    drift_mode
        How much the cluster may have changed since the plan was made; the default is the plan policy's.
    on_progress
        Called after each action with the number done, the total number, and a label of the action.
    stop
        Called before each action; the run ends once it returns True.

    Raises
    ------
    StalePlanError
        The cluster has changed, or is another cluster; this run did nothing.
    UnperformedError
        The log records steps as done that the cluster has not performed; this run did nothing.
    PartlyAppliedError
        The plan is done in part: an action failed, `stop` returned True, or an earlier run did a part and
        `resume` is not set.
    PlannerError
        The first action failed, or the run was stopped before it; nothing was changed. Or another process
        uses the cluster or the log.
    """
    require_valid_order(plan)
    with cluster.exclusively(), audit.writing(actor=actor, now=now) as log:
        standing = _standing(plan, cluster, log.records)
        journal = ApplyJournal(log, plan=plan, cluster=cluster.identity, actor=actor, now=now)
        if not standing.left:
            return _complete(journal, standing)
        live = with_promises_of(cluster.snapshot(), plan.snapshot)
        require_applicable(plan, live, standing, resume=resume, drift_mode=drift_mode)
        before, total = len(standing.done), standing.total
        how = f"resumed: {before} of {total} done before" if before else "from the start"
        _begin(journal, how, standing.owed)
        started = time.perf_counter()
        view = LiveView.of(live, plan.actions)
        run = _ApplyRun(plan, cluster, journal, view, before, total, on_progress, stop)
        with journal.written_whatever_happens():
            outcome = run.perform_steps(standing.left, standing.done_ids)
        _close(journal, plan, outcome, total=total)
    _LOG.info("phase=apply plan=%s seconds=%.3f", plan.plan_id, time.perf_counter() - started)
    raise_unless_complete(plan.plan_id, outcome)
    return outcome


def check_plan(
    plan: Plan, cluster: Executor | None, audit: AuditLog, *, resume: bool, drift_mode: Drift | None = None
) -> ApplyProgress:
    """
    Progress of a plan on a cluster; raises the errors that apply would raise, and changes nothing.

    Without a cluster the check is for a new cluster made from the plan's own snapshot.
    """
    require_valid_order(plan)
    records = audit.records_if_writable()
    if cluster is None:
        steps = tuple(steps_of(plan))
        standing = ApplyProgress(total=len(steps), left=steps)
        require_applicable(plan, plan.snapshot, standing, resume=resume, drift_mode=drift_mode)
        return standing
    with cluster.exclusively():
        standing = _standing(plan, cluster, records)
        if standing.left:
            live = with_promises_of(cluster.snapshot(), plan.snapshot)
            require_applicable(plan, live, standing, resume=resume, drift_mode=drift_mode)
    return standing


def _standing(plan: Plan, cluster: Executor, records: Iterable[AuditRecord]) -> ApplyProgress:
    return progress_of(
        plan, cluster.identity, records, performed=lambda step: cluster.performed(key_of(plan, step))
    )


def _complete(journal: ApplyJournal, standing: ApplyProgress) -> ApplyOutcome:
    """Return the outcome if no step is left; write the missing end of an interrupted apply's records."""
    if standing.owed or not standing.closed:
        _begin(journal, f"resumed: all of {standing.total} done before", standing.owed)
        journal.end(_ending(standing.total, standing.total, state="complete"))
    return ApplyOutcome(done=(), skipped=standing.done_ids)


@dataclass(frozen=True, slots=True)
class _ApplyRun:
    """State of one running apply."""

    plan: Plan
    cluster: Executor
    journal: ApplyJournal
    view: LiveView
    before: int
    """Number of steps done by earlier runs."""
    total: int
    on_progress: Callable[[int, int, str], None] | None
    stop: Callable[[], bool] | None

    def perform_steps(self, left: Sequence[Step], skipped: tuple[str, ...]) -> ApplyOutcome:
        """Do the steps in order; end at the first failure, or when `stop` returns True."""
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
        """Check the preconditions, write the intent, act; returns the failure, None if it was done."""
        sights = () if isinstance(step, PromiseStep) else self.view.check_preconditions(step)
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
    return step.label if isinstance(step, PromiseStep) else action_label(step)


def _begin(journal: ApplyJournal, how: str, owed: Iterable[Step]) -> None:
    """Open the records of this apply, and add the outcomes that an interrupted one did not record."""
    journal.begin(how)
    for step in owed:
        journal.skipped(step)


def _close(journal: ApplyJournal, plan: Plan, outcome: ApplyOutcome, *, total: int) -> None:
    state = "failed" if outcome.failed else "stopped" if outcome.remaining else "complete"
    try:
        journal.end(_ending(len(outcome.skipped) + len(outcome.done), total, state=state))
    except PlannerError as error:
        if state == "complete":
            raise unrecorded_error(plan.plan_id, outcome, error) from None
        _LOG.warning("phase=apply plan=%s end=unrecorded reason=%s", plan.plan_id, error)


def _ending(done: int, total: int, *, state: str) -> str:
    return f"{state}: {done} of {total} done"


def _ids(steps: Iterable[Step]) -> tuple[str, ...]:
    return tuple(step.id for step in steps)
