"""Groups of settings of a policy: objective, horizon, how it is applied, and disruption budgets."""

from __future__ import annotations

import re
from enum import StrEnum
from typing import TYPE_CHECKING, Annotated, Any, Final, TypeAlias

from pydantic import BeforeValidator, Field, WithJsonSchema, model_validator

from gpuplan.models.base import Noun
from gpuplan.models.calendar import Recurring
from gpuplan.models.plan.action_kinds import ChangingKind
from gpuplan.models.units import (
    LARGEST_COUNT,
    MILLI,
    SECONDS_PER_HOUR,
    AtLeastOne,
    Count,
    Label,
    Milli,
    MinuteOrLonger,
    Name,
    PositiveSeconds,
    Seconds,
)

if TYPE_CHECKING:
    from datetime import datetime


class BackfillMode(StrEnum):
    """Effect that backfilled jobs may have on promised starts."""

    CONSERVATIVE = "conservative"
    """None: every promise is kept."""
    AGGRESSIVE = "aggressive"
    """A promised start may be delayed by at most `max_delay`."""


class Backfill(Noun):
    """Promises to pending jobs, and the backfill ahead of them."""

    mode: BackfillMode = BackfillMode.CONSERVATIVE
    """Effect that jobs which start ahead of a promised start may have on it."""
    max_delay: Seconds = 0
    """Maximum delay of a promised start; only with mode `aggressive`."""
    depth: AtLeastOne | None = None
    """
    Number of pending jobs that hold a promise at a time, the first in order; absent means all, 1 is EASY
    backfilling.
    """
    kill: bool = False
    """True: a job that started ahead of a promise is killed when its expected duration is over."""
    starving: PositiveSeconds | None = 7 * 24 * 3600
    """
    Waiting time after which a job is promised the first possible start, before any other job. With one slot
    the nodes that first have room for it are reserved, for one job at a time and for jobs that fit beside
    it. `null` means never.
    """

    @model_validator(mode="after")
    def _delay_where_allowed(self) -> Backfill:
        if self.max_delay and self.mode is BackfillMode.CONSERVATIVE:
            raise ValueError("expected max_delay only with mode aggressive, found it with mode conservative")
        if self.mode is BackfillMode.AGGRESSIVE and not self.max_delay:
            raise ValueError("expected a max_delay with mode aggressive, found none")
        return self


class HorizonPolicy(Noun):
    """Time slots that a plan looks ahead; one slot is a plan for this instant only."""

    slots: Annotated[int, Field(strict=True, ge=1, le=96)] = 1
    """Number of time slots that a plan looks ahead; 1 is a plan for this instant only."""
    length: MinuteOrLonger = 3600
    """
    Length of a slot. Slots begin at multiples of it since 1970-01-01T00:00Z; the first is the rest of the
    current one.
    """
    earliness_milli: Annotated[Milli, Field(le=MILLI)] = Field(default=100, alias="earliness")
    """
    Fraction of its points that a job loses if it completes at the end of the horizon instead of at once.
    """
    backfill: Backfill = Field(default_factory=Backfill)
    """Promised starts, and the jobs that may start ahead of them."""


class DurationPolicy(Noun):
    """Expected duration of jobs that do not declare one, or run longer than declared."""

    percentile: Annotated[int, Field(strict=True, ge=1, le=100)] = 90
    """
    Percentile of the durations of similar finished jobs that is used: 50 is the median, 90 is rarely
    exceeded.
    """
    samples: Annotated[int, Field(strict=True, ge=1, le=10_000)] = 3
    """Number of finished jobs needed to learn a duration."""
    overrun_milli: Milli = Field(default=250, alias="overrun")
    """
    A job that runs longer than expected is expected to continue for this fraction of the time it has run.
    """


# Objective: the goals of a plan, as part of the policy.


