"""The live cluster of a run: its snapshots, plans carried out there, and applies left unfinished."""

from __future__ import annotations

import logging
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from gpuplan.models.plan.actions import Change, changes_of
from gpuplan.models.plan.audit import ActionOutcome, AuditRecord
from gpuplan.planner.apply.apply import apply_plan
from gpuplan.planner.apply.audit_log import AuditLog, verify_log
from gpuplan.planner.apply.outcome import ApplyHooks
from gpuplan.planner.apply.promises import steps_of
from gpuplan.planner.apply.standing import key_of, landed_steps, records_of
from gpuplan.planner.approval.conditions import approval_reason
from gpuplan.planner.executors.simulated import SimulatedCluster
from gpuplan.planner.service.event_log import log_event
from gpuplan.planner.warm_start import has_same_rules

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable
    from datetime import datetime

    from gpuplan.models.plan.plan import Plan
    from gpuplan.models.policy.approval import Approval
    from gpuplan.models.policy.policy import Drift, Policy
    from gpuplan.models.snapshot import Snapshot
    from gpuplan.planner.apply.outcome import ApplyOutcome
    from gpuplan.planner.executors.interface import Executor


_LOG: Final = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class LiveCluster:
    """A cluster that an executor reads and changes."""

    executor: Executor
    audit: AuditLog
    actor: str
    now: Callable[[], datetime]
    stop: Callable[[], bool]
    drift_mode: Drift | None = None
    advance: int = 0
    """Seconds by which the clock of a simulated cluster advances before each snapshot."""
    longest_audit: int = 16 * 2**20
    """Size of an audit log in bytes before a new one is begun, since each apply reads all of it."""
    pending: dict[str, Change] = field(default_factory=dict)
    """Actions of plans that did not end well and may be under way, by key."""

    def read(self) -> Snapshot:
        """Snapshot of the cluster as it is now."""
        if self.advance and isinstance(self.executor, SimulatedCluster):
            self.executor.advance(self.advance)
        return self.executor.snapshot()

    def apply(self, plan: Plan, *, resume: bool) -> ApplyOutcome:
        """Carry out a plan, up to its end or until `stop` returns True."""
        if not resume:
            self._begin_new_log_when_long()
        keys = self._follow(plan)
        outcome = apply_plan(
            plan,
            self.executor,
            self.audit,
            actor=self.actor,
            now=self.now,
            resume=resume,
            drift_mode=self.drift_mode,
            hooks=ApplyHooks(stop=self.stop),
        )
        for key in keys:
            self.pending.pop(key, None)
        return outcome

    def under_way(self) -> tuple[Change, ...]:
        """Actions of earlier plans that the cluster still carries out, or of which it cannot tell."""
        if self.pending:
            for key, progress in self.executor.observe(tuple(self.pending)).items():
                if not progress.phase.may_land:
                    del self.pending[key]
        return tuple(self.pending.values())

    def _follow(self, plan: Plan) -> tuple[str, ...]:
        """Count the actions of a plan as pending; returns their keys."""
        steps = {key_of(plan, change): change for change in changes_of(plan.actions)}
        self.pending.update(steps)
        return tuple(steps)

    def _begin_new_log_when_long(self) -> None:
        """Rename a long audit log; only between plans, so that an apply to resume stays in one log."""
        path = self.audit.place
        if not path.exists() or path.stat().st_size <= self.longest_audit:
            return
        aside = path.with_name(f"{path.stem}-{self.now():%Y%m%dT%H%M%SZ}{path.suffix}")
        trail = self.audit.set_aside(aside)
        log_event(
            _LOG, "audit_set_aside", file=str(aside), records=len(trail.records), last_hash=trail.last_hash
        )

    def applied_steps(self, plan: Plan) -> AppliedSteps:
        """Progress of a plan, by this run or any other."""
        self._follow(plan)
        path = self.audit.path
        records = verify_log(path).records if path.exists() else ()
        there = landed_steps(plan, self.executor)
        return applied_steps(plan, self.executor.identity, records, there)


# Unfinished applies of earlier runs, found from the audit log and the cluster.


@dataclass(frozen=True, slots=True)
class AppliedSteps:
    """Progress of a plan on a cluster."""

    begun: bool
    done: tuple[str, ...]
    """Ids of the done steps, in plan order."""
    failed: bool
    """True if a step failed and has not landed since; the rest would fail again."""


def applied_steps(
    plan: Plan, cluster: str, records: Iterable[AuditRecord], there: Collection[str]
) -> AppliedSteps:
    """Trail of a plan on the cluster with this identity; the steps with the ids `there` have landed."""
    own = records_of(plan, cluster, records)
    return AppliedSteps(
        begun=bool(own),
        done=tuple(step.id for step in steps_of(plan) if own and step.id in there),
        failed=any(record.outcome is ActionOutcome.FAILED and record.action not in there for record in own),
    )


def resume_refusal(plan: Plan, trail: AppliedSteps, policy: Policy, approval: Approval) -> str:
    """
    Why a run under this policy does not continue a plan; empty if it may, or if all steps are done.

    `approval` has the rules in force on the cluster.
    """
    if trail.failed:
        return "an action of it failed in an earlier run, which could not record that"
    if len(trail.done) == len(steps_of(plan)):
        return ""
    if not has_same_rules(policy, plan.policy):
        return "the policy has other rules than when it was planned"
    if why := approval_reason(plan, approval):
        return f"it needs an operator's approval: {why}"
    return ""
