"""fit(…) → Fit: copies of a job that the production planner places, and the proof that no more fit."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Final

from gpuplan.planner.epoch import plan_epoch
from gpuplan.planner.text_format import gang_size
from gpuplan.planner.whatif.answers.fit import Fit
from gpuplan.planner.whatif.capacity.fit_upper_bound import count_upper_bound
from gpuplan.planner.whatif.capacity.no_disruption_world import without_disruption

if TYPE_CHECKING:
    from gpuplan.models.job import Job
    from gpuplan.models.plan.plan import Plan
    from gpuplan.models.plan.solution import Milestone
    from gpuplan.models.policy.policy import Policy
    from gpuplan.models.snapshot import Snapshot
    from gpuplan.solvers.incumbent import Watch

MOST: Final = 10_000
"""Default limit of the copies that are counted."""

_POINTS: Final = 100


def fit(
    snapshot: Snapshot,
    policy: Policy,
    job: Job,
    *,
    seed: int,
    most: int = MOST,
    watch: Watch | None = None,
) -> Fit:
    """
    Place as many copies of a job as fit beside the running jobs; the job itself, if it runs, keeps its place.

    The planner gets one copy more than counting allows, so that the plan gives a reason why that copy waits.
    """
    alone, _ = without_disruption(snapshot, policy, (), points=_POINTS)
    counted = count_upper_bound(alone, policy, job, most + 1)
    names = _names(snapshot, job.name, min(counted + 1, most))
    copies = [job.model_copy(update={"name": name}) for name in names]
    world, rules = without_disruption(snapshot, policy, copies, points=_POINTS)
    enough = _Enough(min(counted, len(names)) * _POINTS, watch)
    plan = plan_epoch(world, rules, seed=seed, created_at=snapshot.taken_at, watch=enough)
    placed = [placement for placement in plan.placements if placement.job in names]
    waiting = [each.reason for each in plan.waiting if each.job in names]
    at_most, proof = _at_most(plan, len(placed), len(names), counted)
    return Fit(
        job=job.name,
        queue=job.queue,
        asks_for=gang_size(job.request, job.gang.minimum, job.gang.minimum),
        fits=len(placed),
        at_most=at_most if at_most is None or at_most <= most else None,
        proof=proof,
        nodes=dict(sorted(Counter(replica.node for each in placed for replica in each.replicas).items())),
        limit=waiting[0] if waiting else None,
        plan_id=plan.plan_id,
        seconds=round(plan.solution.seconds, 3),
    )


class _Enough:
    """Ends a search, as Ctrl-C does, at the counting bound: the solver's own bound may be higher."""

    def __init__(self, points: int, watch: Watch | None) -> None:
        self._points = points
        self._watch = watch
        self._ended = False

    def __call__(self, now: Milestone) -> None:
        if self._watch is not None:
            self._watch(now)
        if not self._ended and now.objective is not None and now.objective >= self._points:
            self._ended = True
            raise KeyboardInterrupt


def _names(snapshot: Snapshot, name: str, count: int) -> dict[str, int]:
    """Unused names of the copies, in order."""
    free = (f"{name}-more-{number}" for number in range(1, count + len(snapshot.jobs) + 1))
    fresh = [new for new in free if new not in snapshot.job_by_name]
    return {new: number for number, new in enumerate(fresh[:count])}


def _at_most(plan: Plan, placed: int, offered: int, counted: int) -> tuple[int | None, str]:
    """The smallest proven upper bound and its source: counting, or the plan's dual bound per copy."""
    solution = plan.solution
    if solution.bound is None:
        return counted, "counting"
    proven = placed + (solution.bound - solution.objective) // _POINTS
    # The plan's bound says nothing about copies that were not offered.
    if proven < min(offered, counted):
        return proven, solution.solver
    return counted, "counting"
