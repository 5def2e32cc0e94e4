"""Solution: an answer to a Problem, how good it is, how good it could be, and where it came from."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import StrEnum
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from gpuplan.models.plan.desired_state import Target
    from gpuplan.models.plan.violation import Violation


class SolveStatus(StrEnum):
    """What a solver can claim; values are read only with the first two."""

    OPTIMAL = "OPTIMAL"
    FEASIBLE = "FEASIBLE"
    INFEASIBLE = "INFEASIBLE"
    NO_ANSWER = "NO_ANSWER"
    FAILED = "FAILED"


@dataclass(frozen=True, slots=True)
class Fallback:
    """Why the plan is not the first choice's."""

    tried: str
    used: str
    reason: str


@dataclass(frozen=True, slots=True)
class Rejected:
    """An answer that broke rules and was not used."""

    solver: str
    violations: tuple[Violation, ...]


@dataclass(frozen=True, slots=True)
class Milestone:
    """What was known at one instant of an epoch's search."""

    seconds: float
    """Since the epoch began."""
    stage: str
    """What was at work, such as `greedy` or the name of a solver."""
    objective: int | None
    """Of the best verified plan; None before the first."""
    bound: int
    """No plan scores more."""
    found: int | None = None
    """What the stage claims to have, not yet placed on nodes nor verified."""

    @property
    def gap(self) -> float | None:
        """(bound − objective) / max(1, |objective|); None without an objective."""
        return None if self.objective is None else gap_between(self.objective, self.bound)


@dataclass(frozen=True, slots=True)
class Stage:
    """What the jobs of one priority earn where priorities are tiers, those of lower ones left out."""

    priority: int
    points: int
    proven: bool
    """True if no plan without jobs of lower priority is better, given what higher ones earn."""


class Ended(StrEnum):
    """Why a search ended."""

    PROVEN = "proven"
    """Nothing better exists."""
    GAP = "gap"
    """The gap is as small as the policy asks for."""
    TIME = "time"
    TICKS = "ticks"
    """The deterministic work was done."""
    EXHAUSTED = "exhausted"
    """Nothing is left to try."""
    INTERRUPTED = "interrupted"
    SETTLED = "settled"
    """The last plan was carried out and nothing has changed since: there was nothing to search for."""


def gap_between(objective: int, bound: int) -> float:
    """(bound − objective) / max(1, |objective|), not below 0."""
    return max(0, bound - objective) / max(1, abs(objective))


@dataclass(frozen=True, slots=True)
class Solution:
    """The best verified answer to one epoch's question; the objective is maximized, in points."""

    status: SolveStatus
    solver: str
    target: Target
    objective: int
    bound: int | None
    """No plan can score more; None where nobody proved one."""
    greedy_objective: int
    seconds: float
    phases: dict[str, float] = field(default_factory=dict)
    """Seconds by phase: pose, greedy, solve, disaggregate, refine, verify, and what else was done."""
    fallback: Fallback | None = None
    rejected: tuple[Rejected, ...] = ()
    not_disaggregated: int = 0
    """Jobs the aggregate answer promised that found no concrete place; 0 in a plan that is proven optimal."""
    bound_note: str = ""
    """Why a bound that a solver claimed does not count."""
    ended: Ended = Ended.EXHAUSTED
    stages: tuple[Stage, ...] = ()
    """Of all priorities but the lowest, the highest first; empty if there is but one, or they are weights."""
    milestones: tuple[Milestone, ...] = ()
    """The search, in the order of time: whenever the plan or the bound got better, or another stage began."""

    @property
    def gap(self) -> float | None:
        """(bound − objective) / max(1, |objective|); None without a bound."""
        return None if self.bound is None else gap_between(self.objective, self.bound)
