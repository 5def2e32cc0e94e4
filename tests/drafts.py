"""Plans drafted from answers made by hand: what starts, and how good the answer claims to be."""

from __future__ import annotations

from build import NOW

from planner.drafting import draft
from planner.models.policy import Policy
from planner.models.solution import Solution, SolveStatus

POLICY = Policy()


def solution(snapshot, *started, **claims):
    """Running jobs stay and these start; proven optimal at 1,000 points unless said otherwise."""
    defaults = {
        "status": SolveStatus.OPTIMAL,
        "solver": "milp",
        "objective": 1000,
        "bound": 1000,
        "greedy_objective": 900,
        "seconds": 1.25,
    }
    placements = sorted((*snapshot.running_placements, *started), key=lambda placement: placement.job)
    return Solution(placements=tuple(placements), **defaults | claims)


def drafted(snapshot, *started, policy=POLICY, terms=None, **claims):
    """The plan of that answer."""
    answer = solution(snapshot, *started, **claims)
    terms = {"completion": answer.objective} if terms is None else terms
    return draft(snapshot, policy, answer, terms, seed=0, created_at=NOW)
