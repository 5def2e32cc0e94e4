"""Planning of one epoch, from snapshot and policy to plan."""

from __future__ import annotations

import gc
import logging
import time
from contextlib import contextmanager
from dataclasses import replace
from typing import TYPE_CHECKING, Final

from gpuplan.models.errors import PlannerError
from gpuplan.models.health.findings import with_exclusions
from gpuplan.models.plan.solution import DRAFT_STAGE
from gpuplan.models.policy.policy import BudgetMode, Policy
from gpuplan.models.validation.damage import survey_damage
from gpuplan.models.verifier.verify import Verifier, unnamed_damage
from gpuplan.planner.epoch_cache import EpochCache
from gpuplan.planner.plan_builder.draft import draft
from gpuplan.planner.problem_builder import build_problem
from gpuplan.planner.warm_start import initial_target, is_settled, new_waiting_jobs, reuse_equal_nouns
from gpuplan.solvers import portfolio

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from datetime import datetime

    from gpuplan.models.plan.plan import Plan
    from gpuplan.models.plan.violation import Violation
    from gpuplan.models.problem.problem import Problem
    from gpuplan.models.snapshot import Snapshot
    from gpuplan.solvers.incumbent import Watch
    from gpuplan.solvers.params.search import PortfolioParams

_LOG: Final = logging.getLogger(__name__)
_OBJECTS_BETWEEN_COLLECTIONS: Final = 100_000


@contextmanager
def _sparing_what_is_there() -> Iterator[None]:
    """
    Exclude existing objects from garbage collection, and make collections rare.

    Large snapshots have millions of objects, and almost none of these or of the objects derived from them is
    in a reference cycle. What a verification leaves is in cycles: with 100,000 GPUs it is 50 MB of each plan
    that is checked, so a command that has turned collections off has them on meanwhile.
    """
    thresholds, was_on = gc.get_threshold(), gc.isenabled()
    gc.freeze()
    gc.set_threshold(_OBJECTS_BETWEEN_COLLECTIONS, *thresholds[1:])
    gc.enable()
    try:
        yield
    finally:
        gc.set_threshold(*thresholds)
        gc.unfreeze()
        if not was_on:
            gc.disable()


@_sparing_what_is_there()
def plan_epoch(
    snapshot: Snapshot,
    policy: Policy,
    *,
    seed: int,
    created_at: datetime,
    watch: Watch | None = None,
    last: Plan | None = None,
    cache: EpochCache | None = None,
    began: float | None = None,
) -> Plan:
    """
    Plan one epoch: build the problem, solve it, verify the solution, derive the actions.

    The policy's time limit counts from the instant (of `time.monotonic`) at which the caller `began`, or from
    now. The search leaves as much of it as the rest of the epoch and writing the plan are expected to take.

    `watch` gets the progress of the search. An interruption ends the search, not the plan. The `last` plan is
    a warm start; if nothing has changed since it was carried out, the new plan changes nothing. The
    `cache` of the epochs before makes this one faster.

    Raises
    ------
    PlannerError
        No solution passed the verifier, not even greedy's. This is a defect; lists the first violations.
    """
    called = time.monotonic()
    began = called if began is None else began
    # 0. Remove lost places first, among them GPUs that the rules of health exclude: a plan cannot choose to
    #    keep them.
    found = with_exclusions(snapshot.canonical(), policy.health)
    found = reuse_equal_nouns(found, last.snapshot) if last else found
    damage = survey_damage(found, last.snapshot if last else None)
    snapshot = damage.sound
    if last and snapshot is not found:
        snapshot = reuse_equal_nouns(snapshot, last.snapshot)
    # 1. Build the problem. All later steps are a pure function of it, except for time limits.
    cache = cache or EpochCache()
    posing = time.monotonic()
    problem = build_problem(snapshot, policy, cache)
    posed = time.monotonic() - posing

    # 2. Solve it: greedy always has a solution; an exact solver improves on it within the budget.
    #    A candidate that breaks a rule is rejected and recorded, and greedy's solution remains.
    check = Verifier(snapshot, policy)
    limits = limits_of(policy, seed)
    if not limits.deterministic:
        shares = limits.params.portfolio
        after = _seconds_after_search(snapshot, problem, posed, shares)
        left = limits.seconds - (time.monotonic() - began) - after
        bound = _seconds_for_bound(posed, left, limits.seconds, shares)
        limits = replace(limits, reserved=after, reserved_for_bound=bound)
    settled = last is not None and is_settled(snapshot, policy, last)
    warm = None if last is None else initial_target(snapshot, policy, last)
    fresh = new_waiting_jobs(snapshot, last.snapshot) if last else frozenset[str]()
    running = snapshot.running_placements
    solution = portfolio.solve(
        problem, running, limits, check, watch, began=began, warm=warm, newcomers=fresh, settled=settled
    )
    if read := called - began:
        # The search counts from the beginning too.
        phases = {"read": read, **solution.phases, "pose": solution.phases["pose"] - read}
        solution = replace(solution, phases=phases)
    for phase, seconds in solution.phases.items():
        _LOG.info("phase=%s seconds=%.3f", phase, seconds)
    if watch is not None and solution.milestones:
        watch(replace(solution.milestones[-1], seconds=solution.seconds, stage=DRAFT_STAGE, found=None))
    # 3. Never trust a solver. The verifier shares no code with the formulation.
    verification = check(solution.target)
    _require_none(verification.violations)
    # 4. Derive the actions, their order and their reasons, and report the damage.
    plan = draft(
        snapshot,
        policy,
        solution,
        verification.terms,
        seed=seed,
        created_at=created_at,
        last=last,
        damage=damage,
        cache=cache,
    )
    _require_none(tuple(unnamed_damage(found, snapshot, [each.job for each in plan.findings if each.job])))
    return plan


