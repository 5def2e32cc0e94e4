"""
Records that interrupted applies owe: a plan that is given up leaves no action without its outcome.

An apply that is resumed completes its own records. One that is not, since its plan is stale or another plan
was made, is completed by the next apply: the log has the keys of its actions, and the cluster their marks.
"""

from __future__ import annotations

from collections import defaultdict
from typing import TYPE_CHECKING, Final

from gpuplan.models.errors import PlannerError
from gpuplan.models.plan.audit import ActionOutcome, AuditEntry, AuditKind
from gpuplan.planner.executors.interface import ActionPhase

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable
    from datetime import datetime

    from gpuplan.models.plan.audit import AuditRecord
    from gpuplan.planner.apply.audit_log import AuditWriter
    from gpuplan.planner.executors.interface import Executor

_MAY_LAND: Final = (ActionPhase.UNKNOWN, ActionPhase.ASKED, ActionPhase.UNDER_WAY)


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
        if any(phase in _MAY_LAND for phase in phases.values()):
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
