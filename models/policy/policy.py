"""Policy: all settings of planning with units and defaults."""

from __future__ import annotations

from enum import StrEnum
from math import ceil
from typing import TYPE_CHECKING, Annotated, Literal

from pydantic import Field, model_validator

from gpuplan.models.base import Noun
from gpuplan.models.health.measurement import HealthPolicy
from gpuplan.models.plan.action_kinds import SWITCHES
from gpuplan.models.policy.approval import Approval
from gpuplan.models.policy.settings import (
    ApplyPolicy,
    DisruptionBudget,
    DurationPolicy,
    Goal,
    HorizonPolicy,
    Objective,
)
from gpuplan.models.units import SECONDS_PER_HOUR, Count, Milli, Milliseconds, Name, PositiveSeconds, Seconds

if TYPE_CHECKING:
    from datetime import datetime

    from gpuplan.models.cluster import Cluster, NodePool
    from gpuplan.models.job import Job


class SizeBasis(StrEnum):
    """Factor of a job's weight."""

    JOB = "job"
    GPU = "gpu"
    GPU_HOUR = "gpu_hour"


class Ageing(Noun):
    """Increase of priority by waiting: `gain` points per full `step`, at most `cap` points."""

    step: PositiveSeconds = 6 * SECONDS_PER_HOUR
    """Waiting time after which the priority increases once more; only full steps count."""
    gain: Count = 1
    """Priority gained in each step."""
    cap: Count = 10
    """Maximum priority gained by waiting."""


class RequeueBoost(Noun):
    """Increase of the value of a job that plans have preempted: `gain` per preemption, at most `cap`."""

    gain: Annotated[int, Field(strict=True, ge=0, le=13)] = 0
    """Increase with each preemption; 0 means none."""
    cap: Annotated[int, Field(strict=True, ge=0, le=13)] = 3
    """Maximum increase, after any number of preemptions."""

    def of(self, preemptions: int) -> int:
        """Increase after so many preemptions."""
        return min(self.cap, self.gain * preemptions)


class Weights(Noun):
    """Parameters of a job's effective weight."""

    basis: SizeBasis = SizeBasis.GPU
    """Factor of a job's weight: its GPUs, its GPU-hours, or 1."""
    smallest_size_milli: Milli = Field(default=100, alias="smallest_size")
    """
    Minimum number of GPUs that a job counts for, so that jobs without GPUs have a weight.
    """
    default_duration: Seconds = SECONDS_PER_HOUR
    """
    Duration of jobs that declare none and resemble no finished ones, for promises and expected ends. The
    order of such jobs under the goal `completion` uses instead the average duration of any job, 67 hours.
    """
    ageing: Ageing = Field(default_factory=Ageing)
    """Increase of priority by waiting."""
    requeue: RequeueBoost = Field(default_factory=RequeueBoost)
    """
    Increase by preemptions, with every goal except `fairness`: as points of priority under the goal `value`,
    else in doublings, as much as `objective.doubling` of waiting each. Which jobs may be preempted stays.
    """


class PriorityOrder(StrEnum):
    """Effect of priorities on the order of pending jobs."""

    TIERS = "tiers"
    """Lexicographic: no job takes a place that a pending job of higher priority could use."""
    WEIGHTS = "weights"
    """Priority is only a factor of a job's weight: many points of low priority outweigh few of high."""


class PriorityPolicy(Noun):
    """Order of pending jobs by priority."""

    order: PriorityOrder = PriorityOrder.TIERS
    """`tiers`: higher priorities come first; `weights`: they have more weight, and size counts as well."""


