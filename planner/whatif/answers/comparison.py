"""Comparison: a base and its scenarios in figures, each as the production planner leaves it."""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated, Final

from pydantic import Field

from gpuplan.models.base import Noun
from gpuplan.models.plan.reason import ReasonCode
from gpuplan.models.units import MILLI, Count, CountedSeconds, Milli, Name, Timestamp


class ModelUse(Noun):
    """Usable GPUs of one model, and what of them is held."""

    gpu_model: Name
    usable: Milli
    used: Milli

    @property
    def ratio(self) -> float:
        """Part that is held; 0 of none."""
        return round(self.used / self.usable, 6) if self.usable else 0.0


class Figures(Noun):
    """A plan in figures: the cluster once it is applied, and how good it is."""

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
    """How long the jobs that the plan starts have waited, on average; null if it starts none."""
    started_left_seconds: CountedSeconds | None = None
    """How long they are expected to take on their fastest GPU model, on average."""
    waiting_waited_seconds: CountedSeconds | None = None
    """How long the jobs that go on waiting have waited, on average, without held ones; null if none does."""
    gpus_total: Milli
    """Usable: healthy, on ready nodes; in thousandths."""
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
    """Work in no checkpoint, of jobs that the scenario's changes or the plan stop, shrink or move."""
    lost_by_changes_gpu_hours: float = 0.0
    """The part of it that the changes lose before anything is planned, such as on a node that fails."""
    lost_by_changes_points: int = 0
    """What stopping these jobs costs by the policy's prices; the objective is the plan's, and without it."""
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
    """Waiting jobs by why they wait."""
    gpu_models: tuple[ModelUse, ...]
    """By name."""

    def figure(self, name: str) -> float | None:
        """One number by the name of its field; None if nobody knows it."""
        value: float | None = getattr(self, name)
        milli = name in ("gpus_total", "gpus_held", "gpus_free")
        return value / MILLI if milli and value is not None else value


BETTER_IF_MORE: Final = {
    **dict.fromkeys(("jobs_running", "gpus_total", "gpu_allocation_ratio", "jain_index", "objective"), True),
    **dict.fromkeys(("jobs_waiting", "jobs_preempted", "fragmentation_ratio", "hourly_cost", "gap"), False),
    **dict.fromkeys(("lost_gpu_hours", "lost_by_changes_gpu_hours", "lost_by_changes_points"), False),
}
"""Figures of which more is better, or worse; of the others neither."""

IN_POINTS: Final = frozenset({"objective", "bound"})
"""Figures that are sums of what jobs are worth: not comparable where jobs are worth something else."""

RATIOS: Final = frozenset({"gpu_allocation_ratio", "fragmentation_ratio", "gap"})
"""Figures that are parts of a whole."""


class Fate(StrEnum):
    """What becomes of a job in a scenario, against the base; the worst first."""

    STOPS = "stops"
    """It runs now and goes on in the base; here it waits."""
    LOSES = "loses"
    """It has fewer replicas than in the base, or does not start."""
    WAITS_LONGER = "waits_longer"
    """It waits in both, and starts later than in the base, or at no time that can be foreseen."""
    MOVES = "moves"
    """It runs now and stays in the base; here it begins anew on other nodes."""
    GAINS = "gains"
    """It has more replicas than in the base, starts, or starts sooner."""


class JobFate(Noun):
    """A job that fares otherwise in a scenario than in the base."""

    job: Name
    """Name of the job."""
    queue: Name
    """Queue that it belongs to."""
    user: Name
    """User that submitted it."""
    fate: Fate
    """What becomes of it, against the base."""
    stopped_by_changes: bool = False
    """The changes themselves stop it, such as a node that fails, before anything is planned."""
    gpus: float
    """GPUs that it holds more than in the base, or less if below 0."""
    lost_gpu_hours: float = 0.0
    """Its work in no checkpoint that is lost in the scenario, in GPU-hours."""
    starts_before: Timestamp | None = None
    """When it starts in the base, if it waits there and that is foreseen."""
    starts_after: Timestamp | None = None
    """When it starts in the scenario, if it waits there and that is foreseen."""
    text: str
    """The same for people."""


class Trial(Noun):
    """One world and what became of it."""

    name: Name
    """Name of the scenario, or `base`."""
    description: str = ""
    """What the scenario says of itself."""
    figures: Figures | None = None
    """None if it could not be planned."""
    failure: str = ""
    """Why it could not be planned."""
    expected: Count = 0
    """Statements that its scenario makes about its plan: figures, and jobs that run or wait."""
    unmet: tuple[str, ...] = ()
    """Those of them that do not hold, with what was found."""
    goal: str = ""
    """What its plan is to be good at by its policy, in words."""
    same_points: bool = True
    """Its jobs are worth the same by its policy as by the base's. If not, objectives are not compared."""
    warnings: tuple[str, ...] = ()
    """What its policy sets that counts for no job; of a scenario without what is told of the base."""
    differences: dict[str, float] = Field(default_factory=dict)
    """Of figures from the base's, those that are not 0."""
    jobs: tuple[JobFate, ...] = ()
    """Jobs of the base that fare otherwise here: by what becomes of them, the worst first."""


class Comparison(Noun):
    """A base and its scenarios, planned alike."""

    snapshot: str
    """Fingerprint."""
    policy: str
    """Fingerprint."""
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
        """Statements that scenarios make about their plans."""
        return sum(trial.expected for trial in self.scenarios)

    @property
    def sound(self) -> bool:
        """True if everything could be planned and is as expected."""
        return not any(trial.failure or trial.unmet for trial in (self.base, *self.scenarios))
