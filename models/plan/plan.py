"""
Plan: the immutable, self-contained change set of one epoch.

Fields about later slots occur in the file only if they are set, so the file of a plan with a single slot has
not changed since earlier versions.

Only `Action`s and their `Precondition`s drive apply; `Reason`s, the solution summary and the metrics are for
people. Field names are fixed by docs/plan-format.md.
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
    """Reason for the action."""
    preconditions: tuple[Precondition, ...] = ()
    """Conditions that must hold when the action is carried out."""
    after_actions: tuple[str, ...] = ()
    """Ids of actions that must be carried out before."""


class Start(_Action):
    """Start a waiting job on its planned places."""

    type: Literal["start"] = "start"
    """The type of action: `start`."""
    job: Name
    """Job that starts."""
    before: None = None
    """Always null: the job holds nothing."""
    after: Placement
    """Placement after the action."""
    kill_at: Timestamp | None = Field(default=None, exclude_if=not_)
    """Time at which it is killed if it still runs: its places are promised to another job from then on."""
    recovery: Seconds = Field(default=0, exclude_if=not_)
    """Time to resume from its last checkpoint before it works; 0 if it has not run before."""


class Keep(_Action):
    """Leave a running job unchanged."""

    type: Literal["keep"] = "keep"
    """The type of action: `keep`."""
    job: Name
    """Job that is unchanged."""
    before: Placement
    """Placement before the action."""
    after: Placement
    """The same as `before`."""


class Preempt(_Action):
    """Preempt a running job, which waits again with the progress of its last checkpoint."""

    type: Literal["preempt"] = "preempt"
    """The type of action: `preempt`."""
    job: Name
    """Job that is preempted."""
    before: Placement
    """Placement before the action."""
    after: None = None
    """Always null: the job will hold nothing."""
    resumes_at: Timestamp | None = Field(default=None, exclude_if=not_)
    """Planned time of its next start, as in `planned`."""


class Shrink(_Action):
    """Remove replicas of a running elastic job."""

    type: Literal["shrink"] = "shrink"
    """The type of action: `shrink`."""
    job: Name
    """Job that gives up replicas."""
    before: Placement
    """Placement before the action."""
    after: Placement
    """Placement after the action."""
    interruption: Seconds = 0
    """Seconds to save and restore its state; unsaved work is lost in addition."""


class Grow(_Action):
    """Add replicas to a running elastic job."""

    type: Literal["grow"] = "grow"
    """The type of action: `grow`."""
    job: Name
    """Job that gets replicas."""
    before: Placement
    """Placement before the action."""
    after: Placement
    """Placement after the action."""
    interruption: Seconds = 0
    """Seconds to save and restore its state; unsaved work is lost in addition."""


class Migrate(_Action):
    """Stop a running job and resume it on other places from its last checkpoint."""

    type: Literal["migrate"] = "migrate"
    """The type of action: `migrate`."""
    job: Name
    """Job that migrates."""
    before: Placement
    """Placement before the action."""
    after: Placement
    """Placement after the action."""
    recovery: Seconds = Field(default=0, exclude_if=not_)
    """Time to resume from its last checkpoint before it works there."""


class Release(_Action):
    """
    Release the lost places of a running job, and its other places unless it continues with them.

    Work lost by the failure does not count as a loss by the plan. A further action says what becomes of the
    job, as for every job: start, wait, keep or grow.
    """

    type: Literal["release"] = "release"
    """The type of action: `release`."""
    job: Name
    """Job that has lost places."""
    before: Placement
    """Placement before the action, including lost places."""
    after: Placement | None = None
    """Places that it continues with; null if it waits again."""


class Repartition(_Action):
    """Change the MIG layout of one GPU; instances in use stay."""

    type: Literal["repartition"] = "repartition"
    """The type of action: `repartition`."""
    node: Name
    """Node that has the GPU."""
    gpu: int
    """Index of the GPU on its node."""
    before: tuple[MigInstance, ...] | None
    """MIG instances now; null means MIG mode off."""
    after: tuple[MigInstance, ...]
    """MIG instances afterwards."""


class Cordon(_Action):
    """Stop new starts on a node from this step on."""

    type: Literal["cordon"] = "cordon"
    """The type of action: `cordon`."""
    node: Name
    """Node that accepts no new jobs."""


class Drain(_Action):
    """Confirm that no job is left on a node."""

    type: Literal["drain"] = "drain"
    """The type of action: `drain`."""
    node: Name
    """Node that must be empty."""


class ScaleUp(_Action):
    """Add one node to a pool."""

    type: Literal["scale_up"] = "scale_up"
    """The type of action: `scale_up`."""
    pool: Name
    """Pool that grows."""
    node: Name
    """Node that is added."""
    after: Node
    """The node as it will be, without `ready_at`."""
    provisioning: Seconds = 0
    """Time until the node accepts jobs."""


class ScaleDown(_Action):
    """Remove an empty node from a pool."""

    type: Literal["scale_down"] = "scale_down"
    """The type of action: `scale_down`."""
    pool: Name
    """Pool that shrinks."""
    node: Name
    """Node that is removed."""


class Wait(_Action):
    """Leave a pending job pending."""

    type: Literal["wait"] = "wait"
    """The type of action: `wait`."""
    job: Name
    """Job that stays pending."""
    before: None = None
    """Always null: the job holds nothing."""
    after: None = None
    """Always null: the job will hold nothing."""


JobAction: TypeAlias = Start | Keep | Preempt | Shrink | Grow | Migrate | Wait
"""Each job of the snapshot has exactly one of these."""

NodeAction: TypeAlias = Repartition | Cordon | Drain | ScaleUp | ScaleDown

Change: TypeAlias = Release | Start | Preempt | Shrink | Grow | Migrate | NodeAction
"""Actions that an executor carries out."""

Action: TypeAlias = Annotated[Release | JobAction | NodeAction, Field(discriminator="type")]


class Base(PlanPart):
    """Inputs of the plan."""

    snapshot: str
    """Fingerprint of the snapshot (SHA-256, hex)."""
    policy: str
    """Fingerprint of the policy (SHA-256, hex)."""


class FallbackSummary(PlanPart):
    """Reason why the plan is not from the preferred solver."""

    tried: str = Field(alias="from")
    """Preferred solver."""
    used: str = Field(alias="to")
    """Solver of the plan."""
    reason: str
    """Reason why the preferred solver's solution is not used."""


