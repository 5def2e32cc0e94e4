"""Explanation: everything a plan says about one job, as data, with its position and its remedies."""

from __future__ import annotations

from enum import StrEnum

from pydantic import Field, NonNegativeFloat, NonNegativeInt

from gpuplan.models.base import Noun
from gpuplan.models.dependency import DependencyKind
from gpuplan.models.plan.plan import DeadlineOutlook
from gpuplan.models.plan.reason import Reason
from gpuplan.models.policy.settings import Goal
from gpuplan.models.queue import QuotaResource
from gpuplan.models.timing.durations import DurationSource, LeftBasis
from gpuplan.models.units import Count, CountedSeconds, Label, Mib, Milli, Name, QuotaMilli, Timestamp
from gpuplan.models.validation.base import DamageFinding

# Position of a waiting job: the jobs ahead, the jobs that hold what it needs, and its quotas' usage.


class QuotaLevel(Noun):
    """One quota limit between a job's queue and the root of the queue tree."""

    queue: Name
    resource: QuotaResource = "gpus"
    """What it limits: GPUs, CPU cores, or memory in MiB."""
    gpu_model: str
    """Empty for the limit over all models together."""
    used_milli: QuotaMilli = Field(alias="used")
    """What counts against this limit once the plan is applied."""
    limit_milli: QuotaMilli = Field(alias="limit")
    needed_milli: QuotaMilli = Field(alias="needed")
    """What the job would add here; a queue below may cover a part from quota that it does not lend."""
    binds: bool
    """True if the job would exceed the limit."""


class FreeBlock(Noun):
    """The eligible node with the most free capacity for a job, without what is promised to other jobs."""

    node: Name
    gpus: Count
    """GPUs that are wholly free."""
    largest_share_milli: Milli = Field(alias="largest_share")
    """Largest free part of one GPU."""
    cpu_milli: Milli = Field(alias="cpus")
    memory_mib: Mib


class Urgency(Noun):
    """The figures that decide the place of one job in the order of waiting jobs."""

    priority: Count
    points: NonNegativeInt
    """Value of its work, on its fastest GPU model."""
    gpu_milli: Milli = Field(alias="gpus")
    """The most GPUs it asks for."""
    weight_milli: Milli = Field(alias="weight")
    goal: Goal
    """The goal that sets its value; the figure that the goal uses is one of those below."""
    left_seconds: CountedSeconds
    """Time to its end, as its goal estimates it."""
    left_basis: LeftBasis
    """Source of `left_seconds`."""
    served_gpu_seconds: NonNegativeInt
    """GPUs held so far, times how long."""
    rho: NonNegativeFloat
    """Time since submission and to its end, divided by that time with an equal share of the cluster."""
    waited_seconds: CountedSeconds


class CompetingJob(Urgency):
    """A waiting job that is ahead of the explained job and waits for the same quota or nodes."""

    job: Name
    queue: Name


class ResourceHolder(Noun):
    """A job that runs once the plan is applied, and holds quota or nodes that the explained job needs."""

    job: Name
    queue: Name
    user: Name
    priority: Count
    gpu_milli: Milli = Field(alias="gpus")
    """GPUs on nodes that the explained job could use."""
    nodes: tuple[Name, ...]
    ends_at: Timestamp
    """Expected end."""
    may_be_stopped: bool
    """True if the planner may preempt it for the explained job at its present priority."""


class QueuePosition(Noun):
    """Position of a waiting job among the other jobs."""

    points: NonNegativeInt
    """Value of its work, on its fastest GPU model."""
    urgency: Urgency
    """The job's own figures."""
    replicas_fitting: Count
    """Replicas that its eligible nodes have capacity for now; quotas are not considered."""
    beside_promises: bool = Field(default=False, exclude_if=lambda value: not value)
    """True if these leave to others what is promised to them before the job ends; so does `largest_free`."""
    replicas_needed: Count
    matching_nodes: Count
    largest_free: FreeBlock | None = None
    """None if no node is eligible."""
    quotas: tuple[QuotaLevel, ...] = ()
    """From its queue up to the root."""
    ahead: tuple[CompetingJob, ...] = ()
    """The first few: by priority where priorities are tiers, then by points per GPU."""
    ahead_in_all: Count = 0
    holders: tuple[ResourceHolder, ...] = ()
    """The first few to end."""
    holders_in_all: Count = 0


# Remedies: the smallest changes after which a waiting job starts, and what each of them costs.


