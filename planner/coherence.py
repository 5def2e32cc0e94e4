"""Whether the parts of a plan say the same: what is applied is what was verified and reviewed."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, assert_never

from planner.models.plan import JobWaits, Keep, Start, Wait

if TYPE_CHECKING:
    from collections.abc import Iterator

    from planner.models.placement import Placement
    from planner.models.plan import Plan


def contradictions(plan: Plan) -> Iterator[str]:
    """
    Every place where a plan contradicts itself; a plan that gpuplan made has none.

    Actions alone are carried out, placements alone are verified: both must be the same jobs on the same
    places, each job of the snapshot must have one action, and the figures must fit each other.
    """
    yield from _jobs(plan)
    yield from _places(plan)
    yield from _figures(plan)


def _jobs(plan: Plan) -> Iterator[str]:
    acted = Counter(action.job for action in plan.actions)
    known = {job.name for job in plan.snapshot.jobs}
    for job in sorted(known - acted.keys()):
        yield f"job {job} has no action"
    for job in sorted(acted.keys() - known):
        yield f"job {job} has an action and is not in the snapshot"
    for job, count in sorted(acted.items()):
        if count > 1:
            yield f"job {job} has {count} actions"


def _places(plan: Plan) -> Iterator[str]:
    placed = {placement.job: placement for placement in plan.placements}
    if len(placed) < len(plan.placements):
        yield f"{len(plan.placements) - len(placed)} jobs are placed twice"
    intended: dict[str, Placement] = {}
    for action in plan.actions:
        match action:
            case Start():
                intended[action.job] = action.after
                if not any(
                    isinstance(condition, JobWaits) and condition.job == action.job
                    for condition in action.preconditions
                ):
                    yield f"action {action.id} starts a job without asking whether it waits"
            case Keep():
                intended[action.job] = action.after
                known = plan.snapshot.job_by_name.get(action.job)
                if known is None or known.placement != action.after:
                    yield f"action {action.id} keeps job {action.job} where it does not run"
            case Wait():
                pass
            case _:
                assert_never(action)
    for job in sorted(intended.keys() | placed.keys()):
        if intended.get(job) != placed.get(job):
            yield f"job {job} is placed elsewhere by its action than among the placements"


def _figures(plan: Plan) -> Iterator[str]:
    solution = plan.solution
    total = sum(solution.terms.values())
    if total != solution.objective:
        yield f"the terms sum to {total:,}, the objective is {solution.objective:,}"
    if solution.bound is not None and solution.bound < solution.objective:
        yield f"the bound {solution.bound:,} is below the objective {solution.objective:,}"
