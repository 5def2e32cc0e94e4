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

from gpuplan.models.cluster import Gpu, MigInstance, Node
from gpuplan.models.placement import Placement
from gpuplan.models.plan.base import PlanPart
from gpuplan.models.plan.desired_state import Planned, Target
from gpuplan.models.plan.forecast import DeadlineOutlook, DeadlineState, PlannedStart, Waiting
from gpuplan.models.plan.precondition import (
    Free,
    GpuLayout,
    JobDamaged,
    JobRuns,
    JobWaits,
    NodeAbsent,
    NodeEmpty,
    NodeExists,
    Precondition,
)
from gpuplan.models.plan.reason import Reason, ReasonCode
from gpuplan.models.plan.solution import Ended
from gpuplan.models.policy.policy import Policy
from gpuplan.models.snapshot import Snapshot
from gpuplan.models.units import Count, Mib, Milli, Name, Seconds, Timestamp
from gpuplan.models.validation.finding import Finding, FindingOutcome

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
    "Finding",
    "FindingOutcome",
    "Free",
    "GpuLayout",
    "Grow",
    "JobAction",
    "JobCounts",
    "JobDamaged",
    "JobRuns",
    "JobWaits",
    "Keep",
    "LeftOut",
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
    "Release",
    "Repartition",
    "ScaleDown",
    "ScaleUp",
    "Shrink",
    "SolutionSummary",
    "StageSummary",
    "Start",
    "Wait",
    "Waiting",
    "plan_content",
]

PLAN_FORMAT: Final = "1.0"


class _Action(PlanPart):
    id: str
    """Id of the action, unique in the plan."""
    reason: Reason
    """Why the action is planned."""
    preconditions: tuple[Precondition, ...] = ()
    """What must hold when its turn comes."""
    after_actions: tuple[str, ...] = ()
    """Ids of actions that must be done before."""


class Start(_Action):
    """Start a waiting job on its planned places."""

    type: Literal["start"] = "start"
    """The type of action: `start`."""
    job: Name
    """Job that starts."""
    before: None = None
    """Always null: the job holds nothing."""
    after: Placement
    """Where it will run."""
    kill_at: Timestamp | None = Field(default=None, exclude_if=not_)
    """When it is killed if it still runs: its places are promised to another job from then on."""
    recovery: Seconds = Field(default=0, exclude_if=not_)
    """Time before it works, as it comes back from its last checkpoint; 0 if it has not run before."""


class Keep(_Action):
    """A running job stays as it is."""

    type: Literal["keep"] = "keep"
    """The type of action: `keep`."""
    job: Name
    """Job that stays as it is."""
    before: Placement
    """Where it runs."""
    after: Placement
    """The same."""


class Preempt(_Action):
    """A running job is stopped, and waits again with what its last checkpoint saved."""

    type: Literal["preempt"] = "preempt"
    """The type of action: `preempt`."""
    job: Name
    """Job that is stopped."""
    before: Placement
    """Where it runs."""
    after: None = None
    """Always null: the job will hold nothing."""
    resumes_at: Timestamp | None = Field(default=None, exclude_if=not_)
    """When it is planned to start again, as `planned` says too."""


class Shrink(_Action):
    """A running elastic job gives up replicas."""

    type: Literal["shrink"] = "shrink"
    """The type of action: `shrink`."""
    job: Name
    """Job that gives up replicas."""
    before: Placement
    """Where it runs."""
    after: Placement
    """Where it will run."""
    interruption: Seconds = 0
    """Seconds in which it saves its state and comes back from it; unsaved work is lost beside them."""


class Grow(_Action):
    """A running elastic job gets more replicas."""

    type: Literal["grow"] = "grow"
    """The type of action: `grow`."""
    job: Name
    """Job that gets more replicas."""
    before: Placement
    """Where it runs."""
    after: Placement
    """Where it will run."""
    interruption: Seconds = 0
    """Seconds in which it saves its state and comes back from it; unsaved work is lost beside them."""


class Migrate(_Action):
    """A running job is stopped, and goes on elsewhere from its last checkpoint."""

    type: Literal["migrate"] = "migrate"
    """The type of action: `migrate`."""
    job: Name
    """Job that moves."""
    before: Placement
    """Where it runs."""
    after: Placement
    """Where it will run."""
    recovery: Seconds = Field(default=0, exclude_if=not_)
    """Time before it works there, as it comes back from its last checkpoint."""


class Release(_Action):
    """
    A running job gives up places that no longer hold, and all others unless it goes on with them.

    Of the work that its failure cost nothing is counted as the plan's; what becomes of the job then is the
    action that every job has: it starts, waits, is kept or grows.
    """

    type: Literal["release"] = "release"
    """The type of action: `release`."""
    job: Name
    """Job that has lost places."""
    before: Placement
    """Where it runs, lost places included."""
    after: Placement | None = None
    """What it goes on with; null if it waits again."""


