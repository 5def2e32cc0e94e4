"""
The verifier: every rule a plan must keep and the objective it earns, recomputed from scratch.

This is the specification in code. It reads snapshot, policy and placements, and shares nothing with the
formulation or the solvers it judges. The rules themselves are one function each in `verifier_job_rules` and
`verifier_capacity_rules`.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from planner.models import verifier_capacity_rules as capacity_rules
from planner.models import verifier_job_rules as job_rules
from planner.models.policy import completion_points, job_points
from planner.models.verifier_case import Case
from planner.models.violation import Rule, Violation

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from planner.models.job import Job
    from planner.models.placement import Placement
    from planner.models.policy import Policy
    from planner.models.snapshot import Snapshot

RULES: Final[dict[Rule, Callable[[Case], Iterator[Violation]]]] = {
    Rule.ASSIGNMENT: job_rules.assignment,
    Rule.EVICTION: job_rules.eviction,
    Rule.GANG: job_rules.gang,
    Rule.REQUEST: job_rules.request,
    Rule.SELECTION: job_rules.selection,
    Rule.LOCALITY: job_rules.locality,
    Rule.STAIRCASE: capacity_rules.staircase,
    Rule.SHARING: capacity_rules.sharing,
    Rule.MIG: capacity_rules.mig,
    Rule.COMPUTE: capacity_rules.compute,
    Rule.QUEUES: capacity_rules.queues,
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
    """Parts of the objective by name; they sum to it."""


def verify(snapshot: Snapshot, policy: Policy, placements: Iterable[Placement]) -> Verification:
    """
    Judge the cluster as it will be: running jobs that stay and waiting jobs that start.

    Whatever the placements say, the answer is a `Verification`; the snapshot is taken to be a valid one.
    """
    case = Case(snapshot, tuple(placements))
    found = {violation for rule in RULES.values() for violation in rule(case)}
    terms = {"completion": completion(case, policy)}
    return Verification(violations=tuple(sorted(found)), objective=sum(terms.values()), terms=terms)


def completion(case: Case, policy: Policy) -> int:
    """
    Points of all started jobs, Σ_j w_j · completed_j.

    Running jobs add nothing: that they stay is no decision. Nor does a start that is none: a job that is
    held, placed twice, in a later slot, or on no GPU model that has a speed for it.
    """
    times = Counter(placement.job for placement in case.placements)
    total = 0
    for job, placement in case.started:
        if job.held or placement.slot or times[job.name] > 1:
            continue
        gpu_model = None
        if job.request.needs_gpu:
            gpu_model = _one_allowed_model(case, job, placement)
            if gpu_model is None:
                continue
        points = job_points(policy, job, case.snapshot.taken_at)
        total += completion_points(points, job, gpu_model, len(placement.replicas))
    return total


def _one_allowed_model(case: Case, job: Job, placement: Placement) -> str | None:
    """The GPU model all replicas are on, if there is one and the job may use it."""
    models = case.gpu_models(placement)
    if len(models) != 1 or (job.gpu_models and models[0] not in job.gpu_models):
        return None
    return models[0]
