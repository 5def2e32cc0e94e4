"""Policy: every knob of planning, with its unit and default; and the value of a placed job."""

from __future__ import annotations

from enum import StrEnum
from typing import TYPE_CHECKING, Annotated, Final, Literal

from pydantic import Field, WithJsonSchema

from planner.models.approval import Approval
from planner.models.base import Noun
from planner.models.horizon import DurationPolicy, HorizonPolicy
from planner.models.units import MILLI, Count, Milli, Milliseconds, Name, Seconds

if TYPE_CHECKING:
    from datetime import datetime

    from planner.models.job import Job

POINTS_PER_WEIGHT: Final = 100
"""Objective points of one unit of weight: fine enough to order jobs, coarse enough for a proof."""

LARGEST_POINTS: Final = 10**9
"""Of one job: the sum over a whole queue stays exact in floating point, as solvers need it."""

_SECONDS_PER_HOUR: Final = 3600


class SizeBasis(StrEnum):
    """What a job's weight is multiplied with."""

    JOB = "job"
    GPU = "gpu"
    GPU_HOUR = "gpu_hour"


class Ageing(Noun):
    """How waiting raises a job's priority: `gain` points each full `step`, at most `cap` points."""

    step: Annotated[
        Seconds,
        Field(ge=1),
        # A duration of at least a second has a digit other than 0.
        WithJsonSchema(
            {
                "anyOf": [
                    {"type": "integer", "minimum": 1},
                    {"type": "string", "pattern": "[1-9]", "examples": ["1h30m"]},
                ]
            }
        ),
    ] = 6 * _SECONDS_PER_HOUR
    gain: Count = 1
    cap: Count = 10


class Weights(Noun):
    """How the effective weight of a job is made."""

    basis: SizeBasis = SizeBasis.GPU
    smallest_size_milli: Milli = Field(default=100, alias="smallest_size")
    """GPUs a job counts for at least, so that CPU-only work has a weight too."""
    default_duration: Seconds = _SECONDS_PER_HOUR
    """Of jobs that declare none and are like no finished ones."""
    ageing: Ageing = Field(default_factory=Ageing)


class Disruption(Noun):
    """What a plan may do to running jobs, and how much of their time that costs."""

    preempt: bool = True
    """Stop a preemptible job for one of higher priority; it waits again."""
    resize: bool = True
    """Shrink and grow elastic jobs while they run."""
    migrate: bool = False
    """Move jobs to other nodes, GPUs or MIG slices."""
    priority_gap: Count = 1
    """By so much the priority of who comes must be above that of who is preempted."""
    minimum_runtime: Seconds = 0
    """Nobody is disturbed who has run for less."""
    max_preemptions: Count | None = None
    """Nobody is disturbed who was preempted so often; None is no limit."""
    checkpoint: Seconds = 60
    """To save a job's state, unless the job says otherwise."""
    restart: Seconds = 300
    """To bring a job back from its checkpoint, unless the job says otherwise."""

    def may_disturb(self, job: Job, now: datetime) -> bool:
        """True if a job runs and may be stopped, shrunk or moved, where each of these is allowed at all."""
        if job.running is None or not job.preemptible:
            return False
        spared = self.max_preemptions is not None and job.preemptions >= self.max_preemptions
        return not spared and (now - job.running.started_at).total_seconds() >= self.minimum_runtime


class MigPolicy(Noun):
    """What a plan may do to MIG layouts."""

    repartition: bool = True
    """Create MIG instances on idle slices of GPUs in MIG mode, destroying idle instances in their way."""
    switch_mode: bool = False
    """Switch MIG mode on for idle GPUs."""


class PoolPolicy(Noun):
    """What a plan may do to node pools."""

    scale_up: bool = True
    scale_down: bool = True
    horizon: Annotated[Seconds, Field(ge=1)] = _SECONDS_PER_HOUR
    """The time for which a node's price is weighed."""


class Interference(Noun):
    """What it costs when jobs of two workload classes meet on a node."""

    classes: tuple[Name, Name]
    """Unordered; the same class twice prices two of its jobs on one node."""
    points: Annotated[int, Field(strict=True, ge=0, le=1_000_000)]


class Prices(Noun):
    """Prices of what a plan would rather not do, in points; a GPU of weight 1 and priority 0 is worth 100."""

    guarantee: Count = 100_000
    """Of a GPU missing from what a queue is guaranteed."""
    disruption: Count = 100
    """Of a GPU-hour of checkpoint, restart and lost work, when a job is preempted or moved."""
    migration: Count = 10
    """Of moving a job, beside the disruption."""
    resize: Count = 10
    """Of shrinking or growing a job."""
    repartition: Count = 20
    """Of a MIG instance created."""
    switch_mode: Count = 100
    """Of a GPU switched to MIG mode."""
    domain: Count = 50
    """Of each domain of its preferred level, beyond one, that a started or moved job is spread over."""
    fragmentation: Count = 0
    """Of a free GPU on which no replica of the reference gang fits."""
    reference_gpus: Annotated[int, Field(strict=True, ge=1, le=128)] = 8
    """GPUs on one node that a replica of the reference gang needs."""
    currency: Count = 100
    """Of one unit of the cluster's currency."""
    scaling: Count = 5
    """Of adding or removing a node, beside its own price: nothing is exchanged for its equal."""
    drain: Count = 10_000
    """Of a job left on a node that ought to be drained."""
    lateness_milli: Milli = Field(default=100, alias="lateness")
    """Part of its points that a job loses with each hour after its deadline, until none is left."""
    interference: tuple[Interference, ...] = ()


