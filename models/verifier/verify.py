"""
The verifier: every rule that a plan must keep, and its objective, recomputed from scratch.

This is the specification in code. It reads snapshot, policy, placements and changes of nodes, and shares no
code with the formulation or the solvers that it checks. Rules and terms are one function each, in
`verifier.rules` and `verifier.objective`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from gpuplan.models.plan.solution import NOTHING_UNDONE, DesiredState, LaterStart, Undo
from gpuplan.models.plan.violation import Rule, Violation
from gpuplan.models.verifier.context import Context
from gpuplan.models.verifier.later_slots import INSTANT_RULES, later_violations
from gpuplan.models.verifier.objective import TERMS
from gpuplan.models.verifier.rules import disruption as disruption_rules
from gpuplan.models.verifier.rules import windows as time_rules
from gpuplan.models.verifier.rules.capability import capability
from gpuplan.models.verifier.rules.dependencies import dependencies
from gpuplan.models.verifier.rules.disruption import damage, unnamed_damage
from gpuplan.models.verifier.rules.disruption_budget import disruption_budget
from gpuplan.models.verifier.rules.migration_order import feasible_move_order
from gpuplan.models.verifier.rules.placement import assignment
from gpuplan.models.verifier.rules.pools import pools
from gpuplan.models.verifier.rules.preemption import preemption
from gpuplan.models.verifier.rules.priority import RuleSet, priority
from gpuplan.models.verifier.rules.promises import promises
from gpuplan.models.verifier.rules.undisturbed import undisturbed
from gpuplan.models.verifier.rules.windows import horizon
from gpuplan.models.verifier.snapshot_facts import SnapshotFacts

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from gpuplan.models.cluster import Node
    from gpuplan.models.placement import Placement
    from gpuplan.models.policy.policy import Policy
    from gpuplan.models.snapshot import Snapshot


__all__ = [
    "RULES",
    "TERMS",
    "TargetCheck",
    "Verification",
    "Verifier",
    "priority_rule",
    "term_points",
    "unnamed_damage",
    "verify",
    "verify_target",
]
"""All that the rest of the product uses of the verifier."""


def priority_rule(case: Context) -> Iterator[Violation]:
    """See `priority.priority`."""
    return priority(case, RuleSet(_is_within_quota, _is_legal, TERMS))


RULES: Final[dict[Rule, Callable[[Context], Iterator[Violation]]]] = {
    Rule.ASSIGNMENT: assignment,
    Rule.DAMAGE: damage,
    Rule.EVICTION: disruption_rules.eviction,
    Rule.CAPABILITY: capability,
    **INSTANT_RULES,
    Rule.PREEMPTION: preemption,
    Rule.DISRUPTION_BUDGET: disruption_budget,
    Rule.POOLS: pools,
    Rule.ORDER: feasible_move_order,
    Rule.HORIZON: horizon,
    Rule.WINDOWS: time_rules.windows,
    Rule.DEPENDENCIES: dependencies,
    Rule.DEADLINES: time_rules.deadlines,
    Rule.UNDISTURBED: undisturbed,
    Rule.PROMISES: promises,
    Rule.PRIORITY: priority_rule,
}
"""The rules for every plan; the last one is checked only if all others hold."""


@dataclass(frozen=True, slots=True)
class Verification:
    """Violations and objective of a plan."""

    violations: tuple[Violation, ...]
    """Sorted, without duplicates; empty if every rule holds."""
    objective: int
    """Points; of little meaning if there are violations."""
    terms: dict[str, int]
    """Terms of the objective by name, `completion` and those that are not 0; their sum is the objective."""


def verify(
    snapshot: Snapshot,
    policy: Policy,
    placements: Iterable[Placement],
    *,
    added: tuple[Node, ...] = (),
    removed: tuple[str, ...] = (),
    planned: tuple[LaterStart, ...] = (),
    facts: SnapshotFacts | None = None,
    by_priority: bool = True,
    undo: Undo = NOTHING_UNDONE,
) -> Verification:
    """
    Check the cluster after the plan: placements, added and removed nodes, and later starts.

    For any placements and nodes the result is a `Verification`; the snapshot must be valid. `facts` are those
    of the snapshot, for callers that check several plans. Without `by_priority` the rule about priorities is
    skipped, which takes the most time. `undo` is of a rollback: nodes that it opens and MIG layouts that it
    puts back, and the jobs among which the rules about priorities and preemption do not hold.
    """
    case = Context(
        snapshot,
        policy.within(snapshot.cluster),
        tuple(placements),
        added,
        removed,
        planned,
        facts or SnapshotFacts(snapshot),
        undo=undo,
    )
    found = _violations(case, by_priority=by_priority)
    points = {name: term(case) for name, term in TERMS.items()}
    terms = {name: earned for name, earned in points.items() if earned or name == "completion"}
    return Verification(violations=found, objective=sum(terms.values()), terms=terms)


def _violations(case: Context, *, by_priority: bool = True) -> tuple[Violation, ...]:
    """The violations of all rules, sorted; priorities are checked last, and only if all else holds."""
    found = {violation for rule in _rules_but_priority() for violation in rule(case)}
    found.update(later_violations(case))
    if by_priority and not found:
        found.update(RULES[Rule.PRIORITY](case))
    return tuple(sorted(found))


def _rules_but_priority() -> list[Callable[[Context], Iterator[Violation]]]:
    """All rules except that about priorities."""
    return [judge for rule, judge in RULES.items() if rule is not Rule.PRIORITY]


def _is_within_quota(case: Context) -> bool:
    """True if a hypothetical plan keeps all quotas."""
    return not any(True for _ in RULES[Rule.QUOTA](case))


def _is_legal(case: Context) -> bool:
    """True if a hypothetical plan breaks no rule; the rule about priorities is not checked."""
    return not any(True for rule in _rules_but_priority() for _ in rule(case)) and not any(
        True for _ in later_violations(case)
    )


def verify_target(
    snapshot: Snapshot, policy: Policy, target: DesiredState, facts: SnapshotFacts | None = None
) -> Verification:
    """Check the cluster after a target is reached."""
    return verify(
        snapshot,
        policy,
        target.placements,
        added=target.added,
        removed=target.removed,
        planned=target.planned,
        facts=facts,
        undo=target.undo,
    )


class TargetCheck:
    """One target on trial: what its rules and its points have in common is computed once."""

    def __init__(self, snapshot: Snapshot, policy: Policy, target: DesiredState) -> None:
        changes = target.placements, target.added, target.removed, target.planned
        rules = policy.within(snapshot.cluster)
        self._case = Context(snapshot, rules, *changes, SnapshotFacts(snapshot), undo=target.undo)

    def keeps_rules(self) -> bool:
        """True if the cluster breaks no rule after the target; the first violation ends the check."""
        return _is_legal(self._case) and not any(True for _ in RULES[Rule.PRIORITY](self._case))

    def objective(self) -> int:
        """Points of the cluster after the target is reached, whether or not it keeps the rules."""
        return sum(term(self._case) for term in TERMS.values())


def term_points(name: str, snapshot: Snapshot, policy: Policy, placements: Iterable[Placement]) -> int:
    """One term of the objective alone, in points, of a cluster in which just these placements are."""
    return TERMS[name](Context(snapshot, policy.within(snapshot.cluster), tuple(placements)))


class Verifier:
    """
    Judge desired states of one snapshot under one policy.

    The best one so far and the last one are remembered, so that asking for them again costs nothing.
    """

    def __init__(self, snapshot: Snapshot, policy: Policy) -> None:
        self._snapshot, self._policy, self._facts = snapshot, policy, SnapshotFacts(snapshot)
        self._known: list[tuple[DesiredState, Verification]] = []

    def __call__(self, target: DesiredState) -> Verification:
        """See `verify`."""
        for known, verification in self._known:
            if known == target:
                return verification
        verification = verify_target(self._snapshot, self._policy, target, self._facts)
        best = max(self._known, key=lambda each: (not each[1].violations, each[1].objective), default=None)
        self._known = [*filter(None, [best]), (target, verification)]
        return verification