class Goal(StrEnum):
    """Rule by which some jobs have more value than others of the same priority and GPUs."""

    VALUE = "value"
    """None: value depends on weight, size and waiting time (`weights`)."""
    COMPLETION = "completion"
    """Jobs with little work left: shortens the mean completion time."""
    LEAST_ATTAINED_SERVICE = "least-attained-service"
    """Jobs with little service so far: for unknown durations."""
    FAIRNESS = "fairness"
    """Jobs that are late compared with an equal share of the cluster."""
    MAKESPAN = "makespan"
    """Jobs with much work left: all jobs together end soon."""
    GOODPUT = "goodput"
    """As `completion`, but a job counts its GPUs at its smallest size, and larger sizes by their speed."""
    CRITICAL_PATH = "critical-path"
    """
    Jobs on which the end of all jobs depends, then jobs with little work left: both the mean completion time
    and the makespan are short.
    """


class Blend(Noun):
    """A second goal in addition to the first."""

    goal: Goal
    """The second goal."""
    part: Annotated[float, Field(ge=0, le=1)] = 0.5
    """Its fraction of the points, between 0 and 1; the first goal has the rest."""


class QueueObjective(Noun):
    """Goals for the jobs of a queue."""

    goal: Goal = Goal.COMPLETION
    """The goal, which determines the value of jobs besides priority and GPUs."""
    blend: Blend | None = None
    """A second goal; absent means none."""

    @property
    def words(self) -> str:
        """The goals in words: `completion`, `fairness and 25.0 % makespan`."""
        return f"{self.goal} and {100 * self.blend.part:.1f} % {self.blend.goal}" if self.blend else self.goal


class Objective(QueueObjective):
    """Goals of a plan."""

    queues: dict[Name, QueueObjective] = Field(default_factory=dict)
    """Other goals for the jobs of these queues and all queues below them; the nearest queue counts."""
    doubling: PositiveSeconds = 12 * SECONDS_PER_HOUR
    """
    Waiting time that has the same effect as halving the time left, with all goals except `value` and
    `fairness`; up to 13 times this time counts.
    """
    shortest: PositiveSeconds = 60
    """Jobs with less work left than this have no more value."""
    rollouts: Annotated[int, Field(strict=True, ge=0, le=1_000)] = 20
    """
    Changes that are tried to a schedule of all waiting jobs, to see which of them rather start later, with
    goal `completion` and one slot; 0 starts each job as soon as it fits.
    """

    @property
    def queue_labels(self) -> str:
        """Goals of queues in words: `batch: makespan, research: fairness`; empty if no queue has its own."""
        return ", ".join(f"{queue}: {each.words}" for queue, each in sorted(self.queues.items()))

    @property
    def goals(self) -> frozenset[Goal]:
        """All goals that are named, including those of queues and second ones."""
        named = (self, *self.queues.values())
        return frozenset(
            goal for each in named for goal in (each.goal, each.blend and each.blend.goal) if goal
        )


# Apply: how the actions of a plan are carried out on a cluster where they last.


class OnFailure(StrEnum):
    """What an apply does once an action has failed for good."""

    STOP = "stop"
    """Begin no further action; those under way end."""
    CONTINUE = "continue"
    """Go on with all actions that do not depend on it."""


class ApplyPolicy(Noun):
    """How the actions of a plan are carried out."""

    parallel: Annotated[int, Field(strict=True, ge=1, le=1_000)] = 10
    """Actions that may be under way at the same time."""
    on_failure: OnFailure = OnFailure.STOP
    """Whether the rest of a plan is carried out once an action has failed."""
    most_failures: Count = 5
    """With `on_failure: continue`, an apply stops after this many failed actions."""
    attempts: Annotated[int, Field(strict=True, ge=1, le=100)] = 3
    """How often an action is begun if it fails for a reason that may pass."""
    backoff: PositiveSeconds = 5
    """Time before the second attempt; it doubles with each further one."""
    timeouts: dict[ChangingKind, PositiveSeconds] = Field(default_factory=dict)
    """How long an action may last, by kind, where that differs from the defaults (docs/operations.md)."""
    group_timeout: PositiveSeconds = 30
    """
    How long it may take to reserve the places of all jobs of a `co_start` group, and then until all of them
    run; after that every one of them is taken back, also those that run.
    """
    checkpoints: dict[Name, AtLeastOne] = Field(default_factory=dict)
    """
    Jobs that may save their state at the same time, by the storage that they save it to
    (`checkpoint_storage`); no limit for other storages.
    """


