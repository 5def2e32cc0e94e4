"""Replay of a trace under one policy, epoch by epoch, with the production planner or a baseline."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, replace
from datetime import timedelta
from typing import TYPE_CHECKING, Final, Literal, TypeAlias

from gpuplan.models.health.findings import with_exclusions
from gpuplan.planner.simulate.decide import BaselineDecider, PlannerDecider
from gpuplan.planner.simulate.outcome import EpochFigures
from gpuplan.planner.simulate.scorecard import ScoreKeeper
from gpuplan.planner.simulate.simulated_job import JobEventKind
from gpuplan.planner.simulate.world import Elapsed, advance_world, initial_world

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable
    from datetime import datetime

    from gpuplan.models.policy.policy import Policy
    from gpuplan.planner.simulate.decide import Decider, EpochDecision
    from gpuplan.planner.simulate.outcome import Scorecard
    from gpuplan.planner.simulate.run_options import EpochClock
    from gpuplan.planner.simulate.scorecard import JobLife
    from gpuplan.planner.simulate.simulated_job import GpuTimeFlow, JobEvent
    from gpuplan.planner.simulate.trace import Trace
    from gpuplan.planner.simulate.world import SimulatedWorld

    Watch: TypeAlias = "Callable[[ReplayProgress], None]"

Stopped: TypeAlias = Literal["finished", "time", "stuck"]

QUIET: Final = timedelta(days=1)
"""A simulation without an end time is stuck if for this long nothing has run, arrived or changed."""


@dataclass(frozen=True, slots=True)
class ReplayProgress:
    """Progress of a replay."""

    epochs: int
    at: datetime
    part: float
    """Completed part from 0 to 1, by time or by jobs."""
    waiting: int


@dataclass(frozen=True, slots=True)
class Replayed:
    """Result of a replay."""

    scores: Scorecard
    epochs: tuple[EpochFigures, ...]
    stopped: Stopped
    lives: tuple[JobLife, ...]
    """Each scored job with its start and end, in order of arrival."""


def replay(
    trace: Trace,
    policy: Policy,
    clock: EpochClock,
    *,
    seed: int,
    baseline: str | None = None,
    watch: Watch = lambda _: None,
) -> Replayed:
    """
    Repeat for each epoch: plan, carry out the plan, advance time. A named `baseline` replaces the planner.

    Raises
    ------
    PlannerError
        An epoch could not be planned; the message names it.
    """
    decider: Decider = PlannerDecider(policy, seed) if baseline is None else BaselineDecider(baseline, policy)
    # Nothing is measured in a simulation: GPUs that the rules exclude at its start stay excluded.
    world = initial_world(replace(trace, start=with_exclusions(trace.start, policy.health)))
    account = ScoreKeeper(trace, world)
    end = None if clock.seconds is None else world.now + timedelta(seconds=clock.seconds)
    epochs: list[EpochFigures] = []
    elapsed = advance_world(world, world.now)
    busy = _Mark(world, account.flow, epochs=0)
    while True:
        world = elapsed.world
        account.record(elapsed)
        if end is None and epochs and (stopped := _over(world, busy)) is not None:
            break
        decided = decider.decide(world, len(epochs))
        world = decided.world
        account.record(Elapsed(world, decided.happened))
        happened = (*elapsed.happened, *decided.happened)
        epochs.append(_figures(decided, happened, number=len(epochs)))
        if happened or world.coming or _any_job_runs(world) or decided.changes or len(epochs) == 1:
            busy = _Mark(world, account.flow, len(epochs))
        watch(ReplayProgress(len(epochs), world.now, _part(world, end, account), epochs[-1].waiting))
        if world.now == end or len(epochs) == clock.epochs:
            stopped = "time"
            break
        step = clock.next_epoch(world)
        elapsed = advance_world(world, step if end is None else min(step, end))
    if stopped == "stuck":
        world, account.flow = busy.world, busy.flow
        del epochs[busy.epochs :]
    return Replayed(account.scorecard(world, epochs), tuple(epochs), stopped, tuple(account.lives.values()))


@dataclass(frozen=True, slots=True)
class _Mark:
    """State of a replay at the last activity."""

    world: SimulatedWorld
    flow: GpuTimeFlow
    epochs: int


def _over(world: SimulatedWorld, busy: _Mark) -> Stopped | None:
    """Why the replay ends; None if it continues."""
    if not world.coming and all(task.job.withheld for task in world.tasks.values()):
        return "finished"
    return "stuck" if world.now - busy.world.now >= QUIET and not world.outages else None


def _any_job_runs(world: SimulatedWorld) -> bool:
    return any(task.interval is not None for task in world.tasks.values())


def _part(world: SimulatedWorld, end: datetime | None, account: ScoreKeeper) -> float:
    if end is not None:
        return (world.now - world.began) / (end - world.began) if end > world.began else 1.0
    every = len(account.lives) + len(world.coming)
    left = len(world.coming) + sum(name in account.lives for name in world.tasks)
    return 1 - left / every if every else 1.0


def _figures(decided: EpochDecision, happened: Iterable[JobEvent], *, number: int) -> EpochFigures:
    world = decided.world
    count = Counter(each.kind for each in happened)
    running = sum(task.interval is not None for task in world.tasks.values())
    held = sum(task.interval is None and task.job.withheld for task in world.tasks.values())
    return EpochFigures(
        number=number,
        at=world.now,
        submitted=count[JobEventKind.SUBMITTED],
        finished=count[JobEventKind.FINISHED],
        killed=count[JobEventKind.KILLED],
        interrupted=count[JobEventKind.INTERRUPTED],
        started=count[JobEventKind.STARTED],
        preempted=count[JobEventKind.PREEMPTED],
        migrated=count[JobEventKind.MOVED],
        resized=count[JobEventKind.RESIZED],
        running=running,
        waiting=len(world.tasks) - running - held,
        gpu_allocation_ratio=decided.gpu_allocation_ratio,
        fragmentation_ratio=decided.fragmentation_ratio,
        jain_index=decided.jain_index,
        hourly_cost=decided.hourly_cost,
        objective=decided.objective,
        bound=decided.bound,
        solver=decided.solver,
        seconds=round(decided.seconds, 6),
    )
