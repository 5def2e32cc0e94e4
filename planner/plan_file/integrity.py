"""Consistency of the parts of a plan, so that the applied actions are the verified and reviewed ones."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

from gpuplan.models.plan.actions import (
    ActionKind,
    Grow,
    JobAction,
    Migrate,
    Preempt,
    Release,
    Shrink,
    Start,
    Wait,
)
from gpuplan.models.plan.precondition import Free, JobDamaged, JobRuns, JobWaits
from gpuplan.models.validation.base import FindingOutcome
from gpuplan.planner.analysis.job_changes import free_preconditions, job_change
from gpuplan.planner.plan_file.integrity_nodes import node_contradictions
from gpuplan.planner.plan_file.integrity_times import time_contradictions

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from gpuplan.models.plan.plan import Plan
    from gpuplan.planner.analysis.job_changes import JobChange


def contradictions(plan: Plan) -> Iterator[str]:
    """
    All contradictions in a plan; a plan that gpuplan made has none.

    Apply carries out the actions, while the verifier checks placements and nodes. So both must agree on the
    places of jobs, on nodes and on MIG layouts. Planned starts must agree with the entries of pending jobs.
    Each job of the snapshot must have one action. Each action must have its preconditions and follow the
    actions that it depends on. The objective's figures must agree.
    """
    yield from _jobs(plan)
    yield from _releases(plan)
    yield from _order(plan)
    yield from _places(plan)
    yield from _waiting(plan)
    yield from node_contradictions(plan)
    yield from time_contradictions(plan)
    yield from _figures(plan)


def _jobs(plan: Plan) -> Iterator[str]:
    acted = Counter(action.job for action in plan.actions if isinstance(action, JobAction))
    known = {job.name for job in plan.snapshot.jobs}
    for job in sorted(known - acted.keys()):
        yield f"job {job} has no action"
    for job in sorted(acted.keys() - known):
        yield f"job {job} has an action and is not in the snapshot"
    for job, count in sorted(acted.items()):
        if count > 1:
            yield f"job {job} has {count} actions"


def _releases(plan: Plan) -> Iterator[str]:
    """Check that each released job has a finding, and that the snapshot has it without the lost places."""
    named = {each.job for each in plan.findings if each.outcome is not FindingOutcome.LEFT and each.job}
    released = [action for action in plan.actions if isinstance(action, Release)]
    for job in sorted(named ^ {release.job for release in released}):
        yield f"job {job} has a finding of damage or a release of lost places, not both"
    for release in released:
        known = plan.snapshot.job_by_name.get(release.job)
        if known is None or known.placement != release.after:
            yield f"action {release.id} leaves job {release.job} elsewhere than the snapshot has it"
        if JobDamaged(job=release.job) not in release.preconditions:
            yield f"action {release.id} releases a job without asking whether it is damaged"


def _order(plan: Plan) -> Iterator[str]:
    seen: set[str] = set()
    for action in plan.actions:
        if action.id in seen:
            yield f"two actions are called {action.id}"
        for early in sorted(set(action.after_actions) - seen):
            yield f"action {action.id} must come after {early}, which does not come before it"
        seen.add(action.id)


def _places(plan: Plan) -> Iterator[str]:
    placed = {placement.job: placement for placement in plan.placements}
    if len(placed) < len(plan.placements):
        yield f"{len(plan.placements) - len(placed)} jobs are placed twice"
    for job in sorted(placed.keys() - plan.snapshot.job_by_name.keys()):
        yield f"job {job} is placed and is not in the snapshot"
    for action in plan.actions:
        if not isinstance(action, JobAction) or action.job not in plan.snapshot.job_by_name:
            continue
        known, placement = plan.snapshot.job_by_name[action.job], placed.get(action.job)
        try:
            change = job_change(known, placement)
        except ValueError:
            yield f"job {action.job} is neither kept nor moved, shrunk or grown by its placement"
            continue
        if action.type != change.kind:
            yield f"action {action.id} would {action.type} job {action.job}, its placement says {change.kind}"
        elif (action.before, action.after) != (known.placement, placement):
            yield f"job {action.job} is placed elsewhere by its action than among the placements"
        elif change.kind not in (ActionKind.KEEP, ActionKind.WAIT):
            yield from _asks_for_what_it_takes(action, change, plan)


def _asks_for_what_it_takes(action: JobAction, change: JobChange, plan: Plan) -> Iterator[str]:
    match action:
        case Start():
            asks = any(isinstance(one, JobWaits) and one.job == action.job for one in action.preconditions)
            if not asks:
                yield f"action {action.id} starts a job without asking whether it waits"
        case Preempt() | Shrink() | Grow() | Migrate():
            asks = any(isinstance(one, JobRuns) and one.job == action.job for one in action.preconditions)
            if not asks:
                yield f"action {action.id} changes a job without asking whether it runs"
    asked = [one for one in action.preconditions if isinstance(one, Free)]
    for needed in free_preconditions(change, plan.snapshot.cluster):
        if not _covers([one for one in asked if one.node == needed.node], needed):
            yield f"action {action.id} does not ask for all it takes on node {needed.node}"


def _covers(asked: Iterable[Free], needed: Free) -> bool:
    """True if the sum of several demands on a node covers another demand."""
    total, least = _amounts(asked), _amounts([needed])
    return bool(asked) and all(total[name] >= amount for name, amount in least.items())


def _amounts(demands: Iterable[Free]) -> Counter[object]:
    amounts: Counter[object] = Counter()
    for demand in demands:
        amounts.update(demand.gpus)
        amounts.update(demand.resources)
        amounts.update(
            {
                "cpu milli": demand.cpu_milli,
                "memory mib": demand.memory_mib,
                "disk mib": demand.disk_mib,
            }
        )
    return amounts


def _waiting(plan: Plan) -> Iterator[str]:
    told = Counter(waiting.job for waiting in plan.waiting)
    waits = {action.job for action in plan.actions if isinstance(action, Wait | Preempt)}
    for job in sorted(waits ^ told.keys()):
        yield f"job {job} waits by its action or by the list of waiting jobs, not by both"
    for job, count in sorted(told.items()):
        if count > 1:
            yield f"job {job} waits {count} times"


def _figures(plan: Plan) -> Iterator[str]:
    solution = plan.solution
    total = sum(solution.terms.values())
    if total != solution.objective:
        yield f"the terms sum to {total:,}, the objective is {solution.objective:,}"
    if solution.bound is not None and solution.bound < solution.objective:
        yield f"the bound {solution.bound:,} is below the objective {solution.objective:,}"
