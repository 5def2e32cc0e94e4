"""Desired state of the cluster; and Solution: a desired state with its objective, bound, gap and origin."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import StrEnum
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from gpuplan.models.cluster import MigInstance, Node
    from gpuplan.models.placement import Placement, Replica
    from gpuplan.models.plan.violation import Violation


@dataclass(frozen=True, slots=True)
class LaterStart:
    """A start in a later slot."""

    job: str
    slot: int
    """At least 1; the job starts at the beginning of the slot."""
    replicas: tuple[Replica, ...]
    """Its places with GPU indices; an elastic job is planned with its minimum number of replicas."""
    promised: bool = True
    """True: the places are reserved for the job from now on. False: this start is only projected."""


@dataclass(frozen=True, slots=True)
class IdleLayout:
    """A MIG layout that a GPU gets back, whether or not a job uses its instances."""

    node: str
    gpu: int
    instances: tuple[MigInstance, ...]


@dataclass(frozen=True, slots=True)
class Undo:
    """What only a rollback does: it takes back what an earlier plan chose between its own jobs."""

    jobs: frozenset[str] = frozenset()
    """
    Jobs that the earlier plan changed, or was to change. The order of priorities among them is not judged,
    nor whether their last change is long enough ago.
    """
    pools: frozenset[str] = frozenset()
    """Pools to which it added nodes, or from which it removed some; these may change again at once."""
    opened: tuple[str, ...] = ()
    """Names of the nodes on which it stopped new starts, and which take jobs again; sorted."""
    layouts: tuple[IdleLayout, ...] = ()
    """MIG layouts that it changed and that are put back, by node and GPU."""
    rolls_back: bool = False
    """True for every rollback, also if none of the earlier plan's jobs and pools is left."""


NOTHING_UNDONE: Final = Undo()


@dataclass(frozen=True, slots=True)
class DesiredState:
    """Desired placements and nodes."""

    placements: tuple[Placement, ...]
    """Placements of all jobs that run, including running jobs that stay, sorted by job."""
    added: tuple[Node, ...] = ()
    """Nodes to be added to pools."""
    removed: tuple[str, ...] = ()
    """Names of nodes to be removed, sorted."""
    planned: tuple[LaterStart, ...] = ()
    """Later starts of jobs that are pending or preempted now, sorted by job."""
    undo: Undo = NOTHING_UNDONE
    """Of a rollback: what it may do that other plans do not."""


DRAFT_STAGE: Final = "draft"
"""Stage of an epoch after its search, in which the plan is written."""


class SolveStatus(StrEnum):
    """Outcome that a solver reports; only the first two come with values."""

    OPTIMAL = "OPTIMAL"
    FEASIBLE = "FEASIBLE"
    INFEASIBLE = "INFEASIBLE"
    NO_ANSWER = "NO_ANSWER"
    FAILED = "FAILED"


@dataclass(frozen=True, slots=True)
class Fallback:
    """Reason why the plan is not from the preferred solver."""

    tried: str
    used: str
    reason: str


@dataclass(frozen=True, slots=True)
class RejectedAnswer:
    """A solution that broke rules and was not used."""

    solver: str
    violations: tuple[Violation, ...]


@dataclass(frozen=True, slots=True)
class Milestone:
    """State of an epoch's search at one instant."""

    seconds: float
    """Seconds since the epoch began."""
    stage: str
    """Stage at work, such as `greedy` or the name of a solver."""
    objective: int | None
    """Objective of the best verified plan; None before the first."""
    bound: int
    """Upper bound on the objective of any plan."""
    found: int | None = None
    """Objective that the stage claims, before disaggregation and verification."""

    @property
    def gap(self) -> float | None:
        """(bound − objective) / max(1, |objective|); None without an objective."""
        return None if self.objective is None else gap_between(self.objective, self.bound)


@dataclass(frozen=True, slots=True)
class Stage:
    """Points of the jobs of one priority, where priorities are tiers; lower priorities are left out."""

    priority: int
    points: int
    proven: bool
    """True if no plan without jobs of lower priority is better, given the points of higher priorities."""


class StopReason(StrEnum):
    """Reason why a search ended."""

    PROVEN = "proven"
    """The plan is proven optimal."""
    GAP = "gap"
    """The gap has reached the policy's limit."""
    TIME = "time"
    TICKS = "ticks"
    """The deterministic work limit was reached."""
    EXHAUSTED = "exhausted"
    """No search step was left."""
    INTERRUPTED = "interrupted"
    SETTLED = "settled"
    """The last plan was applied and nothing has changed since, so there was nothing to search for."""


def gap_between(objective: int, bound: int) -> float:
    """(bound − objective) / max(1, |objective|), not below 0."""
    return max(0, bound - objective) / max(1, abs(objective))


@dataclass(frozen=True, slots=True)
class Solution:
    """The best verified solution of one epoch; the objective is maximized, in points."""

    status: SolveStatus
    solver: str
    target: DesiredState
    objective: int
    bound: int | None
    """Upper bound on the objective of any plan; None if none is proven."""
    greedy_objective: int
    seconds: float
    phases: dict[str, float] = field(default_factory=dict)
    """Seconds by phase: pose, greedy, solve, disaggregate, refine, verify, and others."""
    fallback: Fallback | None = None
    rejected: tuple[RejectedAnswer, ...] = ()
    not_disaggregated: int = 0
    """Jobs of the aggregate solution without a concrete place; 0 in a plan that is proven optimal."""
    bound_note: str = ""
    """Reason why a bound claimed by a solver is not used."""
    ended: StopReason = StopReason.EXHAUSTED
    stages: tuple[Stage, ...] = ()
    """All priorities except the lowest, the highest first; empty with one priority, or order `weights`."""
    milestones: tuple[Milestone, ...] = ()
    """History of the search by time: each improvement of plan or bound, and each new stage."""

    @property
    def gap(self) -> float | None:
        """(bound − objective) / max(1, |objective|); None without a bound."""
        return None if self.bound is None else gap_between(self.objective, self.bound)