class Disruption(Noun):
    """What a plan may do to running jobs, and the time that it costs."""

    preempt: bool = True
    """True: a preemptible job may be preempted for one of higher priority; it waits again."""
    resize: bool = True
    """True: elastic jobs may grow while they run, and shrink for jobs of higher priority."""
    migrate: bool = False
    """True: jobs may migrate to other nodes, GPUs or MIG instances."""
    reclaim: bool = True
    """
    True: a queue below its nominal quota reclaims what other queues borrow, regardless of priority. False: it
    reclaims only its guarantee.
    """
    priority_gap: Count = 1
    """
    Minimum priority difference for a job to take what another job has to give up.

    It applies to preemption and shrinking, and to nodes, quota and power.
    """
    minimum_runtime: Seconds = 0
    """Jobs that have run for less time are not preempted, shrunk or migrated."""
    max_preemptions: Count | None = None
    """Jobs preempted this many times are not preempted, shrunk or migrated again; absent means no limit."""
    checkpoint: Seconds = 60
    """Time to save a job's state, unless the job declares its own."""
    restart: Seconds = 300
    """Time to resume a job from its checkpoint, unless the job declares its own."""
    resize_dwell: Seconds = SECONDS_PER_HOUR
    """Time after a resize in which a job is not resized again, preempted or migrated; 0 means none."""
    budgets: tuple[DisruptionBudget, ...] = ()
    """Limits on the replicas or jobs of a group that are unavailable at a time."""

    @model_validator(mode="after")
    def _budgets_have_names_of_their_own(self) -> Disruption:
        names = [budget.name for budget in self.budgets]
        if twice := sorted({name for name in names if names.count(name) > 1}):
            raise ValueError(f"expected each budget once by name, found {', '.join(twice)} more than once")
        return self

    @property
    def preempts_equals(self) -> bool:
        """True if jobs of equal priority may be preempted for each other."""
        return self.preempt and self.priority_gap == 0

    def may_disturb(self, job: Job, now: datetime) -> bool:
        """True if a job runs and no rule protects it from being preempted, shrunk and migrated."""
        if job.running is None or not job.preemptible or self.is_in_resize_dwell(job, now):
            return False
        spared = self.max_preemptions is not None and job.preemptions >= self.max_preemptions
        return not spared and (now - job.running.started_at).total_seconds() >= self.minimum_runtime

    def is_in_resize_dwell(self, job: Job, now: datetime) -> bool:
        """True if a job was resized so recently that it keeps its size."""
        return job.running is not None and _is_within(self.resize_dwell, job.running.resized_at, now)


def _is_within(seconds: int, since: datetime | None, now: datetime) -> bool:
    """True if an event happened less than `seconds` ago."""
    return since is not None and (now - since).total_seconds() < seconds


class MigPolicy(Noun):
    """What a plan may do to MIG layouts."""

    repartition: bool = True
    """
    True: MIG instances may be created on idle slices of GPUs that are already in MIG mode, and conflicting
    idle instances destroyed. GPUs that the plan switches to MIG mode depend only on `switch_mode`.
    """
    switch_mode: bool = False
    """True: MIG mode may be switched on for idle GPUs, and instances created there for the plan's jobs."""


class PoolPolicy(Noun):
    """What a plan may do to node pools."""

    scale_up: bool = True
    """True: nodes may be added to pools."""
    scale_down: bool = True
    """True: idle nodes of pools may be removed."""
    horizon: PositiveSeconds = SECONDS_PER_HOUR
    """Period over which the price of a node is compared with the value of its jobs."""
    scale_down_delay_after_add: Seconds = SECONDS_PER_HOUR
    """Time after a node was added to a pool in which none of its nodes is removed; 0 means no delay."""
    scale_up_delay_after_remove: Seconds = SECONDS_PER_HOUR
    """Time after a node of a pool was removed in which none is added; 0 means no delay."""

    def may_add(self, pool: NodePool, now: datetime) -> bool:
        """True if nodes may be added to a pool, up to its maximum."""
        return self.scale_up and not _is_within(self.scale_up_delay_after_remove, pool.node_removed_at, now)

    def may_remove(self, pool: NodePool, now: datetime) -> bool:
        """True if nodes may be removed from a pool, down to its minimum."""
        return self.scale_down and not _is_within(self.scale_down_delay_after_add, pool.node_added_at, now)


