"""Policy: every knob of planning, with its unit and default; and the value of a placed job."""

from __future__ import annotations

from enum import StrEnum
from math import ceil
from typing import TYPE_CHECKING, Annotated, Final, Literal

from pydantic import Field

from gpuplan.models.base import Noun
from gpuplan.models.plan.approval import Approval
from gpuplan.models.policy.horizon import DurationPolicy, HorizonPolicy
from gpuplan.models.policy.objective import Goal, Objective
from gpuplan.models.timing.durations import work_left
from gpuplan.models.units import MILLI, Count, Milli, Milliseconds, Name, PositiveSeconds, Seconds

if TYPE_CHECKING:
    from datetime import datetime

    from gpuplan.models.cluster import NodePool
    from gpuplan.models.job import Job

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

    step: PositiveSeconds = 6 * _SECONDS_PER_HOUR
    """Waiting time after which the priority rises once more; only whole steps count."""
    gain: Count = 1
    """Priority gained in each step."""
    cap: Count = 10
    """Most priority gained by waiting."""


class Weights(Noun):
    """How the effective weight of a job is made."""

    basis: SizeBasis = SizeBasis.GPU
    """What a job's weight is multiplied with: its GPUs, its GPU-hours, or nothing."""
    smallest_size_milli: Milli = Field(default=100, alias="smallest_size")
    """
    GPUs that a job counts for at least, so that jobs without GPUs have a weight.
    """
    default_duration: Seconds = _SECONDS_PER_HOUR
    """
    Duration of jobs that declare none and resemble no finished ones, for promises and ends. Which of several
    goes first by the goal `completion` rests on what any job takes on average, 67 hours, not on this.
    """
    ageing: Ageing = Field(default_factory=Ageing)
    """How waiting raises a job's priority."""


class PriorityOrder(StrEnum):
    """What the priorities of waiting jobs decide between them."""

    TIERS = "tiers"
    """One priority after the other: no job takes a place that a waiting one of higher priority could use."""
    WEIGHTS = "weights"
    """Priority is a factor of a job's weight alone: many points of low priority outweigh few of high."""


class PriorityPolicy(Noun):
    """How priorities order the jobs that wait."""

    order: PriorityOrder = PriorityOrder.TIERS
    """Whether higher priorities come first (`tiers`), or weigh more and size counts as well (`weights`)."""


class Disruption(Noun):
    """What a plan may do to running jobs, and how much of their time that costs."""

    preempt: bool = True
    """True: a preemptible job may be stopped for one of higher priority; it waits again."""
    resize: bool = True
    """True: elastic jobs may grow while they run, and shrink for jobs of higher priority."""
    migrate: bool = False
    """True: jobs may be moved to other nodes, GPUs or MIG slices."""
    reclaim: bool = True
    """
    True: a queue below its nominal quota takes back what others hold beyond theirs, whatever the priorities.
    False: only what it is guaranteed.
    """
    priority_gap: Count = 1
    """
    By how much the priority of a job must be higher, at least, to take what another has to give up.

    Whether that one is stopped or shrunk, and whether it gives up nodes, quota or power.
    """
    minimum_runtime: Seconds = 0
    """Jobs that have run for less are not stopped, shrunk or moved."""
    max_preemptions: Count | None = None
    """Jobs that were stopped so often are not stopped, shrunk or moved again; absent is no limit."""
    checkpoint: Seconds = 60
    """Time to save a job's state, unless the job gives its own."""
    restart: Seconds = 300
    """Time to resume a job from its checkpoint, unless the job gives its own."""
    resize_dwell: Seconds = _SECONDS_PER_HOUR
    """Time after a resize in which a job is not resized again, stopped or moved; 0 is no dwell."""

    @property
    def takes_turns(self) -> bool:
        """True if jobs of equal priority may be stopped for each other."""
        return self.preempt and self.priority_gap == 0

    def may_disturb(self, job: Job, now: datetime) -> bool:
        """True if a job runs and may be stopped, shrunk or moved, where each of these is allowed at all."""
        if job.running is None or not job.preemptible or self.dwells(job, now):
            return False
        spared = self.max_preemptions is not None and job.preemptions >= self.max_preemptions
        return not spared and (now - job.running.started_at).total_seconds() >= self.minimum_runtime

    def dwells(self, job: Job, now: datetime) -> bool:
        """True if a job was resized so short a time ago that it keeps its size."""
        return job.running is not None and _is_within(self.resize_dwell, job.running.resized_at, now)


def _is_within(seconds: int, since: datetime | None, now: datetime) -> bool:
    """True if something happened, and less than so many seconds ago."""
    return since is not None and (now - since).total_seconds() < seconds


class MigPolicy(Noun):
    """What a plan may do to MIG layouts."""

    repartition: bool = True
    """
    True: MIG instances may be created on idle slices of GPUs that are in MIG mode before the plan, and idle
    instances in their way destroyed. GPUs that the plan switches to it are a matter of `switch_mode` alone.
    """
    switch_mode: bool = False
    """True: MIG mode may be switched on for idle GPUs, and instances be created there for the plan's jobs."""


