"""
Plan: the frozen change set of one epoch, complete in itself.

What a plan says about later slots stands in its file only where it says something, so that a plan of one
instant is the same file as ever.

`Action`s and their `Precondition`s alone drive apply; `Reason`s, the solution summary and the metrics are
for people. Field names are fixed by docs/plan-format.md.
"""

from __future__ import annotations

from enum import StrEnum
from operator import not_
from typing import Annotated, Any, Final, Literal, TypeAlias

from pydantic import Field

from planner.models.cluster import Gpu, MigInstance, Node
from planner.models.placement import Placement
from planner.models.plan_part import PlanPart
from planner.models.policy import Policy
from planner.models.precondition import (
    Free,
    GpuLayout,
    JobRuns,
    JobWaits,
    NodeAbsent,
    NodeEmpty,
    NodeExists,
    Precondition,
)
from planner.models.projection import DeadlineOutlook, DeadlineState, PlannedStart, Waiting
from planner.models.reason import Reason, ReasonCode
from planner.models.snapshot import Snapshot
from planner.models.solution import Ended
from planner.models.target import Planned, Target
from planner.models.units import Mib, Milli, Name, Seconds, Timestamp

__all__ = [
    "PLAN_FORMAT",
    "Action",
    "Base",
    "Change",
    "Cordon",
    "DeadlineOutlook",
    "DeadlineState",
    "Drain",
    "FallbackSummary",
    "Free",
    "GpuLayout",
    "Grow",
    "JobAction",
    "JobCounts",
    "JobRuns",
    "JobWaits",
    "Keep",
    "Metrics",
    "Migrate",
    "NodeAbsent",
    "NodeAction",
    "NodeChange",
    "NodeEmpty",
    "NodeExists",
    "NodeState",
    "Plan",
    "PlanPart",
    "PlannedStart",
    "Precondition",
    "Preempt",
    "Reason",
    "ReasonCode",
    "Repartition",
    "ScaleDown",
    "ScaleUp",
    "Shrink",
    "SolutionSummary",
    "Start",
    "Wait",
    "Waiting",
    "plan_content",
]

PLAN_FORMAT: Final = "1.0"


class _Action(PlanPart):
    id: str
    """Unique in the plan."""
    reason: Reason
    preconditions: tuple[Precondition, ...] = ()
    after_actions: tuple[str, ...] = ()
    """Ids of actions that must be done before."""


class Start(_Action):
    """Start a waiting job on its planned places."""

    type: Literal["start"] = "start"
    job: Name
    before: None = None
    after: Placement
    kill_at: Timestamp | None = Field(default=None, exclude_if=not_)
    """When it is killed if it still runs: its places are promised to somebody else from then on."""


class Keep(_Action):
    """A running job stays as it is."""

    type: Literal["keep"] = "keep"
    job: Name
    before: Placement
    after: Placement


class Preempt(_Action):
    """A running job is stopped after a checkpoint, and waits again."""

    type: Literal["preempt"] = "preempt"
    job: Name
    before: Placement
    after: None = None


class Shrink(_Action):
    """A running elastic job gives up replicas."""

    type: Literal["shrink"] = "shrink"
    job: Name
    before: Placement
    after: Placement


class Grow(_Action):
    """A running elastic job gets more replicas."""

    type: Literal["grow"] = "grow"
    job: Name
    before: Placement
    after: Placement


class Migrate(_Action):
    """A running job is stopped after a checkpoint and goes on elsewhere."""

    type: Literal["migrate"] = "migrate"
    job: Name
    before: Placement
    after: Placement


class Repartition(_Action):
    """The MIG layout of one GPU changes; instances in use stay."""

    type: Literal["repartition"] = "repartition"
    node: Name
    gpu: int
    before: tuple[MigInstance, ...] | None
    """None: MIG mode is off."""
    after: tuple[MigInstance, ...]


class Cordon(_Action):
    """Nothing new may start on a node from here on."""

    type: Literal["cordon"] = "cordon"
    node: Name


class Drain(_Action):
    """Confirm that everything has left a node."""

    type: Literal["drain"] = "drain"
    node: Name


class ScaleUp(_Action):
    """A pool gets one more node."""

    type: Literal["scale_up"] = "scale_up"
    pool: Name
    node: Name
    after: Node
    """The node as it will be, without `ready_at`."""
    provisioning: Seconds = 0


class ScaleDown(_Action):
    """An empty node of a pool is given back."""

    type: Literal["scale_down"] = "scale_down"
    pool: Name
    node: Name


class Wait(_Action):
    """A waiting job stays waiting."""

    type: Literal["wait"] = "wait"
    job: Name
    before: None = None
    after: None = None


JobAction: TypeAlias = Start | Keep | Preempt | Shrink | Grow | Migrate | Wait
"""Every job of the snapshot has exactly one of these."""

