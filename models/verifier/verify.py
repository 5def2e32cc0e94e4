"""
The verifier: every rule a plan must keep and the objective it earns, recomputed from scratch.

This is the specification in code. It reads snapshot, policy, placements and changes of nodes, and shares
nothing with the formulation or the solvers it judges. Rules and terms are one function each in the modules
`verifier_…_rules` and `verifier_terms`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from gpuplan.models.plan.violation import Rule, Violation
from gpuplan.models.verifier.context import Case, Facts
from gpuplan.models.verifier.damage import damage, unnamed_damage
from gpuplan.models.verifier.later_slots import RULES_OF_AN_INSTANT, later_violations
from gpuplan.models.verifier.objective import TERMS
from gpuplan.models.verifier.rules import disruption as disruption_rules
from gpuplan.models.verifier.rules import windows as time_rules
from gpuplan.models.verifier.rules.dependencies import dependencies
from gpuplan.models.verifier.rules.gang import assignment
from gpuplan.models.verifier.rules.horizon import horizon
from gpuplan.models.verifier.rules.migration_order import order
from gpuplan.models.verifier.rules.pools import pools
from gpuplan.models.verifier.rules.preemption import preemption
from gpuplan.models.verifier.rules.priority import Judges, priority
from gpuplan.models.verifier.rules.promises import promises

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from gpuplan.models.cluster import Node
    from gpuplan.models.placement import Placement
    from gpuplan.models.plan.desired_state import Planned, Target
    from gpuplan.models.policy.policy import Policy
    from gpuplan.models.snapshot import Snapshot


__all__ = [
    "RULES",
    "TERMS",
    "Verification",
    "Verifier",
    "in_order",
    "term_points",
    "unnamed_damage",
    "verify",
    "verify_target",
]
"""All that the rest of the product uses of the verifier."""


def in_order(case: Case) -> Iterator[Violation]:
    """See `priority.priority`."""
    return priority(case, Judges(_is_within_quota, _is_legal, TERMS))


RULES: Final[dict[Rule, Callable[[Case], Iterator[Violation]]]] = {
    Rule.ASSIGNMENT: assignment,
    Rule.DAMAGE: damage,
    Rule.EVICTION: disruption_rules.eviction,
    **RULES_OF_AN_INSTANT,
    Rule.PREEMPTION: preemption,
    Rule.POOLS: pools,
    Rule.ORDER: order,
    Rule.HORIZON: horizon,
    Rule.WINDOWS: time_rules.windows,
    Rule.DEPENDENCIES: dependencies,
    Rule.DEADLINES: time_rules.deadlines,
    Rule.PROMISES: promises,
    Rule.PRIORITY: in_order,
}
"""What every plan is judged by; by the last only where all others are kept."""


@dataclass(frozen=True, slots=True)
class Verification:
    """What is wrong with a set of placements, and what it is worth."""

    violations: tuple[Violation, ...]
    """Sorted, each once; empty if every rule is kept."""
    objective: int
    """Points; means little while there are violations."""
    terms: dict[str, int]
    """Parts of the objective by name, `completion` and those that are not 0; they sum to it."""


def verify(
    snapshot: Snapshot,
    policy: Policy,
    placements: Iterable[Placement],
    *,
    added: tuple[Node, ...] = (),
    removed: tuple[str, ...] = (),
    planned: tuple[Planned, ...] = (),
    facts: Facts | None = None,
    by_priority: bool = True,
) -> Verification:
    """
    Judge the cluster as it will be: who runs where, which nodes are added and removed, who starts later.

    Whatever the placements and nodes say, the answer is a `Verification`; the snapshot is taken to be a valid
    one. `facts` are those of the snapshot, for who judges more than one thing. With `by_priority` false the
    order of priorities is not judged, which takes longest.
    """
    case = Case(snapshot, policy, tuple(placements), added, removed, planned, facts or Facts(snapshot))
    found = {violation for rule in _others() for violation in rule(case)}
    found.update(later_violations(case))
    if by_priority and not found:
        found.update(RULES[Rule.PRIORITY](case))
    points = {name: term(case) for name, term in TERMS.items()}
    terms = {name: earned for name, earned in points.items() if earned or name == "completion"}
    return Verification(violations=tuple(sorted(found)), objective=sum(terms.values()), terms=terms)


def _others() -> list[Callable[[Case], Iterator[Violation]]]:
    """All rules but that of the order of priorities."""
    return [judge for rule, judge in RULES.items() if rule is not Rule.PRIORITY]


def _is_within_quota(case: Case) -> bool:
    """True if a plan that might have been keeps all quotas."""
    return not any(True for _ in RULES[Rule.QUOTA](case))


def _is_legal(case: Case) -> bool:
    """True if a plan that might have been breaks no rule, its order of priorities left out."""
    return not any(True for rule in _others() for _ in rule(case)) and not any(
        True for _ in later_violations(case)
    )


def verify_target(
    snapshot: Snapshot, policy: Policy, target: Target, facts: Facts | None = None
) -> Verification:
    """Judge the cluster as a target leaves it."""
    return verify(
        snapshot,
        policy,
        target.placements,
        added=target.added,
        removed=target.removed,
        planned=target.planned,
        facts=facts,
    )


def term_points(name: str, snapshot: Snapshot, policy: Policy, placements: Iterable[Placement]) -> int:
    """One term of the objective alone, in points, of a cluster in which just these placements are."""
    return TERMS[name](Case(snapshot, policy, tuple(placements)))


class Verifier:
    """
    Judge desired states of one snapshot under one policy.

    The best one so far and the last one are remembered, so that asking for them again costs nothing.
    """

    def __init__(self, snapshot: Snapshot, policy: Policy) -> None:
        self._snapshot, self._policy, self._facts = snapshot, policy, Facts(snapshot)
        self._known: list[tuple[Target, Verification]] = []

    def __call__(self, target: Target) -> Verification:
        """See `verify`."""
        for known, verification in self._known:
            if known == target:
                return verification
        verification = verify_target(self._snapshot, self._policy, target, self._facts)
        best = max(self._known, key=lambda each: (not each[1].violations, each[1].objective), default=None)
        self._known = [*filter(None, [best]), (target, verification)]
        return verification