class PoolPolicy(Noun):
    """What a plan may do to node pools."""

    scale_up: bool = True
    """True: nodes may be added to pools."""
    scale_down: bool = True
    """True: idle nodes of pools may be removed."""
    horizon: PositiveSeconds = _SECONDS_PER_HOUR
    """Time over which the price of a node is weighed against the jobs that it serves."""
    scale_down_delay_after_add: Seconds = _SECONDS_PER_HOUR
    """Time after a pool was given a node in which none of its nodes is removed; 0 is no delay."""
    scale_up_delay_after_remove: Seconds = _SECONDS_PER_HOUR
    """Time after a node of a pool was removed in which the pool is given none; 0 is no delay."""

    def may_add(self, pool: NodePool, now: datetime) -> bool:
        """True if a pool may be given nodes, as far as its maximum goes."""
        return self.scale_up and not _is_within(self.scale_up_delay_after_remove, pool.node_removed_at, now)

    def may_remove(self, pool: NodePool, now: datetime) -> bool:
        """True if a pool may give nodes back, as far as its minimum goes."""
        return self.scale_down and not _is_within(self.scale_down_delay_after_add, pool.node_added_at, now)


class Interference(Noun):
    """What it costs when jobs of two workload classes meet on a node."""

    classes: tuple[Name, Name]
    """Two workload classes, in any order; the same class twice is for two of its jobs on one node."""
    points: Annotated[int, Field(strict=True, ge=0, le=1_000_000)]
    """Points that each such pair of jobs on one node costs."""


class Prices(Noun):
    """Prices of what a plan would rather not do, in points; a GPU of weight 1 and priority 0 is worth 100."""

    guarantee: Count = 100_000
    """Points for each GPU missing from what a queue is guaranteed."""
    nominal: Count = 10_000
    """
    Points for each GPU missing from a nominal quota, while a waiting job may take back there what others
    borrow.
    """
    disruption: Count = 100
    """Points for each GPU-hour of checkpoint, restart and work lost by a job stopped, moved or resized."""
    migration: Count = 10
    """Points for moving a job, beside the disruption."""
    resize: Count = 10
    """Points for shrinking or growing a job, beside the disruption."""
    repartition: Count = 20
    """Points for each MIG instance created."""
    switch_mode: Count = 100
    """Points for each GPU switched to MIG mode."""
    domain: Count = 50
    """
    Points for each domain of the preferred level, beyond one, that a started or moved job is spread over.
    """
    fragmentation: Count = 0
    """Points for each free GPU on which no replica of the reference gang fits."""
    reference_gpus: Annotated[int, Field(strict=True, ge=1, le=128)] = 8
    """GPUs on one node that a replica of the reference gang needs."""
    currency: Count = 100
    """Points for one unit of the cluster's currency."""
    scaling: Count = 5
    """
    Points for adding or removing a node, beside its own price, so that no node is exchanged for an equal
    one.
    """
    drain: Count = 10_000
    """Points for each job left on a node that should be drained."""
    lateness_milli: Milli = Field(default=100, alias="lateness")
    """
    Part of its points that a job loses with each hour after its deadline, until none is left.
    """
    interference: tuple[Interference, ...] = ()
    """Prices of pairs of workload classes on one node."""


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
    """What stops a search: the wall clock, or the solver's own deterministic work counter."""
    time_limit_ms: Milliseconds = Field(default=10_000, alias="time_limit")
    """Wall clock for the whole epoch; with mode `deterministic` a safety stop at ten times as long."""
    ticks: Annotated[int, Field(strict=True, ge=1, le=1_000_000)] = 20
    """Work units with mode `deterministic`: CP-SAT's deterministic seconds, hundreds of MILP nodes."""
    workers: Annotated[int, Field(strict=True, ge=1, le=256)] = 1
    """Threads of the exact solver."""
    stop_gap: Annotated[float, Field(ge=0, le=1)] = 0.0
    """Stop as soon as the proven gap is this small, as a fraction of the objective."""


class Drift(StrEnum):
    """How much the cluster may have changed between plan and apply."""

    STRICT = "strict"
    """Every node and job the plan touches is exactly as it was."""
    PRECONDITIONS = "preconditions"
    """Each action's own preconditions hold."""


