"""Comparison: figures of a base and its scenarios, each planned by the production planner."""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated, Final

from pydantic import Field

from gpuplan.models.base import Noun
from gpuplan.models.plan.reason import ReasonCode
from gpuplan.models.units import MILLI, Count, CountedSeconds, Milli, Name, Timestamp


class ModelUse(Noun):
    """Usable GPUs of one model, and how many of them jobs hold."""

    gpu_model: Name
    usable: Milli
    used: Milli

    @property
    def ratio(self) -> float:
        """Fraction that jobs hold; 0 if there are no usable GPUs."""
        return round(self.used / self.usable, 6) if self.usable else 0.0


class PlanFigures(Noun):
    """Figures of a plan: the cluster once it is applied, and the quality of the plan."""

    plan_id: str
    """Id of the plan."""
    jobs_running: Count
    """Jobs that run after the plan."""
    jobs_started: Count
    """Of these, jobs that the plan starts."""
    jobs_waiting: Count
    """Jobs that wait after the plan."""
    jobs_preempted: Count
    """Of these, jobs that the plan stops."""
    started_waited_seconds: CountedSeconds | None = None
    """Mean time that the jobs the plan starts have waited; null if it starts none."""
    started_left_seconds: CountedSeconds | None = None
    """Mean expected duration of these jobs on their fastest GPU model."""
    waiting_waited_seconds: CountedSeconds | None = None
    """Mean time that the jobs which keep waiting have waited, held jobs excluded; null if there are none."""
    gpus_total: Milli
    """Usable GPUs: healthy and on ready nodes; in thousandths."""
    gpus_held: Milli
    """GPUs that jobs hold after the plan, in thousandths."""
    gpus_free: Milli
    """Usable GPUs that no job holds after the plan, in thousandths."""
    gpu_allocation_ratio: float
    """GPUs held over GPUs usable, as all ratios from 0 to 1 (docs/plan-format.md defines them)."""
    fragmentation_ratio: float
    """Part of the free GPUs on which no replica of the reference gang fits."""
    jain_index: float
    """Jain's fairness index of the queues."""
    lost_gpu_hours: float
    """Unsaved work of the jobs that the scenario's changes or the plan stop, shrink or move."""
    lost_by_changes_gpu_hours: float = 0.0
    """The part of it that the changes lose before planning, such as on a failed node."""
    lost_by_changes_points: int = 0
    """Cost of stopping these jobs, at the policy's prices; the plan's objective does not include it."""
    nodes_added: Count
    """Nodes that the plan adds to pools."""
    nodes_removed: Count
    """Nodes that the plan removes from pools."""
    hourly_cost: float
    """In the cluster's currency."""
    objective: int
    """Points of the plan."""
    bound: int | None
    """Proven upper bound of the points of any plan; null if none is known."""
    gap: Annotated[float, Field(ge=0)] | None
    """(bound − objective) / max(1, |objective|); null without a bound."""
    status: str
    """`OPTIMAL` if the bound proves that no plan scores more, else `FEASIBLE`."""
    solver: str
    """Where the placements come from."""
    seconds: float
    """Wall clock of the planning, in seconds."""
    terms: dict[str, int]
    """Signed parts of the objective by name, in points; they sum to it."""
    waiting: dict[ReasonCode, Count]
    """Number of waiting jobs by reason."""
    gpu_models: tuple[ModelUse, ...]
    """Sorted by name."""

    def figure(self, name: str) -> float | None:
        """Return one figure by the name of its field; None if it is unknown."""
        value: float | None = getattr(self, name)
        milli = name in ("gpus_total", "gpus_held", "gpus_free")
        return value / MILLI if milli and value is not None else value


BETTER_IF_MORE: Final = {
    **dict.fromkeys(("jobs_running", "gpus_total", "gpu_allocation_ratio", "jain_index", "objective"), True),
    **dict.fromkeys(("jobs_waiting", "jobs_preempted", "fragmentation_ratio", "hourly_cost", "gap"), False),
    **dict.fromkeys(("lost_gpu_hours", "lost_by_changes_gpu_hours", "lost_by_changes_points"), False),
}
"""True for figures where more is better, False where less is better; the others have no direction."""

IN_POINTS: Final = frozenset({"objective", "bound"})
"""Figures that sum the points of jobs: not comparable if the policies value jobs differently."""

RATIOS: Final = frozenset({"gpu_allocation_ratio", "fragmentation_ratio", "gap"})
"""Figures that are fractions."""


class JobOutcomeKind(StrEnum):
    """Outcome of a job in a scenario compared with the base; the worst comes first."""

    STOPS = "stops"
    """It runs now and keeps running in the base; in the scenario it waits."""
    LOSES = "loses"
    """It has fewer replicas than in the base, or does not start."""
    WAITS_LONGER = "waits_longer"
    """It waits in both, and its start is later than in the base, or unknown."""
    MOVES = "moves"
    """It runs now and keeps its nodes in the base; in the scenario it restarts on other nodes."""
    GAINS = "gains"
    """It has more replicas than in the base, starts, or starts earlier."""


class JobOutcomeChange(Noun):
    """A job with an outcome in a scenario that differs from the base."""

    job: Name
    """Name of the job."""
    queue: Name
    """Queue that it belongs to."""
    user: Name
    """User that submitted it."""
    fate: JobOutcomeKind
    """Outcome compared with the base."""
    stopped_by_changes: bool = False
    """True if the changes themselves stop it before planning, such as a failed node."""
    gpus: float
    """GPUs held in the scenario minus GPUs held in the base."""
    lost_gpu_hours: float = 0.0
    """Unsaved work that it loses in the scenario, in GPU-hours."""
    starts_before: Timestamp | None = None
    """Projected start in the base, if it waits there and the start is known."""
    starts_after: Timestamp | None = None
    """Projected start in the scenario, if it waits there and the start is known."""
    text: str
    """The outcome in words."""


class Trial(Noun):
    """One world and the result of planning it."""

    name: Name
    """Name of the scenario, or `base`."""
    description: str = ""
    """What the scenario says of itself."""
    figures: PlanFigures | None = None
    """None if planning failed."""
    failure: str = ""
    """Why planning failed."""
    expected: Count = 0
    """Number of expectations of the scenario about its plan: figures, and jobs that run or wait."""
    unmet: tuple[str, ...] = ()
    """Expectations that do not hold, with the values found."""
    goal: str = ""
    """Goal of its policy, in words."""
    same_points: bool = True
    """True if its policy values jobs as the base's policy does. If not, objectives are not compared."""
    warnings: tuple[str, ...] = ()
    """Settings of its policy that affect no job; a scenario omits those that the base lists."""
    differences: dict[str, float] = Field(default_factory=dict)
    """Figures minus those of the base, without zeros."""
    jobs: tuple[JobOutcomeChange, ...] = ()
    """Jobs of the base with a different outcome here, the worst outcome first."""


class Comparison(Noun):
    """A base and its scenarios, planned in the same way."""

    snapshot: str
    """Fingerprint of the snapshot."""
    policy: str
    """Fingerprint of the policy."""
    epoch: Timestamp
    """The instant that all plans are for."""
    seed: int
    """Seed of the solvers."""
    base: Trial
    """The snapshot as it is."""
    scenarios: tuple[Trial, ...]
    """In the order in which they were given."""

    @property
    def expected(self) -> int:
        """Number of expectations of all scenarios."""
        return sum(trial.expected for trial in self.scenarios)

    @property
    def sound(self) -> bool:
        """True if everything was planned and all expectations hold."""
        return not any(trial.failure or trial.unmet for trial in (self.base, *self.scenarios))
