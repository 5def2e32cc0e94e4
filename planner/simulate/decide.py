"""Decision of one epoch of a simulation, by the planner or by a baseline, and its actions in the world."""

from __future__ import annotations

import time
from dataclasses import dataclass, field, replace
from datetime import timedelta
from typing import TYPE_CHECKING, Final, Protocol, assert_never

from gpuplan.models.eligibility.free_resources import free_resources_by_node
from gpuplan.models.errors import PlannerError
from gpuplan.models.placement import Running, same_holdings
from gpuplan.models.plan.actions import Grow, Migrate, Preempt, Release, Shrink, Start, changes_of
from gpuplan.models.plan.solution import DesiredState
from gpuplan.models.units import print_timestamp
from gpuplan.models.validation.damage import survey_damage
from gpuplan.planner.analysis.effects import NodesByName, apply_action
from gpuplan.planner.analysis.metrics import allocation_ratio, fragmentation_ratio, hourly_cost, jain_index
from gpuplan.planner.analysis.target_cluster import cluster_after
from gpuplan.planner.apply.promises import promises_of
from gpuplan.planner.epoch import plan_epoch
from gpuplan.planner.epoch_cache import EpochCache
from gpuplan.planner.simulate.baselines import decide
from gpuplan.planner.simulate.simulated_job import JobEvent, JobEventKind, run_interval
from gpuplan.planner.warm_start import is_settled

if TYPE_CHECKING:
    from collections.abc import Iterable
    from datetime import datetime

    from gpuplan.models.placement import Placement, Replica
    from gpuplan.models.plan.actions import JobChangeAction, ScaleUp
    from gpuplan.models.plan.plan import Plan
    from gpuplan.models.policy.policy import Policy
    from gpuplan.models.snapshot import Snapshot
    from gpuplan.planner.simulate.simulated_job import SimulatedJob
    from gpuplan.planner.simulate.world import SimulatedWorld


SETTLED: Final = "settled"
"""In place of a solver's name: nothing changed since the last plan, so no new plan was made."""


@dataclass(frozen=True, slots=True)
class EpochDecision:
    """One epoch: the world after the decision is carried out, and the recorded figures."""

    world: SimulatedWorld
    happened: tuple[JobEvent, ...]
    solver: str
    seconds: float
    """Duration of the decision."""
    gpu_allocation_ratio: float
    fragmentation_ratio: float
    jain_index: float
    hourly_cost: float
    objective: int | None = None
    bound: int | None = None
    changes: bool = False
    """True if the decision changes anything."""


class Decider(Protocol):
    """Decides the epochs one after the other, each from the present world."""

    def decide(self, world: SimulatedWorld, number: int) -> EpochDecision:
        """Decide the epoch with this number, and carry out the decision."""


@dataclass
class PlannerDecider:
    """The production planner; each plan gets the last one."""

    policy: Policy
    seed: int
    _last: Plan | None = field(default=None, init=False)
    _cache: EpochCache = field(default_factory=EpochCache, init=False)

    def decide(self, world: SimulatedWorld, number: int) -> EpochDecision:
        """
        Plan, and carry out the plan.

        Raises
        ------
        PlannerError
            The epoch could not be planned; the message names it.
        """
        began = time.monotonic()
        snapshot, plan = world.snapshot(), self._last
        happened: tuple[JobEvent, ...] = ()
        # If nothing has changed since the last plan, a new plan would change nothing.
        settled = plan is not None and is_settled(snapshot, self.policy, plan)
        if plan is None or not settled:
            plan = self._last = self._planned(snapshot, number)
            world, happened = apply_plan_to_world(world, plan)
        return EpochDecision(
            world,
            happened,
            solver=SETTLED if settled else plan.solution.solver,
            seconds=time.monotonic() - began,
            gpu_allocation_ratio=plan.metrics.gpu_allocation_ratio,
            fragmentation_ratio=plan.metrics.fragmentation_ratio,
            jain_index=plan.metrics.jain_index,
            hourly_cost=plan.metrics.hourly_cost,
            objective=plan.solution.objective,
            bound=plan.solution.bound,
            changes=plan.has_changes and not settled,
        )

    def _planned(self, snapshot: Snapshot, number: int) -> Plan:
        now = snapshot.taken_at
        try:
            return plan_epoch(
                snapshot, self.policy, seed=self.seed, created_at=now, last=self._last, cache=self._cache
            )
        except PlannerError as error:
            when = f"epoch {number} at {print_timestamp(now)}"
            raise PlannerError(f"{when} could not be planned: {error}") from error