class Interference(Noun):
    """Cost of jobs of two workload classes on the same node."""

    classes: tuple[Name, Name]
    """Two workload classes, in any order; the same class twice means two of its jobs on one node."""
    points: Annotated[int, Field(strict=True, ge=0, le=1_000_000)]
    """Cost of each node on which both classes newly run together, however many jobs there are, in points."""


class Prices(Noun):
    """Prices of what a plan should avoid, in points; a GPU of weight 1 and priority 0 has a value of 100."""

    guarantee: Count = 100_000
    """Points for each GPU missing from a queue's guarantee."""
    nominal: Count = 10_000
    """
    Points for each GPU missing from a nominal quota while a pending job may reclaim there what running jobs
    of other queues borrow. What a plan itself lets a job borrow counts from the next plan on, which may take
    it back at once.
    """
    disruption: Count = 100
    """Points per GPU-hour of checkpoint, restart and lost work of a preempted, migrated or resized job."""
    migration: Count = 10
    """Points for migrating a job, in addition to the disruption."""
    resize: Count = 10
    """Points for shrinking or growing a job, in addition to the disruption."""
    repartition: Count = 20
    """Points for each MIG instance created."""
    switch_mode: Count = 100
    """Points for each GPU switched to MIG mode."""
    domain: Count = 50
    """
    Points for each domain of the preferred level, beyond the first, over which a started or migrated job is
    spread.
    """
    fragmentation: Count = 0
    """Points for each free GPU on which no replica of the reference gang fits."""
    reference_gpus: Annotated[int, Field(strict=True, ge=1, le=128)] = 8
    """GPUs on one node that a replica of the reference gang needs."""
    currency: Count = 100
    """Points for one unit of the cluster's currency."""
    scaling: Count = 5
    """
    Points for adding or removing a node, in addition to its own price, so that no node is replaced by an
    equal one.
    """
    drain: Count = 10_000
    """Points for each job left on a node that should be drained."""
    lateness_milli: Milli = Field(default=100, alias="lateness")
    """
    Fraction of its points that a job loses with each hour after its deadline, until none is left.
    """
    interference: tuple[Interference, ...] = ()
    """Prices of pairs of workload classes on one node."""


class Profile(StrEnum):
    """Preference of a job among nodes with room, after the objective."""

    PACK = "pack"
    """The fullest node."""
    SPREAD = "spread"
    """The emptiest node."""
    BALANCED = "balanced"
    """The node that then uses its CPU, memory and GPUs most evenly."""


class SolverName(StrEnum):
    """Solvers that a policy may name."""

    MILP = "milp"
    """PuLP and HiGHS."""
    CPSAT = "cpsat"
    """OR-Tools CP-SAT."""
    CBC = "cbc"
    """PuLP with its bundled CBC: slow, and without a bound unless it finishes; runs on every platform."""


class BudgetMode(StrEnum):
    """Limit of a solver: wall clock, or its own deterministic work counter."""

    WALLCLOCK = "wallclock"
    DETERMINISTIC = "deterministic"


class BudgetPolicy(Noun):
    """Limits of the search of an epoch."""

    mode: BudgetMode = BudgetMode.WALLCLOCK
    """Limit of a search: wall clock, or the solver's own deterministic work counter."""
    time_limit_ms: Milliseconds = Field(default=10_000, alias="time_limit")
    """
    Wall-clock limit of the whole command, or of an epoch of `run`; with mode `deterministic` a safety limit
    at ten times as long.
    """
    ticks: Annotated[int, Field(strict=True, ge=1, le=1_000_000)] = 20
    """Work units with mode `deterministic`: CP-SAT's deterministic seconds, hundreds of MILP nodes."""
    workers: Annotated[int, Field(strict=True, ge=1, le=256)] = 1
    """Threads of the exact solver."""
    stop_gap: Annotated[float, Field(ge=0, le=1)] = 0.0
    """Stop when the proven gap is at most this fraction of the objective."""


