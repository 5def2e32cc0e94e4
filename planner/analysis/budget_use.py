"""What a plan uses of each disruption budget, and the jobs that a budget keeps from being disrupted."""

from __future__ import annotations

from typing import TYPE_CHECKING

from gpuplan.models.eligibility.disruption_budgets import BudgetState, budget_states
from gpuplan.models.placement import same_holdings
from gpuplan.models.plan.plan import BudgetUse
from gpuplan.models.policy.settings import BudgetUnit
from gpuplan.models.timing.durations import Durations
from gpuplan.models.timing.reservation_windows import ReservationWindows
from gpuplan.planner.text_format import format_count

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from gpuplan.models.job import Job
    from gpuplan.models.plan.solution import DesiredState
    from gpuplan.models.policy.policy import Policy
    from gpuplan.models.snapshot import Snapshot


def budget_uses(snapshot: Snapshot, policy: Policy, target: DesiredState) -> tuple[BudgetUse, ...]:
    """What the plan with a target uses of each disruption budget in force, in the order of the policy."""
    return BudgetKeeper(snapshot, policy, target).uses


class BudgetKeeper:
    """Tells which disruption budget keeps a running job where it is under a plan."""

    def __init__(self, snapshot: Snapshot, policy: Policy, target: DesiredState) -> None:
        self.uses: tuple[BudgetUse, ...] = ()
        self._states: tuple[BudgetState, ...] = ()
        self._members: list[frozenset[str]] = []
        if policy.disruption.budgets:
            windows = ReservationWindows(snapshot, policy, Durations(snapshot, policy))
            self._states = budget_states(
                snapshot, policy, lambda job: windows.forced_leave_window(job) is not None
            )
            self._members = [frozenset(state.members) for state in self._states]
            lost = dict(_given_up(snapshot, target))
            self.uses = tuple(
                _use(state, (lost[name] for name in state.members if name in lost)) for state in self._states
            )

    def against(self, job: Job) -> BudgetUse | None:
        """The first budget that a further disruption of a running job would exceed; None if there is none."""
        for state, members, use in zip(self._states, self._members, self.uses, strict=True):
            if job.name in members and use.disrupted + state.size(job) > state.left:
                return use
        return None


def _given_up(snapshot: Snapshot, target: DesiredState) -> Iterator[tuple[str, int]]:
    """(running job, replicas that leave their places), of the jobs that a target disrupts."""
    after = {placement.job: placement for placement in target.placements}
    for job in snapshot.jobs:
        if job.running is None:
            continue
        held, placement = job.running.replicas, after.get(job.name)
        if placement is None:
            yield job.name, len(held)
        elif placement.replicas is not held:
            count = len(placement.replicas)
            if count < len(held):
                yield job.name, len(held) - count
            elif count == len(held) and not same_holdings(held, placement.replicas):
                yield job.name, len(held)


def _use(state: BudgetState, given_up: Iterable[int]) -> BudgetUse:
    jobs = state.budget.counts is BudgetUnit.JOBS
    return BudgetUse(
        name=state.budget.name,
        counts=state.budget.counts,
        expected=state.expected,
        allowed=max(0, state.allowed),
        down=state.down,
        disrupted=sum(1 if jobs else count for count in given_up),
    )


def budget_text(use: BudgetUse) -> str:
    """A budget that leaves nothing more, in words: `disruption budget web: 2 of at most 2 unavailable`."""
    most = format_count(use.allowed, use.counts.removesuffix("s"))
    return f"disruption budget {use.name}: {use.down + use.disrupted:,} of at most {most} unavailable"