class StageSummary(PlanPart):
    """Points of the jobs of one priority, where priorities are tiers optimized one after the other."""

    priority: int
    """Priority of the jobs; larger is more important."""
    points: int
    """Objective points of those of them that start or grow."""
    proven: bool
    """True if no plan without jobs of lower priority is better, given the points of higher priorities."""


class LeftOut(PlanPart):
    """Feasible changes that were not considered: a proof of optimality does not cover them."""

    what: str
    """Type of the changes, in words."""
    count: Count
    """Number of jobs or pools that they could apply to."""


class SolutionSummary(PlanPart):
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
    ended: Ended = Ended.EXHAUSTED
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


class NodeState(PlanPart):
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


class JobCounts(PlanPart):
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


class Metrics(PlanPart):
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
    """Numbers of jobs after the plan."""


class Plan(PlanPart):
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
    findings: tuple[Finding, ...] = Field(default=(), exclude_if=not_)
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
    seed: int = 0
    """Seed of the search."""
    snapshot: Snapshot
    """The snapshot that the plan was made from."""
    policy: Policy
    """The policy that it was made with."""
    policy_file: str | None = Field(default=None, exclude_if=not_)
    """Path of the policy file, as given to the command; absent for the default policy."""

    @property
    def has_changes(self) -> bool:
        """True if applying the plan would change anything."""
        return any(not isinstance(action, Keep | Wait) for action in self.actions)

    @property
    def target(self) -> Target:
        """The desired state of the cluster, which the verifier checks."""
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
    The part of a plan document that `plan_id` hashes: without times, search statistics and the id itself.

    Snapshot and policy enter by their fingerprints in `base`; the path of the policy file does not.
    """
    left_out = ("plan_id", "created_at", "checksum", "snapshot", "policy", "policy_file")
    content = {key: value for key, value in document.items() if key not in left_out}
    search = ("seconds", "phases", "ended", "bound_note", "left_out")
    content["solution"] = {key: value for key, value in content["solution"].items() if key not in search}
    return content
