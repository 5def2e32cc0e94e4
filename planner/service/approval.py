"""Whether the policy's `approval` lets a plan be applied without an operator."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

from gpuplan.models.plan.actions import ActionKind, changes_of
from gpuplan.planner.action_labels import count_by_kind

if TYPE_CHECKING:
    from gpuplan.models.plan.plan import Plan


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