@dataclass(frozen=True)
class BaselineDecider:
    """A baseline, given by its name."""

    name: str
    policy: Policy

    def decide(self, world: SimulatedWorld, number: int) -> EpochDecision:  # noqa: ARG002 - as the planner is asked
        """Run the baseline, and carry out its placements."""
        began = time.monotonic()
        snapshot = world.snapshot()
        sound = survey_damage(snapshot).sound
        attained = {name: task.attained(world.now) for name, task in world.tasks.items()}
        placements = decide(self.name, sound, self.policy, attained)
        seconds = time.monotonic() - began
        world, happened = apply_placements(world, snapshot, placements)
        cluster = world.cluster
        free = free_resources_by_node(cluster.nodes, placements)
        return EpochDecision(
            world,
            happened,
            solver=self.name,
            seconds=seconds,
            gpu_allocation_ratio=allocation_ratio(cluster, placements),
            fragmentation_ratio=fragmentation_ratio(cluster, free),
            jain_index=jain_index(snapshot, placements),
            hourly_cost=hourly_cost(cluster),
            changes=bool(happened),
        )


# Carries out a plan in a world: all actions at one time.


def apply_plan_to_world(world: SimulatedWorld, plan: Plan) -> tuple[SimulatedWorld, tuple[JobEvent, ...]]:
    """
    The world after a plan, and the events of its jobs.

    Stopping takes no time. A job that is preempted, migrated or resized loses its unsaved work, and restores
    its last checkpoint before it works again.
    """
    acting = _PlanEffects(world)
    for change in changes_of(plan.actions):
        apply_action(acting, change)
    promises = promises_of(plan)
    for name, task in acting.tasks.items():
        promise = promises.get(name)
        if task.interval is None and task.job.promise != promise:
            job = task.job.model_copy(update={"promise": promise})
            acting.tasks[name] = replace(task, job=job)
    return acting.done(), tuple(acting.happened)


def apply_placements(
    world: SimulatedWorld, snapshot: Snapshot, placements: tuple[Placement, ...]
) -> tuple[SimulatedWorld, tuple[JobEvent, ...]]:
    """
    The world with exactly these placements running, and the events of its jobs.

    Interruptions cost as much as in `apply_plan_to_world`. The snapshot is that of the world; all promises
    are void.
    """
    acting = _PlanEffects(world)
    cluster = cluster_after(snapshot, DesiredState(placements=placements))
    acting.nodes |= {node.name: node for node in cluster.nodes}
    placed = {placement.job: placement for placement in placements}
    for job in snapshot.jobs:
        before, after = job.placement, placed.get(job.name)
        if before is not None and after is None:
            acting.preempt(job.name)
        elif before is None and after is not None:
            acting.start(job.name, after, None)
        elif before is not None and after is not None and not same_holdings(before.replicas, after.replicas):
            acting.move(job.name, after)
    return acting.done(), tuple(acting.happened)