class Repartition(_Action):
    """The MIG layout of one GPU changes; instances in use stay."""

    type: Literal["repartition"] = "repartition"
    """The type of action: `repartition`."""
    node: Name
    """Node that has the GPU."""
    gpu: int
    """Index of the GPU on its node."""
    before: tuple[MigInstance, ...] | None
    """MIG instances now; null is MIG mode off."""
    after: tuple[MigInstance, ...]
    """MIG instances afterwards."""


class Cordon(_Action):
    """Nothing new may start on a node from here on."""

    type: Literal["cordon"] = "cordon"
    """The type of action: `cordon`."""
    node: Name
    """Node that takes no new jobs."""


class Drain(_Action):
    """Confirm that everything has left a node."""

    type: Literal["drain"] = "drain"
    """The type of action: `drain`."""
    node: Name
    """Node that must be empty."""


class ScaleUp(_Action):
    """A pool gets one more node."""

    type: Literal["scale_up"] = "scale_up"
    """The type of action: `scale_up`."""
    pool: Name
    """Pool that grows."""
    node: Name
    """Node that is added."""
    after: Node
    """The node as it will be, without `ready_at`."""
    provisioning: Seconds = 0
    """Time until the node takes jobs."""


class ScaleDown(_Action):
    """An empty node of a pool is given back."""

    type: Literal["scale_down"] = "scale_down"
    """The type of action: `scale_down`."""
    pool: Name
    """Pool that shrinks."""
    node: Name
    """Node that is removed."""


class Wait(_Action):
    """A waiting job stays waiting."""

    type: Literal["wait"] = "wait"
    """The type of action: `wait`."""
    job: Name
    """Job that stays waiting."""
    before: None = None
    """Always null: the job holds nothing."""
    after: None = None
    """Always null: the job will hold nothing."""


JobAction: TypeAlias = Start | Keep | Preempt | Shrink | Grow | Migrate | Wait
"""Every job of the snapshot has exactly one of these."""

NodeAction: TypeAlias = Repartition | Cordon | Drain | ScaleUp | ScaleDown

Change: TypeAlias = Release | Start | Preempt | Shrink | Grow | Migrate | NodeAction
"""What an executor carries out."""

Action: TypeAlias = Annotated[Release | JobAction | NodeAction, Field(discriminator="type")]


class Base(PlanPart):
    """What the plan was made from."""

    snapshot: str
    """Fingerprint of the snapshot (SHA-256, hex)."""
    policy: str
    """Fingerprint of the policy (SHA-256, hex)."""


class FallbackSummary(PlanPart):
    """Why the plan is not the first choice's."""

    tried: str = Field(alias="from")
    """Solver that should have answered."""
    used: str = Field(alias="to")
    """Solver whose answer is used."""
    reason: str
    """Why the first one's answer is not used."""


class StageSummary(PlanPart):
    """What the jobs of one priority bring, where priorities are tiers and lower ones come after it."""

    priority: int
    """Of the jobs, larger is more important."""
    points: int
    """That those of them bring which start or grow, in objective points."""
    proven: bool
    """True if no plan without jobs of lower priority is better, given what jobs of higher priority bring."""


class LeftOut(PlanPart):
    """Changes that break no rule and that were not considered: a proof does not speak of them."""

    what: str
    """Which changes, in words."""
    count: Count
    """To how many jobs or pools they could be made."""


class SolutionSummary(PlanPart):
    """How good the plan is; all values in objective points."""

    status: Literal["OPTIMAL", "FEASIBLE"]
    """`OPTIMAL` if the bound proves that no plan scores more, else `FEASIBLE`."""
    solver: str
    """Where the placements come from, such as `greedy` or `milp`; docs/plan-format.md lists the values."""
    objective: int
    """Points of the plan."""
    bound: int | None
    """
    Proven upper bound of the points of any plan, with `stages` of any that brings each priority as much; null
    if none is known.
    """
    gap: Annotated[float, Field(ge=0)] | None
    """(bound − objective) / max(1, |objective|); null without a bound."""
    greedy_objective: int
    """
    Points of greedy's plan; where that takes from higher priorities what a solver found for them, of the plan
    of the priority before.
    """
    stages: tuple[StageSummary, ...] = Field(default=(), exclude_if=not_)
    """Of all priorities but the lowest, the highest first, where the policy's `priority.order` is `tiers`."""
    terms: dict[str, int]
    """Signed parts of the objective by name; they sum to it."""
    seconds: float
    """Wall clock of the planning, in seconds."""
    phases: dict[str, float] = Field(default_factory=dict)
    """Seconds of each phase."""
    fallback: FallbackSummary | None = None
    """Why the plan is not that of the solver asked first; null if it is."""
    rejected: tuple[str, ...] = ()
    """Answers that broke a rule and were not used: solver and first violation."""
    not_disaggregated: int = 0
    """Jobs of the solver's answer for which no concrete place was found."""
    bound_note: str = ""
    """Why a bound that a solver claimed does not count."""
    ended: Ended = Ended.EXHAUSTED
    """Why the search ended; no part of what `plan_id` is made of."""
    left_out: tuple[LeftOut, ...] = ()
    """
    Changes that no rule forbids and that were not considered: the bound is one over all else. It follows from
    the snapshot and the policy, and is no part of what `plan_id` is made of.
    """