class Profile(StrEnum):
    """Which of the nodes with room a job would rather be on, once the objective is served."""

    PACK = "pack"
    """The fullest."""
    SPREAD = "spread"
    """The emptiest."""
    BALANCED = "balanced"
    """The one whose CPU, memory and GPUs are then in use most evenly."""


class SolverName(StrEnum):
    """Solvers a policy may name."""

    MILP = "milp"
    """PuLP and HiGHS."""
    CPSAT = "cpsat"
    """OR-Tools CP-SAT."""
    CBC = "cbc"
    """PuLP and the CBC it brings: slow, and without a bound unless it finishes; it runs everywhere."""


class BudgetMode(StrEnum):
    """What stops a solver: the wall clock, or its own deterministic work counter."""

    WALLCLOCK = "wallclock"
    DETERMINISTIC = "deterministic"


class BudgetPolicy(Noun):
    """How long an epoch may think."""

    mode: BudgetMode = BudgetMode.WALLCLOCK
    time_limit_ms: Milliseconds = Field(default=10_000, alias="time_limit")
    """Wall clock for the whole epoch; with mode deterministic a safety stop at ten times as long."""
    ticks: Annotated[int, Field(strict=True, ge=1, le=1_000_000)] = 20
    """Work units with mode deterministic: CP-SAT's deterministic seconds, hundreds of MILP nodes."""
    workers: Annotated[int, Field(strict=True, ge=1, le=256)] = 1
    """Threads of the exact solver."""
    stop_gap: Annotated[float, Field(ge=0, le=1)] = 0.0
    """Stop as soon as the proven gap is this small."""


class Drift(StrEnum):
    """How much the cluster may have changed between plan and apply."""

    STRICT = "strict"
    """Every node and job the plan touches is exactly as it was."""
    PRECONDITIONS = "preconditions"
    """Each action's own preconditions hold."""


class Policy(Noun):
    """All knobs of planning."""

    format_version: Literal["1.0"] = "1.0"
    weights: Weights = Field(default_factory=Weights)
    budget: BudgetPolicy = Field(default_factory=BudgetPolicy)
    solvers: tuple[SolverName, ...] = (SolverName.MILP, SolverName.CPSAT)
    """Exact solvers in the order they are tried; empty leaves greedy alone."""
    drift: Drift = Drift.STRICT
    prices: Prices = Field(default_factory=Prices)
    disruption: Disruption = Field(default_factory=Disruption)
    mig: MigPolicy = Field(default_factory=MigPolicy)
    pools: PoolPolicy = Field(default_factory=PoolPolicy)
    profiles: dict[Name, Profile] = Field(default_factory=dict)
    """By workload class; pack where none is given."""
    horizon: HorizonPolicy = Field(default_factory=HorizonPolicy)
    durations: DurationPolicy = Field(default_factory=DurationPolicy)
    approval: Approval = Field(default_factory=Approval)


def job_points(policy: Policy, job: Job, now: datetime) -> int:
    """
    Points of a job that runs at full size on its fastest GPU model, at least 1 and at most 10⁹.

        w_j = weight · (1 + priority + min(cap, gain · ⌊waiting / step⌋)) · size

    with size in GPUs, GPU-hours or 1 by `weights.basis`, and at least `smallest_size` GPUs. Waiting counts in
    whole steps, so that jobs submitted close together stay equal. A weight of 0 is worth nothing.
    """
    if job.weight_milli == 0:
        return 0
    weights = policy.weights
    waited = max(0, int((now - job.submitted_at).total_seconds()))
    boost = min(weights.ageing.cap, weights.ageing.gain * (waited // weights.ageing.step))
    gpus_milli = max(weights.smallest_size_milli, job.request.total_gpu_milli * job.gang.maximum)
    seconds = job.expected_duration if job.expected_duration is not None else weights.default_duration
    match weights.basis:
        case SizeBasis.JOB:
            size_milli = MILLI
        case SizeBasis.GPU:
            size_milli = gpus_milli
        case SizeBasis.GPU_HOUR:
            size_milli = gpus_milli * seconds // _SECONDS_PER_HOUR
    points = job.weight_milli * (1 + job.priority + boost) * size_milli * POINTS_PER_WEIGHT // MILLI**2
    return min(LARGEST_POINTS, max(1, points))


def completion_points(full_points: int, job: Job, gpu_model: str | None, replicas: int) -> int:
    """
    Points of a job placed with so many replicas on one GPU model: `w_j · completed_j`.

    A rigid gang earns its points times its relative speed, at least 1. An elastic one earns the same divided
    by its maximum for each replica, rounded down, at least 1 a replica.
    """
    if full_points == 0:
        return 0
    at_speed = full_points * job.speed_milli(gpu_model) // MILLI
    if not job.gang.elastic:
        return max(1, at_speed)
    return replicas * max(1, at_speed // job.gang.maximum)