def _seconds_after_search(
    snapshot: Snapshot, problem: Problem, posed: float, params: PortfolioParams
) -> float:
    """
    Seconds that reasons, actions, the plan file and the text on the screen are expected to take.

    They are estimated from the seconds in which the problem was `posed`, so that a slow or busy host counts.
    Jobs that wait have reasons and actions of their own, while those that run have mostly texts.
    """
    waiting = len(snapshot.waiting) / max(1, len(snapshot.jobs))
    drafts = params.drafts_per_problem + params.drafts_per_problem_of_waiting * waiting
    # More slots make the problem larger, and hardly what is written about its plan.
    in_one_slot = posed / (1 + params.problem_per_later_slot * (problem.slots - 1))
    return params.least_drafts + drafts * in_one_slot


def _seconds_for_bound(posed: float, left: float, limit: float, params: PortfolioParams) -> float:
    """Seconds of the `limit` to keep back for a last bound; `left` are those left for the search."""
    seconds = params.bounds_per_problem * posed
    if seconds <= params.most_of_limit_for_bound * limit:
        return seconds
    # A plan in a hurry is worse than a missing bound. What takes long has a process of its own in any case.
    least = max(params.least_of_bound * seconds, params.bound_seconds_in_process)
    return min(seconds, max(left / 2, least))


def _require_none(violations: Sequence[Violation]) -> None:
    if violations:
        listed = "\n".join(f"  {violation}" for violation in violations[:5])
        raise PlannerError(
            f"the plan breaks {len(violations)} rules and is withheld:\n{listed}\n"
            "This is a defect of gpuplan. Please report it with the snapshot, the policy and the seed."
        )


def limits_of(policy: Policy, seed: int) -> portfolio.Limits:
    """The policy's budget as limits of the portfolio."""
    budget = policy.budget
    deterministic = budget.mode is BudgetMode.DETERMINISTIC
    # With deterministic ticks the wall clock is a safety stop that should never fire.
    factor = 10 if deterministic else 1
    return portfolio.Limits(
        seconds=factor * budget.time_limit_ms / 1000,
        solvers=tuple(policy.solvers),
        workers=budget.workers,
        seed=seed,
        ticks=budget.ticks if deterministic else None,
        stop_gap=budget.stop_gap,
    )
