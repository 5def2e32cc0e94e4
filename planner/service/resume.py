"""Unfinished applies of earlier runs, found from the audit log and the cluster."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from gpuplan.models.plan.audit import ActionOutcome
from gpuplan.planner.apply.promises import steps_of
from gpuplan.planner.apply.standing import records_of
from gpuplan.planner.service.approval import approval_reason
from gpuplan.planner.warm_start import has_same_rules

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from gpuplan.models.plan.audit import AuditRecord
    from gpuplan.models.plan.plan import Plan
    from gpuplan.models.policy.policy import Policy
    from gpuplan.planner.apply.promises import Step


@dataclass(frozen=True, slots=True)
class AppliedSteps:
    """Progress of a plan on a cluster."""

    begun: bool
    done: tuple[str, ...]
    """Ids of the done steps, in plan order."""
    failed: bool
    """True if a step failed; the rest would fail again."""


def applied_steps(
    plan: Plan, cluster: str, records: Iterable[AuditRecord], performed: Callable[[Step], bool]
) -> AppliedSteps:
    """Trail of a plan on the cluster with this identity; `performed` asks the cluster about a step."""
    own = records_of(plan, cluster, records)
    return AppliedSteps(
        begun=bool(own),
        done=tuple(step.id for step in steps_of(plan) if own and performed(step)),
        failed=any(record.outcome is ActionOutcome.FAILED for record in own),
    )


def resume_refusal(plan: Plan, trail: AppliedSteps, policy: Policy) -> str:
    """Why a run under this policy does not continue a plan; empty if it may, or if all steps are done."""
    if trail.failed:
        return "an action of it failed in an earlier run, which could not record that"
    if len(trail.done) == len(steps_of(plan)):
        return ""
    if not has_same_rules(policy, plan.policy):
        return "the policy has other rules than when it was planned"
    if why := approval_reason(plan):
        return f"it needs an operator's approval: {why}"
    return ""
