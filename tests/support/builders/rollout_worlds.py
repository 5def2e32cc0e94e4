"""Worlds of waiting jobs of which some may rather start later, and what a plan makes of them."""

from __future__ import annotations

from datetime import timedelta

from gpuplan.models.policy.policy import Policy
from gpuplan.models.policy.settings import Objective
from gpuplan.models.timing.durations import Durations
from gpuplan.models.value.queue_rollout import later_starts
from gpuplan.planner.epoch import plan_epoch
from tests.support.builders import build
from tests.support.builders.time_builders import runs

FAST, SLOW = "H100-80GB", "T4"
SPEEDS = {FAST: 4000, SLOW: 1000}
HOUR = 3600
POLICY = Policy(solvers=())
AT_ONCE = Policy(solvers=(), objective=Objective(rollouts=0))


def waits(name, gpus=1, *, hours=1.0, **more):
    return build.job(name, gpus=gpus, expected_duration=round(hours * HOUR), **more)


def holds(name, node, gpus, *, hours, **more):
    """A job that runs for so long from now on."""
    return runs(name, build.replica(node, gpus=gpus), hours=hours, **{"preemptible": False, **more})


def world(*jobs, nodes=1, gpus=8, **about):
    cluster = [build.node(f"n{k}", gpus=gpus, model=FAST) for k in range(nodes)]
    return build.snapshot(nodes=cluster, jobs=jobs, **about)


def mixed(*jobs, gpus=1):
    nodes = [build.node("fast", gpus=gpus, model=FAST), build.node("slow", gpus=gpus, model=SLOW)]
    return build.snapshot(
        nodes=nodes, jobs=[job.model_copy(update={"gpu_models": job.gpu_models or SPEEDS}) for job in jobs]
    )


def found(snapshot, policy=POLICY):
    return later_starts(snapshot, policy, Durations(snapshot, policy))


def planned(snapshot, policy=POLICY):
    return plan_epoch(snapshot, policy, seed=0, created_at=build.NOW)


def started(snapshot, policy=POLICY):
    running = {job.name for job in snapshot.jobs if job.running}
    return {each.job for each in planned(snapshot, policy).placements} - running


SMALL = tuple(f"small-{k}" for k in range(2))
GANG = (
    holds("r", "n0", range(4), hours=0.5),
    waits("gang", 8, hours=1, waited=timedelta(hours=12)),
    *(waits(name, hours=3) for name in SMALL),
)
"""Four GPUs are free, and four more are soon: for a gang that two small jobs would delay by hours."""
