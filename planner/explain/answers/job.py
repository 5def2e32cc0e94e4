"""Explanation: all that a plan has to say about one job, as data."""

from __future__ import annotations

from pydantic import Field

from gpuplan.models.base import Noun
from gpuplan.models.dependency import DependencyKind
from gpuplan.models.plan.plan import DeadlineOutlook, Reason
from gpuplan.models.timing.durations import DurationSource, LeftBasis
from gpuplan.models.units import Count, CountedSeconds, Name, Timestamp
from gpuplan.models.validation.finding import Finding
from gpuplan.planner.explain.answers.contention import Standing
from gpuplan.planner.explain.answers.remedies import Remedies


class Duration(Noun):
    """How long a job is expected to take, and what that rests on."""

    seconds: CountedSeconds
    """On the fastest of its GPU models."""
    source: DurationSource
    samples: Count = 0
    """Finished jobs it was learnt from."""
    percentile: Count | None = None
    """Of what they took; None if it was not learnt."""
    seconds_in_order: CountedSeconds | None = None
    """For its place in the order of waiting jobs, where its goal takes not what is left of `seconds`."""
    basis_in_order: LeftBasis | None = None
    """What that rests on."""
    gpu_model: Name | None = None
    """Where the plan has the job run, or planned; None without GPUs and without places."""
    seconds_there: CountedSeconds | None = None
    """The whole of the job on that model."""
    seconds_left: CountedSeconds | None = None
    """To its end, of a job that has run: where the plan has it run, or from its next start on."""
    seconds_saved: CountedSeconds | None = None
    """Of work on its fastest GPU model that its last checkpoint saved, of a job that is stopped or was."""
    recovery_seconds: CountedSeconds | None = None
    """Of what is left, before it works: it comes back from its last checkpoint."""


class Scaling(Noun):
    """How fast an elastic job is by its number of replicas."""

    speeds: dict[int, float]
    """At its least size, its largest, and those of its table between them, on `gpu_model`."""
    gpu_model: Name | None = None
    """Where the plan has the job run, or planned; None without GPUs and without places."""
    learnt: bool = False
    """The job states no table: its like teach it."""


class AwaitedJob(Noun):
    """A job that another one depends on."""

    job: Name
    kind: DependencyKind
    satisfied: bool = False
    never: bool = False
    """It can never be satisfied any more."""
    expected_at: Timestamp | None = None
    """None if nobody knows when it will be satisfied, or it is."""


class Neighbour(Noun):
    """Another job on the places that a job is given, before or beside it."""

    job: Name
    node: Name
    starts_at: Timestamp | None = None
    """None if it runs by now, or starts at once."""
    until: Timestamp
    """Its expected end."""
    in_its_place: bool
    """It holds a GPU that the explained job gets."""


class Exchange(Noun):
    """What the plan does to another job, for which it takes or gives up places, quota or power."""

    job: Name
    action: str
    """Type of its action."""
    points: int
    """What that does to the objective."""
    lost_gpu_hours: float = 0.0
    """Its work since its last checkpoint, if it has to leave."""


class Explanation(Noun):
    """One job of a plan."""

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
    """In words: `2 × 8 GPUs`."""
    action: str
    """Type of its action: `start`, `keep`, `wait` and so on."""
    finding: Finding | None = None
    """What it has lost, and what becomes of it."""
    reason: Reason
    """Why its action is planned, or why it waits."""
    duration: Duration
    """How long it is expected to take, and what that rests on."""
    scaling: Scaling | None = Field(default=None, exclude_if=lambda value: value is None)
    """None of a job that is not elastic, and where speed is in proportion to the replicas."""
    depends_on: tuple[AwaitedJob, ...] = ()
    """What it waits for, of a job that waits."""
    depends_on_at_least: Count | None = None
    """So many of them suffice; None is all."""
    nodes: tuple[Name, ...] = ()
    """Where it runs or starts, or is planned to start; sorted."""
    nodes_before: tuple[Name, ...] = ()
    """Where it runs now, of a job that the plan stops, moves or resizes; sorted."""
    exchange: tuple[Exchange, ...] = ()
    """Whose place it takes, and who takes its place; by name."""
    horizon_end: Timestamp | None = None
    """The plan looks so far ahead; None if it looks at this instant alone."""
    projected_start: Timestamp | None = None
    """Of a job that waits; None if the plan has no later start for it."""
    promised: bool = False
    """That start is held for the job."""
    waits_for: str = ""
    """What that start waits for, in words that follow "waits"."""
    projected_finish: Timestamp | None = None
    """Its expected end, of a job that runs or has a start; None if it has none."""
    earlier_promise: Timestamp | None = None
    """The start it was promised before the plan."""
    promise_changed: str = ""
    """Why that promise is put off or withdrawn."""
    kill_at: Timestamp | None = None
    """When it is killed if it still runs: its places are promised to another job from then on."""
    deadline: DeadlineOutlook | None = None
    """Whether it will keep its deadline; None if it has none."""
    standing: Standing | None = None
    """Among the others, of a job that waits and is to wait."""
    remedies: Remedies | None = None
    """What would make it start, of the same."""
    neighbours: tuple[Neighbour, ...] = ()
    """Who is on its nodes up to its projected start, by node and end."""
