"""A small world, a plan that starts three jobs in it, and how tests apply it and look at what came of it."""

from __future__ import annotations

from gpuplan.models.policy.settings import ApplyPolicy
from gpuplan.planner.apply.apply import apply_plan
from gpuplan.planner.apply.outcome import NO_HOOKS, ApplyHooks
from gpuplan.planner.executors.interface import ActionPhase
from gpuplan.planner.executors.simulated import SimulatedCluster
from gpuplan.planner.plan_file.plan_file import with_id
from tests.support.builders.build import NOW, job, placement, replica, snapshot
from tests.support.builders.plan_builders import plan_of, start
from tests.support.doubles.interrupted_apply import preempting

WORLD = snapshot(
    jobs=[
        job("a", gpus=2),
        job("b", gpus=2),
        job("c", gpus=2, replicas=2),
        job("big", gpus=8, replicas=9),
        job("runs", gpus=2, at=[replica("n0", gpus=[6, 7])]),
        job("thief", gpus=2),
    ]
)
A = placement("a", replica("n0", gpus=[0, 1]))
B = placement("b", replica("n1", gpus=[0, 1]))
C = placement("c", replica("n0", gpus=[2, 3]), replica("n1", gpus=[2, 3]))
PLAN = plan_of(WORLD, A, B, C)
GRACE = 60.0
"""Seconds that a preempted job takes to save its state."""


def carry_out(live, log, *, plan=PLAN, on_progress=None, stop=lambda: False, clock=NO_HOOKS.clock, **more):
    hooks = ApplyHooks(on_progress, stop, clock)
    return apply_plan(plan, live, log, actor="ann@login1", now=lambda: NOW, hooks=hooks, **more)


def perform(live, *changes):
    """Begin changes one after the other, without a plan."""
    for change in changes:
        live.begin(change, f"p:{change.id}")


def running(live):
    return {placed.job for placed in live.snapshot().running_placements}


def landed(live, keys):
    """Those of the keys under which an action or the promises have landed."""
    return {key for key, progress in live.observe(keys).items() if progress.phase is ActionPhase.LANDED}


def recorded(log):
    """Kind and action of every record."""
    return [(record.kind.value, record.action) for record in log.records()]


def steal(live, gpus_of):
    """Start a job from outside where the plan is to start one."""
    with SimulatedCluster(live.path) as theirs:
        theirs.begin(start("x", placement("thief", *gpus_of.replicas)), "theirs:x")


def stop_after(count):
    """A stop that lets so many actions be done."""
    asked = iter(range(100))
    return lambda: next(asked) >= count


def under(plan, **rules):
    """The plan under other rules for its apply."""
    policy = plan.policy.model_copy(update={"apply": ApplyPolicy(**rules)})
    return with_id(plan.model_copy(update={"policy": policy}))


def grace(action):
    return GRACE if action.type == "preempt" else 5.0


def swaps(count):
    """A plan of so many preemptions, each with a start in its place that must come after it."""
    plan = preempting(count, count)
    stops, starts = plan.actions[:count], plan.actions[count:]
    starts = tuple(
        start.model_copy(update={"after_actions": (stop.id,)})
        for stop, start in zip(stops, starts, strict=True)
    )
    return with_id(plan.model_copy(update={"actions": (*stops, *starts)}))
