"""Unfinished applies of earlier runs, found from the audit log and the cluster."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from typing import TYPE_CHECKING

from gpuplan.models.plan.actions import ActionKind, changes_of
from gpuplan.models.plan.audit import ActionOutcome
from gpuplan.planner.action_labels import count_by_kind
from gpuplan.planner.apply.promises import steps_of
from gpuplan.planner.apply.standing import records_of
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


# Whether the policy's `approval` lets a plan be applied without an operator.


def approval_reason(plan: Plan) -> str:
    """Text with the parts of a plan that need approval under its policy; empty if none do."""
    rules = plan.policy.approval
    changes = changes_of(plan.actions)
    found = Counter[str](change.type for change in changes)
    reasons = []
    if kinds := [change for change in changes if change.type in rules.needed_for]:
        reasons.append(f"{count_by_kind(kinds, done=False)}, which approval.needed_for names")
    for knob, number, most in (
        ("changes", len(changes), rules.most_changes),
        ("preemptions", found[ActionKind.PREEMPT], rules.most_preemptions),
    ):
        if most is not None and number > most:
            reasons.append(f"{number:,} {knob}, more than approval.most_{knob} {most:,}")
    return "; ".join(reasons)
