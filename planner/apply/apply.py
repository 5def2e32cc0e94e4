"""
Carry a plan out: check that it still holds, carry out its actions, and record each of them.

This package is the only caller of a cluster's changing methods. The order of writes makes it safe to kill the
process at any time. The intent is durable before the action, and an action is done once for its key. After an
interruption the cluster alone decides which actions are done.
"""

from __future__ import annotations

import logging
import time
from collections import defaultdict
from typing import TYPE_CHECKING, Final

from gpuplan.models.errors import PlannerError, StalePlanError
from gpuplan.models.plan.actions import ActionKind, changes_of
from gpuplan.models.plan.audit import ActionOutcome, AuditEntry, AuditKind
from gpuplan.planner.apply.journal import ApplyJournal
from gpuplan.planner.apply.outcome import (
    NO_HOOKS,
    ApplyHooks,
    ApplyOutcome,
    IncapableError,
    raise_unless_complete,
    unrecorded_error,
)
from gpuplan.planner.apply.promises import steps_of
from gpuplan.planner.apply.standing import (
    ApplyProgress,
    phases_of,
    progress_of,
    require_applicable,
    snapshot_for,
)
from gpuplan.planner.apply.steps.apply_loop import ApplyLoop
from gpuplan.planner.executors.interface import ActionPhase
from gpuplan.planner.plan_file.plan_file import uid_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable
    from datetime import datetime

    from gpuplan.models.plan.audit import AuditRecord
    from gpuplan.models.plan.plan import Plan
    from gpuplan.models.policy.policy import Drift
    from gpuplan.planner.apply.audit_log import AuditLog, AuditWriter
    from gpuplan.planner.apply.promises import Step
    from gpuplan.planner.approval.approval_check import ApprovalCheck
    from gpuplan.planner.executors.interface import ClusterWriter, Executor


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
    hooks: ApplyHooks = NO_HOOKS,
    approval: ApprovalCheck | None = None,
) -> ApplyOutcome:
    """
    Carry out all steps of a plan, several at a time; its promises come last.

    The plan's policy says how many, how long each may last, how often it is tried again, and whether the rest
    goes on once one has failed (`ApplyPolicy`).

    Parameters
    ----------
    actor
        user@host, for the audit log.
    resume
        Continue a plan that an earlier run applied in part.
    drift_mode
        How much the cluster may have changed since the plan was made; the default is the plan policy's.
    hooks
        Reports progress, and stops the run early.
    approval
        What the policy in force asks for; without it the plan needs no signature.

    Raises
    ------
    UnapprovedError
        The plan lacks signatures; this run did nothing.
    StalePlanError
        The cluster has changed, or is another cluster; this run did nothing.
    UnperformedError
        The log records steps as done that the cluster has not performed; this run did nothing.
    IncapableError
        The cluster cannot carry out some kind of action of the plan; this run did nothing.
    PartlyAppliedError
        The plan is done in part: an action failed, the run was stopped, or an earlier run did a part and
        `resume` is not set.
    PlannerError
        The first action failed, or the run was stopped before it; nothing was changed. Or another process
        uses the cluster or the log.
    """
    require_valid_order(plan)
    require_capable(plan, cluster)
    with cluster.exclusively(), audit.writing(actor=actor, now=now) as log:
        # First: an apply that is refused below still completes what earlier ones owe.
        close_interrupted(log, cluster, actor=actor, now=now, but=uid_of(plan))
        standing = _standing(plan, cluster, log.records)
        journal = ApplyJournal(log, plan=plan, cluster=cluster.identity, actor=actor, now=now)
        if not standing.left:
            return _complete(journal, standing)
        # Only if there is something to do: a plan that is applied already needs no signature any more.
        approvers = approval.require(plan, cluster.identity, now()) if approval else ()
        live = snapshot_for(plan, cluster, standing)
        try:
            require_applicable(plan, live, standing, resume=resume, drift_mode=drift_mode)
        except StalePlanError:
            # It does not go on, so this is the last time that its records can be completed for certain.
            close_interrupted(log, cluster, actor=actor, now=now)
            raise
        before, total = len(standing.done), standing.total
        how = f"resumed: {before} of {total} done before" if before else "from the start"
        _begin(journal, how, standing.owed, approvers)
        started = time.perf_counter()
        with journal.written_whatever_happens():
            outcome = ApplyLoop(plan, cluster, journal, live, standing, hooks).run()
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
    require_capable(plan, cluster)
    with cluster.looking():
        standing = _standing(plan, cluster, records)
        if standing.left:
            live = snapshot_for(plan, cluster, standing)
            require_applicable(plan, live, standing, resume=resume, drift_mode=drift_mode)
    return standing


def _standing(plan: Plan, cluster: Executor, records: Iterable[AuditRecord]) -> ApplyProgress:
    return progress_of(plan, cluster.identity, records, phases_of(plan, cluster))