NodeAction: TypeAlias = Repartition | Cordon | Drain | ScaleUp | ScaleDown

Change: TypeAlias = Start | Preempt | Shrink | Grow | Migrate | NodeAction
"""What an executor carries out."""

Action: TypeAlias = Annotated[JobAction | NodeAction, Field(discriminator="type")]


class Base(PlanPart):
    """What the plan was made from."""

    snapshot: str
    """Fingerprint."""
    policy: str
    """Fingerprint."""


class FallbackSummary(PlanPart):
    """Why the plan is not the first choice's."""

    tried: str = Field(alias="from")
    used: str = Field(alias="to")
    reason: str


class SolutionSummary(PlanPart):
    """How good the plan is; all values in objective points."""

    status: Literal["OPTIMAL", "FEASIBLE"]
    solver: str
    objective: int
    bound: int | None
    gap: Annotated[float, Field(ge=0)] | None
    greedy_objective: int
    terms: dict[str, int]
    """Signed parts of the objective by name; they sum to it."""
    seconds: float
    phases: dict[str, float] = Field(default_factory=dict)
    fallback: FallbackSummary | None = None
    rejected: tuple[str, ...] = ()
    """Answers that broke a rule and were not used: solver and first violation."""
    not_disaggregated: int = 0
    bound_note: str = ""
    """Why a bound that a solver claimed does not count."""
    ended: Ended = Ended.EXHAUSTED
    """Why the search ended; like its note and its times no part of what the plan is."""


class NodeChange(StrEnum):
    """What a plan does to a node."""

    KEPT = "kept"
    ADDED = "added"
    REMOVED = "removed"


class NodeState(PlanPart):
    """One node as it will be."""

    name: Name
    change: NodeChange = NodeChange.KEPT
    pool: Name | None = None
    free_gpus: tuple[int, ...] = ()
    """Thousandths free of each GPU, by index; a GPU that is unhealthy or in MIG mode offers 0."""
    free_cpu_milli: Milli = Field(default=0, alias="free_cpus")
    free_memory_mib: Mib = 0
    mig: tuple[Gpu, ...] = ()
    """GPUs in MIG mode with their layout."""


class JobCounts(PlanPart):
    """Jobs after the plan."""

    running: int
    """All that run after the plan, the started ones included."""
    started: int
    waiting: int
    preempted: int = 0
    """Of those waiting, stopped by the plan."""
    planned: int = Field(default=0, exclude_if=not_)
    """Of those waiting, planned to start in a later slot."""
    promised: int = Field(default=0, exclude_if=not_)
    """Of those planned, promised their start."""


class Metrics(PlanPart):
    """The cluster after the plan in figures (docs/plan-format.md defines each)."""

    gpu_allocation_ratio: float
    gpu_allocation_ratio_before: float
    fragmentation_ratio: float
    jain_index: float
    hourly_cost: float
    hourly_cost_before: float | None = None
    jobs: JobCounts


class Plan(PlanPart):
    """What to change, why, and what the world was when this was decided."""

    format_version: Literal["1.0"] = PLAN_FORMAT
    plan_id: str
    epoch: Timestamp
    created_at: Timestamp
    base: Base
    solution: SolutionSummary
    actions: tuple[Action, ...]
    """In an order in which they can be carried out."""
    placements: tuple[Placement, ...]
    nodes: tuple[NodeState, ...]
    waiting: tuple[Waiting, ...]
    planned: tuple[PlannedStart, ...] = Field(default=(), exclude_if=not_)
    """Starts in later slots, by job."""
    deadlines: tuple[DeadlineOutlook, ...] = Field(default=(), exclude_if=not_)
    """Jobs with a deadline, by job."""
    metrics: Metrics
    seed: int = 0
    snapshot: Snapshot
    policy: Policy

    @property
    def has_changes(self) -> bool:
        """True if applying the plan would do anything."""
        return any(not isinstance(action, Keep | Wait) for action in self.actions)

    @property
    def target(self) -> Target:
        """The cluster as it shall be, which the verifier judges."""
        return Target(
            placements=self.placements,
            added=tuple(action.after for action in self.actions if isinstance(action, ScaleUp)),
            removed=tuple(sorted(action.node for action in self.actions if isinstance(action, ScaleDown))),
            planned=tuple(
                Planned(each.job, each.slot, each.replicas, promised=each.promised) for each in self.planned
            ),
        )


def plan_content(document: dict[str, Any]) -> dict[str, Any]:
    """
    The part of a plan document that `plan_id` hashes: no times, nothing of how the search went, not the id.

    Snapshot and policy are in it by their fingerprints, which stand in `base`.
    """
    left_out = ("plan_id", "created_at", "checksum", "snapshot", "policy")
    content = {key: value for key, value in document.items() if key not in left_out}
    search = ("seconds", "phases", "ended", "bound_note")
    content["solution"] = {key: value for key, value in content["solution"].items() if key not in search}
    return content
