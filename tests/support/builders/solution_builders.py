"""Plans drafted from answers made by hand: what changes, and how good the answer claims to be."""

from __future__ import annotations

from gpuplan.models.plan.solution import DesiredState, Solution, SolveStatus
from gpuplan.planner.plan_builder.draft import draft
from tests.support.builders.build import NOW, by_value

POLICY = by_value()


def target(snapshot, *placed, stopped=(), added=(), removed=(), planned=()):
    """
    Running jobs stay but for those stopped, by name, and those placed anew; placed jobs that wait start.

    `planned` are later starts.
    """
    placements = {placement.job: placement for placement in (*snapshot.running_placements, *placed)}
    for name in stopped:
        del placements[name]
    ordered = tuple(placements[name] for name in sorted(placements))
    later = tuple(sorted(planned, key=lambda each: each.job))
    return DesiredState(ordered, tuple(added), tuple(sorted(removed)), later)


def solution(snapshot, *placed, stopped=(), added=(), removed=(), planned=(), **claims):
    """The answer with this target; proven optimal at 1,000 points unless said otherwise."""
    defaults = {
        "status": SolveStatus.OPTIMAL,
        "solver": "milp",
        "objective": 1000,
        "bound": 1000,
        "greedy_objective": 900,
        "seconds": 1.25,
    }
    goal = target(snapshot, *placed, stopped=stopped, added=added, removed=removed, planned=planned)
    return Solution(target=goal, **defaults | claims)


def drafted(snapshot, *placed, policy=POLICY, terms=None, **more):
    """The plan of that answer."""
    answer = solution(snapshot, *placed, **more)
    terms = {"completion": answer.objective} if terms is None else terms
    return draft(snapshot, policy, answer, terms, seed=0, created_at=NOW)


def ids(plan):
    """Ids of the plan's actions, in their order."""
    return [action.id for action in plan.actions]