class Policy(Noun):
    """All knobs of planning."""

    format_version: Literal["1.0"] = "1.0"
    """Version of the format of this document."""
    objective: Objective = Field(default_factory=Objective)
    """The goal of plans: short queues, fairness, an early end, or the value of what runs."""
    weights: Weights = Field(default_factory=Weights)
    """How the points of a job are made with the goal `value`; its least size counts with every goal."""
    priority: PriorityPolicy = Field(default_factory=PriorityPolicy)
    """Whether waiting jobs of higher priority come first, or only weigh more."""
    budget: BudgetPolicy = Field(default_factory=BudgetPolicy)
    """How long an epoch may take, and when a search may stop."""
    solvers: tuple[SolverName, ...] = (SolverName.MILP, SolverName.CPSAT)
    """Exact solvers in the order in which they are tried; an empty list leaves greedy alone."""
    drift: Drift = Drift.STRICT
    """Changes of the cluster that are tolerated between plan and apply."""
    prices: Prices = Field(default_factory=Prices)
    """Prices of what a plan should avoid, in points."""
    disruption: Disruption = Field(default_factory=Disruption)
    """What a plan may do to running jobs."""
    mig: MigPolicy = Field(default_factory=MigPolicy)
    """Rules for changes of MIG layouts."""
    pools: PoolPolicy = Field(default_factory=PoolPolicy)
    """Rules for adding and removing nodes of pools."""
    profiles: dict[Name, Profile] = Field(default_factory=dict)
    """Which nodes a job should be on, by its workload class; `pack` where none is given."""
    horizon: HorizonPolicy = Field(default_factory=HorizonPolicy)
    """How far a plan looks ahead, and what it promises."""
    durations: DurationPolicy = Field(default_factory=DurationPolicy)
    """How durations are learnt."""
    approval: Approval = Field(default_factory=Approval)
    """Plans that periodic runs do not apply without a person's approval."""

    def owed(self, price: int) -> int:
        """
        The price of what is owed and not given: a guarantee, a nominal quota, a node to be drained.

        Over a horizon of H hours, at least one, jobs earn points for each hour of service, unless by `value`:
        then it is ⌈H^¾⌉ times what the policy says. So much more a job that fills the horizon earns than one
        of an hour, by the root in `worth.Worth`, and it is worth no guarantee however long that is.
        """
        if self.horizon.slots == 1 or self.objective.goals == {Goal.VALUE}:
            return price
        hours = self.horizon.slots * self.horizon.length / _SECONDS_PER_HOUR
        return price * ceil(float(max(1.0, hours) ** 0.75))


def job_points(policy: Policy, job: Job, now: datetime) -> int:
    """
    Points of a job that runs at full size on its fastest GPU model, at least 1 and at most 10⁹.

        w_j = weight · (1 + priority + min(cap, gain · ⌊waiting / step⌋)) · size

    with size in GPUs, GPU-hours or 1 by `weights.basis`, and at least `smallest_size` GPUs; hours are those
    that earlier runs have left. Waiting counts in whole steps, so that jobs submitted close together stay
    equal. A weight of 0 is worth nothing.
    """
    if job.weight_milli == 0:
        return 0
    weights = policy.weights
    waited = job.waited(now)
    boost = min(weights.ageing.cap, weights.ageing.gain * (waited // weights.ageing.step))
    gpus_milli = max(weights.smallest_size_milli, job.request.total_gpu_milli * job.gang.maximum)
    seconds = job.expected_duration if job.expected_duration is not None else weights.default_duration
    match weights.basis:
        case SizeBasis.JOB:
            size_milli = MILLI
        case SizeBasis.GPU:
            size_milli = gpus_milli
        case SizeBasis.GPU_HOUR:
            size_milli = gpus_milli * work_left(policy, job, seconds) // (MILLI * _SECONDS_PER_HOUR)
    points = job.weight_milli * (1 + job.priority + boost) * size_milli * POINTS_PER_WEIGHT // MILLI**2
    return min(LARGEST_POINTS, max(1, points))


def completion_points(
    full_points: int, job: Job, gpu_model: str | None, replicas: int, usual: int = 0
) -> int:
    """
    Points of a job placed with so many replicas on one GPU model: `w_j · completed_j`.

    Its points times its relative speed at full size, as far as these replicas earn it (`sized_points`).
    """
    if full_points == 0:
        return 0
    return sized_points(full_points * job.speed_milli(gpu_model) // MILLI, job, gpu_model, replicas, usual)


def sized_points(at_full_size: int, job: Job, gpu_model: str | None, replicas: int, usual: int = 0) -> int:
    """
    Points with so many replicas, of a job that earns so many at full size on a GPU model; at least 1.

    A rigid gang earns them all. Each replica of an elastic one earns its part of the speed (`Gang.steps`),
    rounded down: an equal one, at least 1, where no scaling is given.
    """
    if not job.gang.elastic:
        return max(1, at_full_size)
    if not job.gang.scaled:
        return replicas * max(1, at_full_size // job.gang.maximum)
    return max(1, sum(replica_points(at_full_size, job, gpu_model, usual)[:replicas]))


def replica_points(at_full_size: int, job: Job, gpu_model: str | None, usual: int = 0) -> tuple[int, ...]:
    """Points that each replica of a scaled job adds, in order: none adds more than one before it."""
    most = job.gang.speed_milli(job.gang.maximum, gpu_model)
    points: list[int] = []
    for speed, replicas in job.gang.steps(gpu_model, usual=usual):
        each = at_full_size * speed // (replicas * most)
        points += [min(points[-1], each) if points else max(1, each)] * replicas
    return tuple(points)
