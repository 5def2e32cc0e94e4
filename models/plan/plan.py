"""
Plan: the immutable, self-contained change set of one epoch.

Fields about later slots occur in the file only if they are set, so the file of a plan with a single slot has
not changed since earlier versions.

Only `Action`s and their `Precondition`s drive apply; `Reason`s, the solution summary and the metrics are for
people. Field names are fixed by docs/plan-format.md.
"""

from __future__ import annotations

from collections import Counter
from enum import StrEnum
from html import escape
from operator import not_
from typing import TYPE_CHECKING, Annotated, Any, Final, Literal

from pydantic import Field

from gpuplan.models.cluster import Gpu
from gpuplan.models.placement import Placement, Replica
from gpuplan.models.plan.actions import (
    Action,
    ActionKind,
    added_nodes,
    changes_of,
    opened_nodes,
    removed_nodes,
)
from gpuplan.models.plan.reason import PlanBase, Reason
from gpuplan.models.plan.rollback import Rollback
from gpuplan.models.plan.solution import (
    NOTHING_UNDONE,
    DesiredState,
    IdleLayout,
    LaterStart,
    StopReason,
    Undo,
)
from gpuplan.models.policy.policy import Policy
from gpuplan.models.policy.settings import BudgetUnit
from gpuplan.models.snapshot import Snapshot
from gpuplan.models.units import Count, Mib, Milli, Name, Seconds, Timestamp, print_timestamp
from gpuplan.models.validation.base import DamageFinding

if TYPE_CHECKING:
    from collections.abc import Iterator

# What a plan expects of later slots: starts, promises, and the outlook of deadlines.


class Waiting(PlanBase):
    """A pending job, the reason why it waits, and its projected start."""

    job: Name
    """Pending job."""
    reason: Reason
    """Reason why it waits."""
    projected_start: Timestamp | None = None
    """
    Expected start; null if the job starts in no slot of the horizon, or the horizon is a single slot.
    """
    promised: bool = Field(default=False, exclude_if=not_)
    """True: the start is promised to the job, and later plans keep it."""
    earlier_promise: Timestamp | None = Field(default=None, exclude_if=not_)
    """The start that was promised before this plan."""
    promise_changed: str = Field(default="", exclude_if=not_)
    """Reason in words why that promise is postponed or withdrawn; empty if it is not."""
    waits_for: str = Field(default="", exclude_if=not_)
    """What its projected start depends on, in words that follow "waits": `until train-a ends`."""
    remaining: Seconds | None = Field(default=None, exclude_if=lambda value: value is None)
    """Time from its next start to its end on its fastest allowed GPU model; only for jobs that ran before."""


class PlannedStart(PlanBase):
    """A start in a later slot, with the places for it."""

    job: Name
    """Job that starts later."""
    slot: Annotated[int, Field(ge=1)]
    """Time slot of its start."""
    start: Timestamp
    """Beginning of the slot."""
    replicas: tuple[Replica, ...] = Field(min_length=1)
    """Planned places."""
    promised: bool = True
    """True: the places are reserved for it from now on."""


class DeadlineState(StrEnum):
    """Outlook of a deadline."""

    MET = "met"
    CRITICAL = "critical"
    """The plan meets it, but the job could wait for less than half its duration."""
    LATE = "late"
    IMPOSSIBLE = "impossible"
    """No plan can meet it any more."""


class DeadlineOutlook(PlanBase):
    """Expected completion of a job with a deadline."""

    job: Name
    """Job with a deadline."""
    deadline: Timestamp
    """Its deadline."""
    hard: bool = False
    """True: the job has no value after its deadline."""
    projected_finish: Timestamp | None = None
    """Expected completion; null if the job is not planned to start within the horizon."""
    state: DeadlineState
    """Outlook of the deadline."""


# The plan itself.


PLAN_FORMAT: Final = "1.0"


class Base(PlanBase):
    """Inputs of the plan."""

    snapshot: str
    """Fingerprint of the snapshot (SHA-256, hex)."""
    policy: str
    """Fingerprint of the policy (SHA-256, hex)."""


class FallbackSummary(PlanBase):
    """Reason why the plan is not from the preferred solver."""

    tried: str = Field(alias="from")
    """Preferred solver."""
    used: str = Field(alias="to")
    """Solver of the plan."""
    reason: str
    """Reason why the preferred solver's solution is not used."""


class StageSummary(PlanBase):
    """Points of the jobs of one priority, where priorities are tiers optimized one after the other."""

    priority: int
    """Priority of the jobs; larger is more important."""
    points: int
    """Objective points of those of them that start or grow."""
    proven: bool
    """True if no plan without jobs of lower priority is better, given the points of higher priorities."""