class RemedyKind(StrEnum):
    """What is changed."""

    RELEASE = "release"
    """The job is no longer held."""
    BEGIN = "begin"
    """The job may start before its `not_before`."""
    QUOTA = "quota"
    GPU_MODEL = "gpu_model"
    """The job may also run on this model."""
    SELECTOR = "selector"
    """The job drops a condition on nodes."""
    TOLERATION = "toleration"
    """The job tolerates a taint."""
    LOCALITY = "locality"
    """Its replicas may be further apart."""
    SPREAD = "spread"
    """More of its replicas may be in one domain."""
    REPLICAS = "replicas"
    CPUS = "cpus"
    """CPUs of one replica."""
    MEMORY = "memory"
    """Memory of one replica, in MiB."""
    POLICY = "policy"
    """A setting of the policy is changed."""
    PRIORITY = "priority"
    """Priority of the job, so that the plan may preempt others for it."""
    STOP = "stop"
    """A running job is stopped and waits."""
    DEFER = "defer"
    """A job that the plan starts waits instead."""
    NODE = "node"
    """The cluster gets more nodes."""
    UNCORDON = "uncordon"
    POWER = "power"
    """The power cap of a rack is raised."""
    WAIT = "wait"
    """Nothing is changed; the job waits until running jobs have ended."""


class RemedyPart(Noun):
    """One change of a remedy."""

    kind: RemedyKind
    subject: Name
    """A queue, a job, a node, a pool, a rack, a GPU model, or the name of a setting."""
    job: Name | None = None
    """Set if another job is changed: one that has to start together with the explained job."""
    gpu_model: str = ""
    """GPU model of the quota; empty for the quota of all models."""
    resource: QuotaResource | None = None
    """What the quota counts: GPUs, CPU cores, or memory in MiB; absent if no quota is changed."""
    before: int | float | str | None = None
    after: int | float | str | None = None
    text: str
    """One phrase for people that is complete without the other fields."""


class Remedy(Noun):
    """
    Changes after which the job starts, with everything else as in the plan.

    The verifier finds no rule broken with the job on these nodes. With one part left out, or one amount a
    step smaller, the job would not fit.
    """

    parts: tuple[RemedyPart, ...] = Field(min_length=1)
    points: int
    """Objective with the job started, minus the objective of the plan."""
    nodes: tuple[Name, ...]
    """Nodes where it would start, together with the jobs of its co-start group; sorted."""
    stops: tuple[Name, ...] = ()
    """Running jobs that are stopped; sorted."""
    by_hand: bool = False
    """True if the policy or the priorities forbid it to a plan: an operator has to stop these jobs."""
    lost_gpu_hours: float | None = None
    """Work of the stopped jobs since their last checkpoints."""
    price_per_hour: float | None = None
    """Price of the added nodes, in the cluster's currency."""
    seconds: CountedSeconds | None = None
    """Time to wait."""
    starts_at: Timestamp | None = None
    """Start, if later than now."""


class ImmediateStart(Noun):
    """A start that is possible with nothing changed: its points and its nodes."""

    points: int
    nodes: tuple[Name, ...]


class Remedies(Noun):
    """All remedies for one waiting job."""

    fits: ImmediateStart | None = None
    """Set if the job could start with nothing changed; then no remedy is searched."""
    found: tuple[Remedy, ...] = ()
    """Most points first."""
    more: Count = 0
    """Number of remedies left out because they bring less than others of their kind."""
    unconfirmed: Count = 0
    """Number of remedies that passed the counting test, but got no placement or failed verification."""
    unplaced: bool = False
    """True if counts suffice with nothing changed, but no placement was found; then no change is tried."""
    together_with: tuple[Name, ...] = ()
    """Waiting jobs that have to start together with it; if there are any, no priority was tried."""


# The explanation itself.


class ExpectedDuration(Noun):
    """Expected duration of a job, and the source of the estimate."""

    seconds: CountedSeconds
    """On the fastest of its GPU models."""
    source: DurationSource
    samples: Count = 0
    """Number of finished jobs the estimate is learnt from."""
    percentile: Count | None = None
    """Percentile of their durations; None if the estimate is not learnt."""
    seconds_in_order: CountedSeconds | None = None
    """Time left that orders it among waiting jobs, if its goal does not use what is left of `seconds`."""
    basis_in_order: LeftBasis | None = None
    """Source of `seconds_in_order`."""
    gpu_model: Name | None = None
    """GPU model on which the plan runs or later starts the job; None without GPUs or without a placement."""
    seconds_there: CountedSeconds | None = None
    """Duration of the whole job on that model."""
    seconds_left: CountedSeconds | None = None
    """For a job that has run: time to its end, in its placement in the plan or from its next start on."""
    seconds_saved: CountedSeconds | None = None
    """For a job that is or was stopped: work that its last checkpoint saved, on its fastest GPU model."""
    recovery_seconds: CountedSeconds | None = None
    """Part of `seconds_left` that it spends on its restart from the last checkpoint."""


