"""
The verifier: every rule a plan must keep and the objective it earns, recomputed from scratch.

This is the specification in code. It reads snapshot, policy, placements and changes of nodes, and shares
nothing with the formulation or the solvers it judges. Rules and terms are one function each in the modules
`verifier_…_rules` and `verifier_terms`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from planner.models import verifier_capacity_rules as capacity_rules
from planner.models import verifier_disruption_rules as disruption_rules
from planner.models import verifier_job_rules as job_rules
from planner.models import verifier_place_rules as place_rules
from planner.models.verifier_case import Case
from planner.models.verifier_mig_rule import mig
from planner.models.verifier_order_rule import order
from planner.models.verifier_pool_rules import pools
from planner.models.verifier_queue_rules import queues
from planner.models.verifier_terms import TERMS
from planner.models.violation import Rule, Violation

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from planner.models.cluster import Node
    from planner.models.placement import Placement
    from planner.models.policy import Policy
    from planner.models.snapshot import Snapshot

RULES: Final[dict[Rule, Callable[[Case], Iterator[Violation]]]] = {
    Rule.ASSIGNMENT: job_rules.assignment,
    Rule.EVICTION: disruption_rules.eviction,
    Rule.GANG: job_rules.gang,
    Rule.REQUEST: job_rules.request,
    Rule.SELECTION: place_rules.selection,
    Rule.LOCALITY: place_rules.locality,
    Rule.SPREAD: place_rules.spread,
    Rule.PREEMPTION: disruption_rules.preemption,
    Rule.ANTI_AFFINITY: place_rules.anti_affinity,
    Rule.STAIRCASE: capacity_rules.staircase,
    Rule.SHARING: capacity_rules.sharing,
    Rule.MIG: mig,
    Rule.COMPUTE: capacity_rules.compute,
    Rule.POWER: capacity_rules.power,
    Rule.QUEUES: queues,
    Rule.POOLS: pools,
    Rule.ORDER: order,
}
"""What every plan is judged by."""


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
) -> Verification:
    """
    Judge the cluster as it will be: who runs where, which nodes are added and which removed.

    Whatever the placements and nodes say, the answer is a `Verification`; the snapshot is taken to be a valid
    one.
    """
    case = Case(snapshot, policy, tuple(placements), added, removed)
    found = {violation for rule in RULES.values() for violation in rule(case)}
    points = {name: term(case) for name, term in TERMS.items()}
    terms = {name: earned for name, earned in points.items() if earned or name == "completion"}
    return Verification(violations=tuple(sorted(found)), objective=sum(terms.values()), terms=terms)