class LeftOut(PlanBase):
    """Feasible changes that were not considered: a proof of optimality does not cover them."""

    what: str
    """Type of the changes, in words."""
    count: Count
    """Number of jobs or pools that they could apply to."""


class SolutionSummary(PlanBase):
    """Quality of the plan; all values in objective points."""

    status: Literal["OPTIMAL", "FEASIBLE"]
    """`OPTIMAL` if the bound proves that no plan has more points, otherwise `FEASIBLE`."""
    solver: str
    """Source of the placements, such as `greedy` or `milp`; docs/plan-format.md lists the values."""
    objective: int
    """Points of the plan."""
    bound: int | None
    """
    Proven upper bound of the points of any plan; with `stages`, of any plan with the same points for each
    priority. Null if none is known.
    """
    gap: Annotated[float, Field(ge=0)] | None
    """(bound − objective) / max(1, |objective|); null without a bound."""
    greedy_objective: int
    """
    Points of the greedy plan. If that gives higher priorities fewer points than a solver found for them, the
    points of the plan of the previous priority.
    """
    stages: tuple[StageSummary, ...] = Field(default=(), exclude_if=not_)
    """All priorities except the lowest, the highest first, if the policy's `priority.order` is `tiers`."""
    terms: dict[str, int]
    """Signed terms of the objective by name; their sum is the objective."""
    seconds: float
    """Wall-clock time of planning, in seconds."""
    phases: dict[str, float] = Field(default_factory=dict)
    """Seconds of each phase."""
    fallback: FallbackSummary | None = None
    """Reason why the plan is not from the preferred solver; null if it is."""
    rejected: tuple[str, ...] = ()
    """Solutions that broke a rule and were not used: solver and first violation."""
    not_disaggregated: int = 0
    """Jobs of the aggregate solution for which disaggregation found no place."""
    bound_note: str = ""
    """Reason why a bound claimed by a solver is not used."""
    ended: StopReason = StopReason.EXHAUSTED
    """Reason why the search ended; it does not enter `plan_id`."""
    left_out: tuple[LeftOut, ...] = ()
    """
    Feasible changes that were not considered: the bound covers only plans without them. They follow from the
    snapshot and the policy, and do not enter `plan_id`.
    """


class NodeChange(StrEnum):
    """Change of a node by a plan."""

    KEPT = "kept"
    ADDED = "added"
    REMOVED = "removed"


class NodeState(PlanBase):
    """One node after the plan."""

    name: Name
    """Name of the node."""
    change: NodeChange = NodeChange.KEPT
    """Change of the node by the plan."""
    pool: Name | None = None
    """Pool that it belongs to."""
    free_gpus: tuple[int, ...] = ()
    """Thousandths free of each GPU, by index; 0 for a GPU that is unhealthy or in MIG mode."""
    free_cpu_milli: Milli = Field(default=0, alias="free_cpus")
    """CPU cores free after the plan."""
    free_memory_mib: Mib = 0
    """Memory free after the plan, in MiB."""
    mig: tuple[Gpu, ...] = ()
    """GPUs in MIG mode with their layout."""


class JobCounts(PlanBase):
    """Numbers of jobs after the plan."""

    running: int
    """Jobs that run after the plan, including started ones."""
    started: int
    """Jobs that the plan starts."""
    waiting: int
    """Jobs that wait after the plan."""
    preempted: int = 0
    """Waiting jobs that the plan preempts."""
    planned: int = Field(default=0, exclude_if=not_)
    """Waiting jobs that are planned to start in a later slot."""
    promised: int = Field(default=0, exclude_if=not_)
    """Planned jobs with a promised start."""


class Metrics(PlanBase):
    """Metrics of the cluster after the plan (docs/plan-format.md defines each)."""

    gpu_allocation_ratio: float
    """GPUs held divided by GPUs usable, after the plan."""
    gpu_allocation_ratio_before: float
    """GPUs held divided by GPUs usable, before the plan."""
    fragmentation_ratio: float
    """Fraction of the free GPUs on which no replica of the reference gang fits."""
    jain_index: float
    """Jain's fairness index of the queues."""
    hourly_cost: float
    """Cost of the nodes after the plan, in the cluster's currency per hour."""
    hourly_cost_before: float | None = None
    """Cost of the nodes before the plan."""
    jobs: JobCounts
    """Jobs after the plan, by state."""


class BudgetUse(PlanBase):
    """What a plan uses of a disruption budget."""

    name: Name
    """Name of the budget in the policy."""
    counts: BudgetUnit
    """What it counts."""
    expected: int
    """Replicas or jobs of the group that should be available."""
    allowed: int
    """The most of them that may be unavailable."""
    down: int
    """Those that are unavailable without the plan, or must leave for a reservation window."""
    disrupted: int
    """Those that the plan preempts, migrates or gives up by shrinking."""