class JobScaling(Noun):
    """Speed of an elastic job as a function of its number of replicas."""

    speeds: dict[int, float]
    """Speed at its minimum and maximum size, and at the sizes of its table between them, on `gpu_model`."""
    gpu_model: Name | None = None
    """GPU model on which the plan runs or later starts the job; None without GPUs or without a placement."""
    learnt: bool = False
    """True if the job states no table and the speeds are learnt from similar jobs."""


class AwaitedJob(Noun):
    """A job that the explained job depends on."""

    job: Name
    kind: DependencyKind
    satisfied: bool = False
    never: bool = False
    """True if the dependency can no longer be satisfied."""
    expected_at: Timestamp | None = None
    """None if the dependency is satisfied, or if the time is unknown."""


class Neighbour(Noun):
    """Another job on the nodes that the explained job is placed on, before or beside it."""

    job: Name
    node: Name
    starts_at: Timestamp | None = None
    """None if it runs already, or starts now."""
    until: Timestamp
    """Its expected end."""
    in_its_place: bool
    """True if it holds a GPU that the explained job gets."""


class HeldNodes(Noun):
    """Nodes held for a starving job, as far as they concern the explained job."""

    job: Name
    """The starving job."""
    nodes: tuple[Name, ...]
    """All held nodes; for a job that has a place beside it, the node of its place; sorted."""
    begins: Timestamp
    """When running jobs are expected to have made room."""


class Exchange(Noun):
    """What the plan does to another job that exchanges places, quota or power with the explained job."""

    job: Name
    action: str
    """Type of the other job's action."""
    points: int
    """Effect of that action on the objective."""
    lost_gpu_hours: float = 0.0
    """Work since its last checkpoint, if it has to leave its place."""


class Explanation(Noun):
    """Explanation of one job of a plan."""

    plan_id: str
    """Id of the plan."""
    epoch: Timestamp
    """The instant that the plan is for."""
    job: Name
    """Name of the job."""
    given_name: Label = Field(default="", exclude_if=lambda value: not value)
    """Name that its user gave it, if the cluster counts its jobs by number; empty otherwise."""
    queue: Name
    """Queue that it belongs to."""
    user: Name
    """User that submitted it."""
    priority: Count
    """Larger is more important."""
    asks_for: str
    """The request in words: `2 × 8 GPUs`."""
    action: str
    """Type of its action: `start`, `keep`, `wait` and so on."""
    finding: DamageFinding | None = None
    """What the job has lost in the cluster, and how the plan handles it."""
    reason: Reason
    """Why its action is planned, or why it waits."""
    stays: str = Field(default="", exclude_if=lambda value: not value)
    """Why it runs on where it should leave: on a node to be drained, or before a window; else empty."""
    duration: ExpectedDuration
    """How long it is expected to take, and what that rests on."""
    scaling: JobScaling | None = Field(default=None, exclude_if=lambda value: value is None)
    """None for a job that is not elastic, or with a speed proportional to its replicas."""
    depends_on: tuple[AwaitedJob, ...] = ()
    """What it waits for, of a job that waits."""
    depends_on_at_least: Count | None = None
    """Number of dependencies that suffice; None means all."""
    nodes: tuple[Name, ...] = ()
    """Nodes where it runs, starts, or is planned to start; sorted."""
    nodes_before: tuple[Name, ...] = ()
    """For a job that the plan preempts, migrates or resizes: the nodes where it runs now; sorted."""
    exchange: tuple[Exchange, ...] = ()
    """Jobs from which it takes places, and jobs that take its places; by name."""
    horizon_end: Timestamp | None = None
    """End of the planning horizon; None if the plan covers this instant alone."""
    projected_start: Timestamp | None = None
    """For a waiting job; None if the plan has no later start for it."""
    promised: bool = False
    """True if that start is reserved for the job."""
    waits_for: str = ""
    """What that start waits for, as words to follow "waits"."""
    projected_finish: Timestamp | None = None
    """Its expected end, of a job that runs or has a start; None if it has none."""
    earlier_promise: Timestamp | None = None
    """Start that an earlier plan promised."""
    promise_changed: str = ""
    """Why the plan moves or withdraws that promise."""
    kill_at: Timestamp | None = None
    """When it is killed if it still runs: its places are promised to another job from then on."""
    held: HeldNodes | None = Field(default=None, exclude_if=lambda value: value is None)
    """Nodes held for it because it starves, or its place beside such a job; only until it runs."""
    deadline: DeadlineOutlook | None = None
    """Whether it will keep its deadline; None if it has none."""
    standing: QueuePosition | None = None
    """Position among the other jobs; only for a job that waits and keeps waiting."""
    remedies: Remedies | None = None
    """Changes that would start the job; only for a job that waits and keeps waiting."""
    neighbours: tuple[Neighbour, ...] = ()
    """Jobs on its nodes before its projected start, by node and end."""