class NodeChange(StrEnum):
    """What a plan does to a node."""

    KEPT = "kept"
    ADDED = "added"
    REMOVED = "removed"


class NodeState(PlanPart):
    """One node as it will be."""

    name: Name
    """Name of the node."""
    change: NodeChange = NodeChange.KEPT
    """What the plan does to the node."""
    pool: Name | None = None
    """Pool that it belongs to."""
    free_gpus: tuple[int, ...] = ()
    """Thousandths free of each GPU, by index; a GPU that is unhealthy or in MIG mode offers 0."""
    free_cpu_milli: Milli = Field(default=0, alias="free_cpus")
    """CPU cores free after the plan."""
    free_memory_mib: Mib = 0
    """Memory free after the plan, in MiB."""
    mig: tuple[Gpu, ...] = ()
    """GPUs in MIG mode with their layout."""


class JobCounts(PlanPart):
    """Jobs after the plan."""

    running: int
    """Jobs that run after the plan, the started ones included."""
    started: int
    """Jobs that the plan starts."""
    waiting: int
    """Jobs that wait after the plan."""
    preempted: int = 0
    """Of those waiting, jobs that the plan stops."""
    planned: int = Field(default=0, exclude_if=not_)
    """Of those waiting, jobs planned to start in a later slot."""
    promised: int = Field(default=0, exclude_if=not_)
    """Of those planned, jobs that are promised their start."""


class Metrics(PlanPart):
    """The cluster after the plan in figures (docs/plan-format.md defines each)."""

    gpu_allocation_ratio: float
    """GPUs held over GPUs usable after the plan."""
    gpu_allocation_ratio_before: float
    """GPUs held over GPUs usable before it."""
    fragmentation_ratio: float
    """Part of the free GPUs on which no replica of the reference gang fits."""
    jain_index: float
    """Jain's fairness index of the queues."""
    hourly_cost: float
    """Cost of the nodes after the plan, in the cluster's currency an hour."""
    hourly_cost_before: float | None = None
    """The same before the plan."""
    jobs: JobCounts
    """Numbers of jobs after the plan."""


class Plan(PlanPart):
    """What to change, why, and what the world was when this was decided."""

    format_version: Literal["1.0"] = PLAN_FORMAT
    """Version of the format of this document."""
    plan_id: str
    """Hash of the content without times and timings."""
    epoch: Timestamp
    """The instant that the plan is for: when its snapshot was taken."""
    created_at: Timestamp
    """When the plan was made."""
    base: Base
    """Fingerprints of what the plan was made from."""
    solution: SolutionSummary
    """How good the plan is, and how it was found."""
    actions: tuple[Action, ...]
    """Steps in an order in which they can be carried out; each job is in one of them, beside its release."""
    findings: tuple[Finding, ...] = Field(default=(), exclude_if=not_)
    """What of the cluster is damaged, jobs first; the snapshot is the one without what is lost."""
    placements: tuple[Placement, ...]
    """Where each job that runs after the plan will be."""
    nodes: tuple[NodeState, ...]
    """Each node after the plan."""
    waiting: tuple[Waiting, ...]
    """Jobs that wait after the plan, and why."""
    planned: tuple[PlannedStart, ...] = Field(default=(), exclude_if=not_)
    """Starts in later slots, by job."""
    deadlines: tuple[DeadlineOutlook, ...] = Field(default=(), exclude_if=not_)
    """Jobs with a deadline, by job."""
    metrics: Metrics
    """Figures of the cluster after the plan."""
    seed: int = 0
    """Seed of the search."""
    snapshot: Snapshot
    """The snapshot that the plan was made from."""
    policy: Policy
    """The policy that it was made with."""
    policy_file: str | None = Field(default=None, exclude_if=not_)
    """File that the policy was read from, as the command named it; absent for the default policy."""

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

    Snapshot and policy are in it by their fingerprints, which stand in `base`; where the policy was read from
    is no part of it.
    """
    left_out = ("plan_id", "created_at", "checksum", "snapshot", "policy", "policy_file")
    content = {key: value for key, value in document.items() if key not in left_out}
    search = ("seconds", "phases", "ended", "bound_note", "left_out")
    content["solution"] = {key: value for key, value in content["solution"].items() if key not in search}
    return content
