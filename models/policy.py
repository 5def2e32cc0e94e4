"""Policy: every knob of planning, with its unit and default; and the value of a placed job."""

from __future__ import annotations

from enum import StrEnum
from typing import TYPE_CHECKING, Annotated, Final, Literal

from pydantic import Field, WithJsonSchema

from planner.models.base import Noun
from planner.models.units import MILLI, Count, Milli, Milliseconds, Seconds

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
    """Used with basis gpu_hour for jobs that declare no duration."""
    ageing: Ageing = Field(default_factory=Ageing)


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
