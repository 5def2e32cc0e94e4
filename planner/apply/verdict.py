"""What the verifier says of a plan against a cluster as it is now."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from gpuplan.models.plan.actions import changes_of
from gpuplan.models.validation.damage import survey_damage
from gpuplan.models.verifier.verify import unnamed_damage
from gpuplan.planner.apply.plan_view import with_expected_gpus, with_untold
from gpuplan.planner.apply.standing import actions_done_in, verify_remaining

if TYPE_CHECKING:
    from gpuplan.models.plan.plan import Plan
    from gpuplan.models.plan.violation import Violation
    from gpuplan.models.snapshot import Snapshot


@dataclass(frozen=True, slots=True)
class Verdict:
    """What the independent verifier says of a plan: the rules it breaks, and the objective recomputed."""

    violations: tuple[Violation, ...]
    """Broken rules, sorted, each once; empty if every rule is kept."""
    source_changed: bool
    """True if the snapshot is not the one that the plan was made from."""
    actions_done: tuple[str, ...]
    """Ids of the actions that a changed snapshot shows as done; the rest is judged."""
    objective: int
    """Recomputed, in points; means little while there are violations."""
    terms: dict[str, int]
    """Signed parts of it by name, in points; they sum to it."""
    stated_terms: dict[str, int]
    """What the plan says of the same."""

    @property
    def verified(self) -> bool:
        """True if no rule is broken and, against an unchanged snapshot, the objective is as stated."""
        return not self.violations and (self.source_changed or self.terms == self.stated_terms)


def verdict_on(plan: Plan, snapshot: Snapshot) -> Verdict:
    """
    Judge a plan against a cluster: every rule again, and the objective from scratch.

    Where the snapshot is not what the plan was made from, what counts is the cluster there with those actions
    carried out that are still to be done.
    """
    snapshot = with_expected_gpus(with_untold(snapshot.canonical(), plan), plan)
    sound = survey_damage(snapshot).sound
    unchanged = sound.fingerprint() == plan.base.snapshot
    done = frozenset() if unchanged else actions_done_in(plan, snapshot)
    verification = verify_remaining(plan, snapshot, done)
    violations = verification.violations
    if unchanged:
        # What is released already is lost no more, while the rest of the plan is still to be done.
        shown = actions_done_in(plan, snapshot)
        over = {each.job for each in changes_of(plan.actions) if each.type == "release" and each.id in shown}
        named = [each.job for each in plan.findings if each.job and each.job not in over]
        violations = (*violations, *unnamed_damage(snapshot, sound, named))
    return Verdict(
        violations=violations,
        source_changed=not unchanged,
        actions_done=tuple(sorted(done)),
        objective=verification.objective,
        terms=verification.terms,
        stated_terms=plan.solution.terms,
    )