class Drift(StrEnum):
    """Changes of the cluster that are tolerated between plan and apply."""

    STRICT = "strict"
    """None: every node and job that the plan touches is exactly as it was."""
    PRECONDITIONS = "preconditions"
    """Changes that leave the preconditions of each action true."""


class Policy(Noun):
    """All settings of planning."""

    format_version: Literal["1.0"] = "1.0"
    """Version of the format of this document."""
    objective: Objective = Field(default_factory=Objective)
    """Goal of plans: short completion times, fairness, an early end of all jobs, or most value running."""
    weights: Weights = Field(default_factory=Weights)
    """Points of a job under the goal `value`; its minimum size and `requeue` count with other goals too."""
    priority: PriorityPolicy = Field(default_factory=PriorityPolicy)
    """Whether pending jobs of higher priority come first, or only have more weight."""
    budget: BudgetPolicy = Field(default_factory=BudgetPolicy)
    """Time limit of an epoch, and when a search may stop."""
    solvers: tuple[SolverName, ...] = (SolverName.MILP, SolverName.CPSAT)
    """Exact solvers in the order in which they are tried; an empty list means greedy only."""
    drift: Drift = Drift.STRICT
    """How much the cluster may change between plan and apply."""
    prices: Prices = Field(default_factory=Prices)
    """Prices of what a plan should avoid, in points."""
    disruption: Disruption = Field(default_factory=Disruption)
    """What a plan may do to running jobs."""
    mig: MigPolicy = Field(default_factory=MigPolicy)
    """Rules for changes of MIG layouts."""
    pools: PoolPolicy = Field(default_factory=PoolPolicy)
    """Rules for adding and removing nodes of pools."""
    profiles: dict[Name, Profile] = Field(default_factory=dict)
    """Preferred nodes of jobs, by workload class; the default is `pack`."""
    horizon: HorizonPolicy = Field(default_factory=HorizonPolicy)
    """How far a plan looks ahead, and which starts it promises."""
    durations: DurationPolicy = Field(default_factory=DurationPolicy)
    """How durations are learnt."""
    approval: Approval = Field(default_factory=Approval)
    """Plans that are not applied without approval, and the approvers that sign it."""
    health: HealthPolicy = Field(default_factory=HealthPolicy)
    """What is told of GPUs by their measurements, and what excludes them."""
    apply: ApplyPolicy = Field(default_factory=ApplyPolicy)
    """How many actions of a plan are under way at once, how long each may last, and what a failure ends."""

    def within(self, cluster: Cluster) -> Policy:
        """The policy in force on a cluster: all that the cluster cannot do is off."""
        off: dict[str, dict[str, bool]] = {"disruption": {}, "mig": {}, "pools": {}}
        for section, switch, kinds in SWITCHES:
            if not any(map(cluster.offers, kinds)) and getattr(getattr(self, section), switch):
                off[section][switch] = False
        update = {name: getattr(self, name).model_copy(update=each) for name, each in off.items() if each}
        return self.model_copy(update=update) if update else self

    def owed(self, price: int) -> int:
        """
        The price of an unmet obligation: a guarantee, a nominal quota, or a node to be drained.

        Except under the goal `value`, jobs earn points for each hour of service. So over a horizon of H
        hours, at least one, the price is ⌈H^¾⌉ times the policy's value. A job that fills the horizon earns
        that much more than a job of one hour, by the root in `job_value.JobValue`. So no job outweighs a
        guarantee, whatever the horizon.
        """
        if self.horizon.slots == 1 or self.objective.goals == {Goal.VALUE}:
            return price
        hours = self.horizon.slots * self.horizon.length / SECONDS_PER_HOUR
        return price * ceil(float(max(1.0, hours) ** 0.75))
