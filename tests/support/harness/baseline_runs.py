"""Simulations under baselines, and what a test sees of each epoch."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import timedelta
from typing import TYPE_CHECKING

from gpuplan.models.policy.policy import Disruption
from gpuplan.planner.simulate.decide import BaselineDecider
from gpuplan.planner.simulate.replay import replay
from gpuplan.planner.simulate.run_options import EpochClock
from gpuplan.planner.simulate.simulated_job import JobEventKind
from gpuplan.planner.simulate.trace import FutureSubmission, Physics, Trace
from gpuplan.planner.simulate.world import advance_world, initial_world
from tests.support.builders.build import NOW, by_value, job, node, snapshot

if TYPE_CHECKING:
    from gpuplan.planner.simulate.simulated_job import JobEvent
    from gpuplan.planner.simulate.world import SimulatedWorld

MINUTE = 60
EVENTS = EpochClock(24 * 3600, at_events=True)
FREE = Physics(checkpoint_every=1, checkpoint=0, restart=0)
"""Stopping costs nothing."""


@dataclass(frozen=True)
class Ruled:
    """One epoch: the world before and after it, and what became of jobs by it."""

    before: SimulatedWorld
    after: SimulatedWorld
    happened: tuple[JobEvent, ...]


def comes(name, minute, minutes, **about):
    """A job on 8 GPUs that comes at a minute and takes so many."""
    asked = job(name, **{"gpus": 8, "expected_duration": minutes * MINUTE} | about)
    at = NOW + timedelta(minutes=minute)
    return FutureSubmission(asked.model_copy(update={"submitted_at": at}), minutes * MINUTE)


def trace(*coming, jobs=(), nodes=1, **about):
    """Jobs that come to so many nodes of 8 GPUs."""
    given = nodes if isinstance(nodes, list) else [node(f"n{index}") for index in range(nodes)]
    ordered = tuple(sorted(coming, key=lambda each: (each.job.submitted_at, each.job.name)))
    return Trace(snapshot(nodes=given, jobs=jobs), ordered, **about)


def expecting(physics):
    """A policy that expects stops to cost what they do."""
    return by_value(disruption=Disruption(checkpoint=physics.checkpoint, restart=physics.restart))


def scores(baseline, given, clock=EVENTS):
    return replay(given, expecting(given.physics), clock, seed=0, baseline=baseline).scores


def epochs(baseline, given, clock=EVENTS, policy=None, *, most=500):
    """Each epoch until all is over, or as many as that."""
    ruling = BaselineDecider(baseline, policy or expecting(given.physics))
    world = advance_world(initial_world(given), given.start.taken_at).world
    for number in range(most):
        decided = ruling.decide(world, number)
        yield Ruled(world, decided.world, decided.happened)
        if not decided.world.tasks and not decided.world.coming:
            return
        world = advance_world(decided.world, clock.next_epoch(decided.world)).world


def starts(baseline, given, clock=EVENTS):
    """In which minutes each job started, or went on."""
    found: dict[str, list[float]] = {}
    for each in epochs(baseline, given, clock):
        for one in each.happened:
            if one.kind is JobEventKind.STARTED:
                found.setdefault(one.job, []).append((one.at - NOW).total_seconds() / MINUTE)
    return found
