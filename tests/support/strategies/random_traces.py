"""Random traces on random worlds, and what a test sees of each epoch while they are replayed."""

from __future__ import annotations

import random
from dataclasses import dataclass
from datetime import timedelta
from typing import TYPE_CHECKING

from gpuplan.planner.epoch import plan_epoch
from gpuplan.planner.simulate.decide import apply_plan_to_world
from gpuplan.planner.simulate.trace import FutureSubmission, Physics, Trace
from gpuplan.planner.simulate.world import Elapsed, SimulatedWorld, advance_world, initial_world
from gpuplan.planner.sources.traces.arrivals import NodeEvent, Outage
from tests.support.strategies import instances, job_strategies
from tests.support.strategies.instance_sizes import Kit

if TYPE_CHECKING:
    from gpuplan.models.plan.plan import Plan
    from gpuplan.planner.simulate.simulated_job import JobEvent

LENGTHS = (240, 600, 1800, 3600, 5400, 9000)
EVERY = 900
KINDS = tuple(sorted(set(instances.FEATURES) - {"drain"}))
"""What is to be drained never comes back."""


@dataclass(frozen=True)
class Step:
    """One epoch: the world as it was planned, what was done, and what then went by."""

    before: SimulatedWorld
    plan: Plan
    after: SimulatedWorld
    acted: tuple[JobEvent, ...]
    elapsed: Elapsed


def random_trace(seed, *, jobs=25, hours=5, outages=True, physics=None):
    """A trace and a policy: greedy, with part of all that there is."""
    draw = random.Random(f"trace {seed}")
    fair = draw.random() < 0.5
    given = (instances.everything if fair else instances.everything_mixed)(seed, features=KINDS)
    sizes = (1, 1, 2, 4) if fair else (1, 1, 2, 3)
    kit = Kit(gpus=sizes, shares=(250, 500, 500), fair=fair)
    start = given.snapshot.model_copy(
        update={"jobs": tuple(_timed(draw, job) for job in given.snapshot.jobs)}
    ).canonical()
    seconds = sorted(draw.randrange(3600 * hours) for _ in range(jobs))
    coming = tuple(_coming(draw, number, second, start, given, kit) for number, second in enumerate(seconds))
    found = tuple(_outages(draw, [node.name for node in start.cluster.nodes], hours)) if outages else ()
    chosen = physics or Physics(checkpoint_every=draw.choice((0, 600, 1800)), restart=draw.choice((0, 120)))
    return Trace(start, coming, found, chosen), given.policy.model_copy(update={"solvers": ()})


def steps(trace, policy, *, epochs, every=EVERY):
    """Replay with the planner that production uses, one epoch after the other."""
    elapsed = advance_world(initial_world(trace), trace.start.taken_at)
    last = None
    for _ in range(epochs):
        before = elapsed.world
        plan = plan_epoch(before.snapshot(), policy, seed=0, created_at=before.now, last=last)
        after, acted = apply_plan_to_world(before, plan)
        elapsed = advance_world(after, before.now + timedelta(seconds=every))
        last = plan
        yield Step(before, plan, after, acted, elapsed)


def held_by_gpu(world):
    """Thousandths held of each GPU, by node and index, of all that run."""
    held = {}
    for task in world.tasks.values():
        for replica in task.job.running.replicas if task.job.running else ():
            for index, milli in replica.milli_by_gpu.items():
                held[replica.node, index] = held.get((replica.node, index), 0) + milli
    return held


def _timed(draw, job):
    return job.model_copy(update={"expected_duration": draw.choice(LENGTHS)})


def _coming(draw, number, second, start, given, kit):
    job = job_strategies.job(draw, f"x{number:03d}", given.features, kit)
    duration = draw.choice(LENGTHS)
    told = draw.choice((duration, duration, duration // 2, duration * 2, None))
    at = start.taken_at + timedelta(seconds=second)
    return FutureSubmission(job.model_copy(update={"submitted_at": at, "expected_duration": told}), duration)


def _outages(draw, nodes, hours):
    moments = sorted(draw.randrange(3600 * hours) for _ in range(4))
    for fails, returns in (moments[:2], moments[2:]):
        node = draw.choice(nodes)
        yield Outage(fails, node, NodeEvent.FAILS)
        yield Outage(returns, node, NodeEvent.RETURNS)
