"""Explanation: everything a plan says about one job, as data."""

from __future__ import annotations

from pydantic import Field

from gpuplan.models.base import Noun
from gpuplan.models.dependency import DependencyKind
from gpuplan.models.plan.forecast import DeadlineOutlook
from gpuplan.models.plan.reason import Reason
from gpuplan.models.timing.durations import DurationSource, LeftBasis
from gpuplan.models.units import Count, CountedSeconds, Name, Timestamp
from gpuplan.models.validation.base import DamageFinding
from gpuplan.planner.explain.answers.contention import QueuePosition
from gpuplan.planner.explain.answers.remedies import Remedies


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
    deadline: DeadlineOutlook | None = None
    """Whether it will keep its deadline; None if it has none."""
    standing: QueuePosition | None = None
    """Position among the other jobs; only for a job that waits and keeps waiting."""
    remedies: Remedies | None = None
    """Changes that would start the job; only for a job that waits and keeps waiting."""
    neighbours: tuple[Neighbour, ...] = ()
    """Jobs on its nodes before its projected start, by node and end."""
