"""MEASURES: the one table of what a plan is measured by. plan_figures(plan) → PlanFigures: all of them."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from enum import Enum, auto
from typing import TYPE_CHECKING, Annotated, Final

from pydantic import Field

from gpuplan.models.base import Noun
from gpuplan.models.plan.actions import Start
from gpuplan.models.plan.reason import ReasonCode
from gpuplan.models.timing.durations import Durations
from gpuplan.models.units import MILLI, Count, CountedSeconds, Milli, Name, print_milli
from gpuplan.planner.analysis.job_changes import lost_gpu_hours
from gpuplan.planner.analysis.metrics import gpus_in_use
from gpuplan.planner.analysis.target_cluster import cluster_after

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from gpuplan.models.job import Job
    from gpuplan.models.plan.plan import Plan


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
        return value / MILLI if MEASURES[name].unit is MeasureUnit.GPUS and value is not None else value


def plan_figures(plan: Plan) -> PlanFigures:
    """Measure a plan."""
    facts, solution = _PlanFacts(plan), plan.solution
    measured = {name: each.of(facts) for name, each in MEASURES.items() if each.of is not None}
    return PlanFigures.model_validate(
        {
            **measured,
            "plan_id": plan.plan_id,
            "status": solution.status,
            "solver": solution.solver,
            "seconds": round(solution.seconds, 3),
            "terms": dict(sorted(solution.terms.items())),
            "waiting": dict(sorted(Counter(waiting.reason.code for waiting in plan.waiting).items())),
            "gpu_models": tuple(
                ModelUse(gpu_model=model, usable=print_milli(usable), used=print_milli(facts.used_of[model]))
                for model, usable in sorted(facts.usable_of.items())
            ),
        }
    )


class _PlanFacts:
    """What measures are computed from."""

    def __init__(self, plan: Plan) -> None:
        self.snapshot, self.policy, self.actions = plan.snapshot, plan.policy, plan.actions
        self.target, self.solution = plan.target, plan.solution
        self.metrics, self.jobs = plan.metrics, plan.metrics.jobs
        changed = cluster_after(plan.snapshot, plan.target)
        self.used_of, self.usable_of = gpus_in_use(changed, plan.placements)
        self.used, self.usable = self.used_of.total(), self.usable_of.total()
        jobs = plan.snapshot.job_by_name
        self.started = [jobs[action.job] for action in plan.actions if isinstance(action, Start)]
        self.waiting = [jobs[each.job] for each in plan.waiting if not jobs[each.job].withheld]

    def waited(self, jobs: Sequence[Job]) -> int | None:
        """Mean time that jobs have waited; None without jobs."""
        return _mean([job.waiting_seconds(self.snapshot.taken_at) for job in jobs])

    def left(self, jobs: Sequence[Job]) -> int | None:
        """Mean expected duration of jobs; None without jobs."""
        durations = Durations(self.snapshot, self.policy)
        return _mean([durations.left(job) for job in jobs])


def _mean(seconds: Sequence[int]) -> int | None:
    return round(sum(seconds) / len(seconds)) if seconds else None


class MeasureUnit(Enum):
    """What a measure counts."""

    JOBS = auto()
    NODES = auto()
    GPUS = auto()
    """In `PlanFigures` in thousandths."""
    GPU_HOURS = auto()
    SECONDS = auto()
    RATIO = auto()
    """From 0 to 1, shown in percent."""
    INDEX = auto()
    """From 0 to 1, shown as it is."""
    MONEY = auto()
    """The cluster's currency per hour."""
    POINTS = auto()
    """Worth of jobs: not comparable if the policies value jobs differently."""
    PRICE_POINTS = auto()
    """Cost of disruptions at the prices of the policy."""


class Better(Enum):
    """The better direction of a measure."""

    MORE = auto()
    LESS = auto()
    NEITHER = auto()


@dataclass(frozen=True, slots=True)
class Measure:
    """A measure of plans: a field of `PlanFigures`."""

    name: str
    unit: MeasureUnit
    better: Better
    head: str = ""
    """Head of its column; a measure without one is neither in sweeps nor in expectations."""
    of: Callable[[_PlanFacts], object] | None = None
    """How a plan gives its value; None if it is a loss from changes before planning."""


_U, _MORE, _LESS, _NEITHER = MeasureUnit, Better.MORE, Better.LESS, Better.NEITHER

_TABLE: Final = (
    Measure("jobs_running", _U.JOBS, _MORE, "RUNNING", lambda it: it.jobs.running),
    Measure("jobs_started", _U.JOBS, _NEITHER, "STARTED", lambda it: it.jobs.started),
    Measure("jobs_waiting", _U.JOBS, _LESS, "WAITING", lambda it: it.jobs.waiting),
    Measure("jobs_preempted", _U.JOBS, _LESS, "PREEMPTED", lambda it: it.jobs.preempted),
    Measure("started_waited_seconds", _U.SECONDS, _NEITHER, of=lambda it: it.waited(it.started)),
    Measure("started_left_seconds", _U.SECONDS, _NEITHER, of=lambda it: it.left(it.started)),
    Measure("waiting_waited_seconds", _U.SECONDS, _NEITHER, of=lambda it: it.waited(it.waiting)),
    Measure("gpus_total", _U.GPUS, _MORE, "GPUS", lambda it: print_milli(it.usable)),
    Measure("gpus_held", _U.GPUS, _NEITHER, "HELD", lambda it: print_milli(it.used)),
    Measure("gpus_free", _U.GPUS, _NEITHER, "FREE", lambda it: print_milli(it.usable - it.used)),
    Measure("gpu_allocation_ratio", _U.RATIO, _MORE, "ALLOCATED", lambda it: it.metrics.gpu_allocation_ratio),
    Measure("fragmentation_ratio", _U.RATIO, _LESS, "FRAGMENTED", lambda it: it.metrics.fragmentation_ratio),
    Measure("jain_index", _U.INDEX, _MORE, "FAIRNESS", lambda it: it.metrics.jain_index),
    Measure("lost_gpu_hours", _U.GPU_HOURS, _LESS, "GPU-H LOST", lambda it: lost_gpu_hours(it.actions)),
    Measure("lost_by_changes_gpu_hours", _U.GPU_HOURS, _LESS),
    Measure("lost_by_changes_points", _U.PRICE_POINTS, _LESS),
    Measure("nodes_added", _U.NODES, _LESS, "ADDED", lambda it: len(it.target.added)),
    Measure("nodes_removed", _U.NODES, _LESS, "REMOVED", lambda it: len(it.target.removed)),
    Measure("hourly_cost", _U.MONEY, _LESS, "COST/H", lambda it: it.metrics.hourly_cost),
    Measure("objective", _U.POINTS, _MORE, "OBJECTIVE", lambda it: it.solution.objective),
    Measure("bound", _U.POINTS, _NEITHER, of=lambda it: it.solution.bound),
    Measure("gap", _U.RATIO, _LESS, "GAP", lambda it: it.solution.gap),
)

MEASURES: Final = {measure.name: measure for measure in _TABLE}
"""All measures by name, in the order of the fields of `PlanFigures`."""

IN_POINTS: Final = frozenset(name for name, each in MEASURES.items() if each.unit is MeasureUnit.POINTS)
"""Measures that sum the worth of jobs: not comparable if the policies value jobs differently."""

RATIOS: Final = frozenset(name for name, each in MEASURES.items() if each.unit is MeasureUnit.RATIO)
"""Measures that are fractions."""

WEIGHABLE: Final = tuple(name for name, each in MEASURES.items() if each.head)
"""Measures that a Pareto front or an expectation may use."""