class _PlanEffects(NodesByName):
    """Mutable parts of a world during a plan."""

    def __init__(self, world: SimulatedWorld) -> None:
        super().__init__(world.cluster, world.now)
        self._world = world
        self.tasks: dict[str, SimulatedJob] = dict(world.tasks)
        self.happened: list[JobEvent] = []

    def done(self) -> SimulatedWorld:
        """The changed world; the cluster object stays the same if no node has changed."""
        cluster = self._world.cluster
        if self.nodes != cluster.node_by_name:
            nodes = tuple(self.nodes[name] for name in sorted(self.nodes))
            pools = tuple(self.pools.values())
            cluster = cluster.model_copy(update={"nodes": nodes, "pools": pools})
        return replace(self._world, cluster=cluster, tasks=self.tasks)

    def ready_at(self, action: ScaleUp) -> datetime | None:
        """The end of provisioning: a node accepts jobs at once, and they run from then on."""
        return self.now + timedelta(seconds=action.provisioning) if action.provisioning else None

    def change_job(self, action: JobChangeAction) -> None:
        """See `gpuplan.planner.analysis.node_rules.World`."""
        match action:
            case Start():
                self.start(action.job, action.after, action.kill_at)
            case Preempt():
                self.preempt(action.job)
            case Shrink() | Grow():
                self.resize(action)
            case Migrate():
                self.move(action.job, action.after)
            case Release(after=None):
                self.release(action.job)
            case Release():
                self.resize(action)
            case _:
                assert_never(action)

    def start(self, job: str, after: Placement, kill_at: datetime | None) -> None:
        """Start a pending job."""
        task = self.tasks[job]
        begins = self._ready(after.replicas)
        self._begin(task, Running(started_at=begins, kill_at=kill_at, replicas=after.replicas))
        self.happened.append(JobEvent(begins, JobEventKind.STARTED, job))

    def preempt(self, job: str) -> None:
        """Stop a running job; it is pending again, and its preemption count is raised."""
        now = self._world.now
        task, held = self.tasks[job].stopped(now, self._world.physics)
        waits = task.job.model_copy(update={"preemptions": task.job.preemptions + 1})
        self.tasks[job] = replace(task, job=waits)
        self.happened.append(JobEvent(now, JobEventKind.PREEMPTED, job, held))

    def release(self, job: str) -> None:
        """Take a job off GPUs that a rule of health excludes; it is pending again, and was not preempted."""
        now = self._world.now
        self.tasks[job], held = self.tasks[job].stopped(now, self._world.physics)
        self.happened.append(JobEvent(now, JobEventKind.INTERRUPTED, job, held))

    def resize(self, change: Shrink | Grow | Release) -> None:
        """Continue a running job with fewer or more replicas; before its first work it loses nothing."""
        task, now, physics = self.tasks[change.job], self._world.now, self._world.physics
        running, stretch, held = task.job.running, task.begun, task.ended(self._world.now)
        assert running is not None  # noqa: S101 - for the type checker
        assert change.after is not None  # noqa: S101 - for the type checker
        update: dict[str, object] = {"replicas": change.after.replicas, "resized_at": now}
        if stretch.begins > now:
            begins = update["started_at"] = self._ready(change.after.replicas)
            delay = int((stretch.works - stretch.begins).total_seconds())
        else:
            begins, delay = now, physics.recovery_of(task.job)
            saved_at = task.checkpointed_at(now, physics.checkpoint_every)
            update["last_checkpoint_at"] = saved_at or running.last_checkpoint_at
            task, held = task.stopped(now, physics)
        update["resumed_at"] = begins + timedelta(seconds=delay)
        self._put(task, running.model_copy(update=update), begins=begins, delay=delay)
        self.happened.append(JobEvent(now, JobEventKind.RESIZED, change.job, held))

    def move(self, job: str, after: Placement) -> None:
        """Move a running job to other places; it continues there from its last checkpoint."""
        task, now = self.tasks[job], self._world.now
        begins = self._ready(after.replicas)
        old = task.job.running
        kill_at = None if old is None or old.kill_at is None else old.kill_at + (begins - now)
        resized_at = None if old is None else old.resized_at
        stopped, held = task.stopped(now, self._world.physics)
        moved = Running(started_at=begins, kill_at=kill_at, resized_at=resized_at, replicas=after.replicas)
        self._begin(stopped, moved)
        self.happened.append(JobEvent(now, JobEventKind.MOVED, job, held))

    def _begin(self, task: SimulatedJob, running: Running) -> None:
        """Run a job that does not run; a job that ran before first restores its checkpoint."""
        delay = self._world.physics.recovery_of(task.job) if task.ran else 0
        if delay:
            works = running.started_at + timedelta(seconds=delay)
            running = running.model_copy(update={"resumed_at": works})
        self._put(task, running, begins=running.started_at, delay=delay)

    def _put(self, task: SimulatedJob, running: Running, *, begins: datetime, delay: int) -> None:
        stretch = run_interval(task.job, running.replicas, self.nodes, begins=begins, delay=delay)
        fails = self._world.physics.failure_after(task.job, stretch.works, len(running.replicas))
        stretch = replace(stretch, fails=fails)
        job = task.job.model_copy(update={"running": running, "promise": None})
        self.tasks[task.job.name] = replace(task, job=job, interval=stretch, ran=True)

    def _ready(self, replicas: Iterable[Replica]) -> datetime:
        """Present time, or the time when the last of the nodes is ready."""
        ready = [self.nodes[each.node].ready_at for each in replicas]
        return max([self._world.now, *(at for at in ready if at is not None)])