def _complete(journal: ApplyJournal, standing: ApplyProgress) -> ApplyOutcome:
    """Return the outcome if no step is left; write the missing end of an interrupted apply's records."""
    if standing.owed or not standing.closed:
        _begin(journal, f"resumed: all of {standing.total} done before", standing.owed)
        journal.end(_ending(standing.total, standing.total, state="complete"))
    return ApplyOutcome(done=(), skipped=standing.done_ids)


def _begin(journal: ApplyJournal, how: str, owed: Iterable[Step], approvers: tuple[str, ...] = ()) -> None:
    """Open the records of this apply, and add the outcomes that an interrupted one did not record."""
    journal.begin(how, approvers)
    for step in owed:
        journal.skipped(step)


def _close(journal: ApplyJournal, plan: Plan, outcome: ApplyOutcome, *, total: int) -> None:
    state = "failed" if outcome.failures else "stopped" if outcome.remaining else "complete"
    try:
        journal.end(_ending(len(outcome.skipped) + len(outcome.done), total, state=state))
    except PlannerError as error:
        if state == "complete":
            raise unrecorded_error(plan.plan_id, outcome, error) from None
        _LOG.warning("phase=apply plan=%s end=unrecorded reason=%s", plan.plan_id, error)


def _ending(done: int, total: int, *, state: str) -> str:
    return f"{state}: {done} of {total} done"


def require_capable(plan: Plan, cluster: ClusterWriter) -> None:
    """Raise IncapableError if an executor cannot carry out some action of a plan."""
    missing: dict[ActionKind, list[str]] = defaultdict(list)
    for change in changes_of(plan.actions):
        if (kind := ActionKind(change.type)) not in cluster.can:
            missing[kind].append(change.id)
    if missing:
        raise IncapableError(plan.plan_id, missing)


def require_valid_order(plan: Plan) -> None:
    """Raise PlannerError if an action id occurs twice or an action precedes one that it depends on."""
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


# Records that interrupted applies owe: a plan that is given up leaves no action without its outcome.
#
# An apply that is resumed completes its own records. One that is not, since its plan is stale or another plan
# was made, is completed by the next apply: the log has the keys of its actions, and the cluster their marks.


def close_interrupted(
    log: AuditWriter, cluster: Executor, *, actor: str, now: Callable[[], datetime], but: str = ""
) -> None:
    """
    Record what interrupted applies did and could not record, and that they are over.

    `but` is the uid of a plan that goes on. A plan with actions that may still land stays open. The cluster
    is only asked, before the first snapshot, so no step of an action is done.
    """
    for plan_uid, own in _interrupted(log.records, cluster.identity).items():
        if plan_uid == but:
            continue
        begun = _without_outcome(own)
        try:
            found = cluster.observe([f"{plan_uid}:{action}" for action in begun]) if begun else {}
        except PlannerError:
            continue
        phases = {action: found[f"{plan_uid}:{action}"].phase for action in begun}
        if any(phase.may_land for phase in phases.values()):
            continue
        landed = [begun[action] for action, phase in phases.items() if phase is ActionPhase.LANDED]
        entries = [_entry(intent, actor, now(), AuditKind.OUTCOME) for intent in landed]
        log.append([*entries, _entry(own[-1], actor, now(), AuditKind.END)])


def _interrupted(records: Iterable[AuditRecord], cluster: str) -> dict[str, list[AuditRecord]]:
    """Records of the plans on this cluster that have no end, by the uid of the plan."""
    own: defaultdict[str, list[AuditRecord]] = defaultdict(list)
    for record in records:
        if record.cluster == cluster and record.plan_uid:
            own[record.plan_uid].append(record)
    return {uid: each for uid, each in own.items() if each[-1].kind is not AuditKind.END}


def _without_outcome(own: Iterable[AuditRecord]) -> dict[str, AuditRecord]:
    """The last intents of actions that have no outcome since, by the id of the action."""
    begun: dict[str, AuditRecord] = {}
    for record in own:
        if record.kind is AuditKind.INTENT:
            begun[record.action] = record
        elif record.kind is AuditKind.OUTCOME:
            begun.pop(record.action, None)
    return begun


def _entry(last: AuditRecord, actor: str, at: datetime, kind: AuditKind) -> AuditEntry:
    of_action = kind is AuditKind.OUTCOME
    return AuditEntry(
        at=at,
        who=actor,
        kind=kind,
        plan_id=last.plan_id,
        plan_uid=last.plan_uid,
        cluster=last.cluster,
        action=last.action if of_action else "",
        type=last.type if of_action else "",
        subject=last.subject if of_action else "",
        outcome=ActionOutcome.SKIPPED if of_action else None,
        detail="the cluster had done it before" if of_action else "interrupted, and not resumed",
    )
