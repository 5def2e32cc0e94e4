"""Disruption limits of a problem, and the running jobs that a plan cannot disrupt within them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from gpuplan.models.policy.disruption_budget import BudgetUnit
from gpuplan.models.problem.disruption_limits import DisruptionLimit

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from gpuplan.models.eligibility.disruption_budgets import BudgetState
    from gpuplan.models.problem.jobs import Incumbent
    from gpuplan.planner.problem_builder.candidates import RunningCandidate


def disruptable(states: Sequence[BudgetState], runners: Iterable[RunningCandidate]) -> list[RunningCandidate]:
    """The running candidates without changes that exceed a budget by themselves."""
    runners = list(runners)
    left: dict[str, list[BudgetState]] = {}
    for state in states:
        for name in state.members:
            left.setdefault(name, []).append(state)
    return list(_within(left, runners)) if left else runners


def _within(
    left: dict[str, list[BudgetState]], runners: Iterable[RunningCandidate]
) -> Iterator[RunningCandidate]:
    for runner in runners:
        states = left.get(runner.job.name, ())
        leaves = all(state.size(runner.job) <= state.left for state in states)
        shrinks = all(state.left > 0 for state in states)
        found = runner._replace(
            stop=runner.stop and leaves, move=runner.move and leaves, shrink=runner.shrink and shrinks
        )
        if found.stop or found.move or found.shrink or found.grow:
            yield found


def disruption_limits(
    states: Iterable[BudgetState], incumbents: Sequence[Incumbent]
) -> Iterator[DisruptionLimit]:
    """The limit of each budget that the changes offered could exceed."""
    places = {incumbent.job: index for index, incumbent in enumerate(incumbents)}
    for state in states:
        members = sorted(places[name] for name in state.members if name in places)
        limit = DisruptionLimit(
            state.budget.name, state.left, tuple(members), state.budget.counts is BudgetUnit.JOBS
        )
        if sum(limit.taken(_most_given_up(incumbents[index])) for index in members) > limit.left:
            yield limit


def _most_given_up(incumbent: Incumbent) -> int:
    """The most replicas that any change offered takes from a running job."""
    leaves = incumbent.stop_points is not None or incumbent.move is not None
    return len(incumbent.holds) - (0 if leaves else incumbent.min_replicas)
