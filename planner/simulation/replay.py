"""Replay: a trace under one policy, epoch by epoch, with the planner that production uses."""

from __future__ import annotations

import time
from collections import Counter
from dataclasses import dataclass
from datetime import timedelta
from typing import TYPE_CHECKING, Final, Literal, TypeAlias

from planner.epoch import plan_epoch
from planner.models.errors import PlannerError
from planner.models.units import print_timestamp
from planner.settled import is_settled
from planner.simulation.acting import carry_out
from planner.simulation.elapsing import Elapsed, elapse
from planner.simulation.happening import Kind
from planner.simulation.outcome import EpochFigures
from planner.simulation.scoring import Account
from planner.simulation.world import opening

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable
    from datetime import datetime

    from planner.models.plan import Plan
    from planner.models.policy import Policy
    from planner.models.snapshot import Snapshot
    from planner.simulation.happening import Flow, Happening
    from planner.simulation.outcome import Scorecard
    from planner.simulation.trace import Trace
    from planner.simulation.world import World

    Watch: TypeAlias = "Callable[[Progress], None]"

Stopped: TypeAlias = Literal["finished", "time", "stuck"]

QUIET: Final = timedelta(days=1)
"""A simulation without an end is stuck once so long nothing has run, come or changed."""


SETTLED: Final = "settled"
"""Instead of a solver's name: nothing had changed since the last plan, and no other was made."""


@dataclass(frozen=True, slots=True)
class Clock:
    """When epochs are."""

    every: int
    """Seconds from one epoch to the next."""
    seconds: int | None = None
    """From the first epoch to the last; None is until every job is over."""


@dataclass(frozen=True, slots=True)
class Progress:
    """How far a replay is."""

    epochs: int
    at: datetime
    part: float
    """Of the whole, by time or by jobs; 1 is all."""
    waiting: int


@dataclass(frozen=True, slots=True)
class Replayed:
    """A trace that was replayed."""

    scores: Scorecard
    epochs: tuple[EpochFigures, ...]
    stopped: Stopped


def replay(
    trace: Trace, policy: Policy, clock: Clock, *, seed: int, watch: Watch = lambda _: None
) -> Replayed:
    """
    Plan, carry the plan out, let time pass, and again; the last plan is known to the next one.

    Raises
    ------
    PlannerError
        An epoch could not be planned; says which.
    """
    world = opening(trace)
    account = Account(trace, world)
    end = None if clock.seconds is None else world.now + timedelta(seconds=clock.seconds)
    epochs: list[EpochFigures] = []
    plan: Plan | None = None
    elapsed = elapse(world, world.now)
    busy = _Mark(world, account.flow, epochs=0)
    while True:
        world = elapsed.world
        account.hear(elapsed)
        if end is None and epochs and (stopped := _over(world, busy)) is not None:
            break
        began = time.monotonic()
        snapshot = world.snapshot()
        acted: tuple[Happening, ...] = ()
        # Where nothing has changed since the last plan, planning would change nothing either.
        settled = plan is not None and is_settled(snapshot, policy, plan)
        if plan is None or not settled:
            plan = _planned(snapshot, policy, seed=seed, last=plan, number=len(epochs))
            world, acted = carry_out(world, plan)
            account.hear(Elapsed(world, acted))
        happened = (*elapsed.happened, *acted)
        figures = _figures(world, plan, happened, number=len(epochs), settled=settled)
        epochs.append(figures.model_copy(update={"seconds": round(time.monotonic() - began, 3)}))
        going_on = happened or world.coming or _works(world) or (plan.has_changes and not settled)
        if going_on or len(epochs) == 1:
            busy = _Mark(world, account.flow, len(epochs))
        watch(Progress(len(epochs), world.now, _part(world, end, account), figures.waiting))
        if world.now == end:
            stopped = "time"
            break
        step = world.now + timedelta(seconds=clock.every)
        elapsed = elapse(world, step if end is None else min(step, end))
    if stopped == "stuck":
        world, account.flow = busy.world, busy.flow
        del epochs[busy.epochs :]
    return Replayed(account.scorecard(world, epochs), tuple(epochs), stopped)


@dataclass(frozen=True, slots=True)
class _Mark:
    """How far a replay had come when something was last going on."""

    world: World
    flow: Flow
    epochs: int


def _planned(snapshot: Snapshot, policy: Policy, *, seed: int, last: Plan | None, number: int) -> Plan:
    try:
        return plan_epoch(snapshot, policy, seed=seed, created_at=snapshot.taken_at, last=last)
    except PlannerError as error:
        when = f"epoch {number} at {print_timestamp(snapshot.taken_at)}"
        raise PlannerError(f"{when} could not be planned: {error}") from error


def _over(world: World, busy: _Mark) -> Stopped | None:
    """Why nothing more is planned; None if more is."""
    if not world.coming and all(task.job.held for task in world.tasks.values()):
        return "finished"
    return "stuck" if world.now - busy.world.now >= QUIET and not world.outages else None


def _works(world: World) -> bool:
    return any(task.stretch is not None for task in world.tasks.values())


def _part(world: World, end: datetime | None, account: Account) -> float:
    if end is not None:
        return (world.now - world.began) / (end - world.began) if end > world.began else 1.0
    every = len(account.lives) + len(world.coming)
    left = len(world.coming) + sum(name in account.lives for name in world.tasks)
    return 1 - left / every if every else 1.0


def _figures(
    world: World, plan: Plan, happened: Iterable[Happening], *, number: int, settled: bool
) -> EpochFigures:
    count = Counter(each.kind for each in happened)
    running = sum(task.stretch is not None for task in world.tasks.values())
    held = sum(task.stretch is None and task.job.held for task in world.tasks.values())
    return EpochFigures(
        number=number,
        at=world.now,
        submitted=count[Kind.SUBMITTED],
        finished=count[Kind.FINISHED],
        killed=count[Kind.KILLED],
        interrupted=count[Kind.INTERRUPTED],
        started=count[Kind.STARTED],
        preempted=count[Kind.PREEMPTED],
        migrated=count[Kind.MOVED],
        resized=count[Kind.RESIZED],
        running=running,
        waiting=len(world.tasks) - running - held,
        gpu_allocation_ratio=plan.metrics.gpu_allocation_ratio,
        fragmentation_ratio=plan.metrics.fragmentation_ratio,
        jain_index=plan.metrics.jain_index,
        hourly_cost=plan.metrics.hourly_cost,
        objective=plan.solution.objective,
        bound=plan.solution.bound,
        solver=SETTLED if settled else plan.solution.solver,
    )