# Disruption budget: how many replicas or jobs of a group may be unavailable at a time, as far as plans
# decide. The terms are those of Kubernetes' PodDisruptionBudget (`maxUnavailable`, `minAvailable`) and of
# the disruption budgets of Karpenter (a budget may be in force at some times only). Percentages round up,
# as there.


_PERCENT: Final = re.compile(r"(\d{1,3}) ?%")


def _portion(value: Any) -> int | str:
    """A number, or a percentage in its only form, such as `25%`."""
    if isinstance(value, int) and not isinstance(value, bool) and 0 <= value <= LARGEST_COUNT:
        return value
    match = _PERCENT.fullmatch(value.strip()) if isinstance(value, str) else None
    if match is None or int(match[1]) > 100:
        raise ValueError(
            f"expected a number such as 2, or a percentage up to 100% such as 25%, found {value!r}"
        )
    return f"{int(match[1])}%"


Portion: TypeAlias = Annotated[
    int | str,
    BeforeValidator(_portion),
    WithJsonSchema(
        {
            "anyOf": [
                {"type": "integer", "minimum": 0, "maximum": LARGEST_COUNT},
                {"type": "string", "pattern": r"^(100|[1-9]?\d) ?%$", "examples": ["25%"]},
            ]
        }
    ),
]
"""A number of a whole, or a percentage of it, as Kubernetes' IntOrString."""


class BudgetUnit(StrEnum):
    """What a disruption budget counts."""

    REPLICAS = "replicas"
    JOBS = "jobs"


class DisruptionBudget(Noun):
    """Limit on the jobs of a group that are unavailable at a time; plans that disrupt more are not made."""

    name: Name
    """Name of the budget, shown where it keeps a job from being disrupted."""
    labels: dict[Name, Label] = Field(default_factory=dict)
    """Labels of the jobs of the group; such a job has all of them. Empty is every job."""
    queue: Name | None = None
    """Queue of the jobs of the group, with all queues below it; absent is every queue."""
    max_unavailable: Portion | None = None
    """Maximum number, or percentage, that may be unavailable; a percentage rounds up."""
    min_available: Portion | None = None
    """Minimum number, or percentage, that stays available, instead; a percentage rounds up."""
    counts: BudgetUnit = BudgetUnit.REPLICAS
    """What is counted: replicas, or whole jobs whatever their size."""
    min_ready: Seconds = 0
    """Time that a job which was stopped or moved counts as unavailable after it runs again."""
    windows: tuple[Recurring, ...] = ()
    """Times at which the budget is in force; empty is always."""

    @model_validator(mode="after")
    def _one_limit(self) -> DisruptionBudget:
        if (self.max_unavailable is None) == (self.min_available is None):
            found = "neither" if self.max_unavailable is None else "both"
            raise ValueError(f"expected one of max_unavailable and min_available, found {found}")
        return self

    def __hash__(self) -> int:
        """Dicts are not hashable, so hash their sorted items."""
        limits = self.max_unavailable, self.min_available, self.counts, self.min_ready
        return hash((self.name, tuple(sorted(self.labels.items())), self.queue, limits, self.windows))

    def is_in_force(self, now: datetime) -> bool:
        """True at an instant in one of its windows, or always if it has none."""
        return not self.windows or any(
            begins <= 0 for window in self.windows for begins, _ in window.spans(now, 1)
        )

    @property
    def limit_text(self) -> str:
        """The limit as written: `max_unavailable 25%`."""
        if self.max_unavailable is not None:
            return f"max_unavailable {self.max_unavailable}"
        return f"min_available {self.min_available}"


def portion_of(portion: int | str, whole: int) -> int:
    """The number that a portion stands for: itself, or the percentage of the whole, rounded up."""
    if isinstance(portion, int):
        return portion
    return -(-int(portion.removesuffix("%")) * whole // 100)
