"""Two groups of jobs that start together, beside jobs that start alone, and the plan that starts them all."""

from __future__ import annotations

from gpuplan.models.policy.settings import ApplyPolicy
from gpuplan.planner.plan_file.plan_file import with_id
from tests.support.builders.build import cluster, job, replica, snapshot
from tests.support.samples.all_actions import begin, plan_with, preempt

GROUPS = {"g": ("g-a", "g-b", "g-c"), "h": ("h-a", "h-b")}
HELD = {
    "g-a": replica("n0", gpus=[0, 1]),
    "g-b": replica("n1", gpus=[0, 1]),
    "g-c": replica("n2", gpus=[0, 1]),
    "h-a": replica("n0", gpus=[2, 3]),
    "h-b": replica("n1", gpus=[2, 3]),
    "alone": replica("n2", gpus=[2, 3]),
}
WORLD = snapshot(
    nodes=cluster(3),
    jobs=[
        *(job(name, gpus=2, priority=5, co_start=name[0] if name != "alone" else None) for name in HELD),
        job("thief", gpus=2),
        job("old", gpus=2, at=[HELD["g-c"]]),
    ],
)


def group_plan(world=WORLD, **apply):
    """A plan that stops a job and starts all that wait, with these settings of `apply`."""
    stops = preempt(world, "old")
    starts = [
        begin(world, name, held, once=(stops.id,) if name == "g-c" else ()) for name, held in HELD.items()
    ]
    plan = plan_with(world, stops, *starts, placements=[action.after for action in starts])
    rules = ApplyPolicy(**apply)
    return with_id(plan.model_copy(update={"policy": plan.policy.model_copy(update={"apply": rules})}))


def running(live):
    """The jobs that run on a cluster."""
    return {placed.job for placed in live.snapshot().running_placements}


def part_started(live):
    """The groups of which some jobs run and others do not, with those that do."""
    there = running(live)
    return {name: there & {*jobs} for name, jobs in GROUPS.items() if 0 < len(there & {*jobs}) < len(jobs)}