class Plan(PlanBase):
    """The changes, their reasons, and the snapshot and policy that they are based on."""

    format_version: Literal["1.0"] = PLAN_FORMAT
    """Version of the format of this document."""
    plan_id: str
    """Hash of the content without times and durations."""
    epoch: Timestamp
    """Instant of the plan: the time of its snapshot."""
    created_at: Timestamp
    """Time at which the plan was made."""
    base: Base
    """Fingerprints of the inputs."""
    solution: SolutionSummary
    """Quality of the plan, and how it was found."""
    actions: tuple[Action, ...]
    """Actions in an executable order; each job has exactly one, in addition to a possible release."""
    findings: tuple[DamageFinding, ...] = Field(default=(), exclude_if=not_)
    """Damage found in the cluster, jobs first; the snapshot is the one without lost resources."""
    placements: tuple[Placement, ...]
    """Placement of each job that runs after the plan."""
    nodes: tuple[NodeState, ...]
    """Each node after the plan."""
    waiting: tuple[Waiting, ...]
    """Jobs that wait after the plan, with reasons."""
    planned: tuple[PlannedStart, ...] = Field(default=(), exclude_if=not_)
    """Starts in later slots, sorted by job."""
    deadlines: tuple[DeadlineOutlook, ...] = Field(default=(), exclude_if=not_)
    """Jobs with a deadline, sorted by job."""
    metrics: Metrics
    """Metrics of the cluster after the plan."""
    budgets: tuple[BudgetUse, ...] = Field(default=(), exclude_if=not_)
    """Disruption budgets in force, in the order of the policy."""
    rollback: Rollback | None = Field(default=None, exclude_if=not_)
    """Of a plan that undoes an earlier one: which, and what of it stays; absent in other plans."""
    seed: int = 0
    """Seed of the search."""
    snapshot: Snapshot
    """The snapshot that the plan was made from."""
    policy: Policy
    """The policy that it was made with."""
    policy_file: str | None = Field(default=None, exclude_if=not_)
    """Path of the policy file, as given to the command; absent for the default policy."""
    planned_by: str = Field(default="", exclude_if=not_)
    """user@host that made the plan, and so does not approve it; not part of `plan_id`."""

    def __repr_args__(self) -> Iterator[tuple[str, Any]]:
        """What a prompt or notebook shows: id, epoch, number of actions by kind, objective and gap."""
        yield from (("plan_id", self.plan_id), ("epoch", print_timestamp(self.epoch)))
        kinds = Counter[str](action.type for action in self.actions)
        yield from ((kind.value, kinds[kind]) for kind in ActionKind if kinds[kind])
        gap = self.solution.gap
        yield from (("objective", self.solution.objective), ("gap", gap if gap is None else round(gap, 6)))

    def _repr_html_(self) -> str:
        """The same as a table, which notebooks show."""
        rows = "".join(
            f"<tr><th>{name}</th><td>{escape(str(value))}</td></tr>" for name, value in self.__repr_args__()
        )
        return f"<table>{rows}</table>"

    @property
    def has_changes(self) -> bool:
        """True if applying the plan would change anything."""
        return bool(changes_of(self.actions))

    @property
    def rules(self) -> Policy:
        """The policy in force: without what the cluster cannot do."""
        return self.policy.within(self.snapshot.cluster)

    @property
    def target(self) -> DesiredState:
        """The desired state of the cluster, which the verifier checks."""
        return DesiredState(
            placements=self.placements,
            added=added_nodes(self.actions),
            removed=removed_nodes(self.actions),
            planned=tuple(
                LaterStart(each.job, each.slot, each.replicas, promised=each.promised)
                for each in self.planned
            ),
            undo=self.undo,
        )

    @property
    def undo(self) -> Undo:
        """Of a rollback: what it may do that other plans do not."""
        if self.rollback is None:
            return NOTHING_UNDONE
        layouts = (IdleLayout(each.node, each.gpu, each.instances) for each in self.rollback.layouts)
        return Undo(
            jobs=frozenset(self.rollback.jobs),
            pools=frozenset(self.rollback.pools),
            opened=opened_nodes(self.actions),
            layouts=tuple(layouts),
            rolls_back=True,
        )


def plan_content(document: dict[str, Any]) -> dict[str, Any]:
    """
    The part of a plan document that `plan_id` hashes: without times, search statistics and the id itself.

    Snapshot and policy enter by their fingerprints in `base`. The path of the policy file and the name of the
    planner do not.
    """
    left_out = ("plan_id", "created_at", "checksum", "snapshot", "policy", "policy_file", "planned_by")
    content = {key: value for key, value in document.items() if key not in left_out}
    search = ("seconds", "phases", "ended", "bound_note", "left_out")
    content["solution"] = {key: value for key, value in content["solution"].items() if key not in search}
    return content
