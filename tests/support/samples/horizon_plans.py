"""A small plan that looks twelve hours ahead: promises, backfill, dependencies, deadlines."""

from __future__ import annotations

from datetime import timedelta

from gpuplan.models.dependency import Dependency
from gpuplan.models.placement import Promise, Running
from gpuplan.models.plan.plan import Base
from gpuplan.models.plan.solution import LaterStart, SolveStatus
from gpuplan.models.policy.policy import Policy
from gpuplan.models.policy.settings import Backfill, HorizonPolicy
from tests.support.builders.build import NOW, job, node, placement, queue, replica, snapshot
from tests.support.builders.solution_builders import drafted

HOUR = 3600


def at(hours):
    """An instant so many hours after now."""
    return NOW + timedelta(hours=hours)


def looking_ahead(slots=12, *, earliness=0.1, **backfill):
    """A policy with slots of one hour; now is the beginning of one."""
    horizon = HorizonPolicy(slots=slots, length=HOUR, earliness=earliness, backfill=Backfill(**backfill))
    return Policy(horizon=horizon)


def running(name, *replicas, hours, **more):
    """A running job that goes on for so many hours; it was started an hour ago."""
    more = {"gpus": len(replicas[0].gpus), "expected_duration": (1 + hours) * HOUR} | more
    start = Running(started_at=NOW - timedelta(hours=1), replicas=replicas)
    return job(name, **more).model_copy(update={"running": start})


def waiting(name, *, hours=1, **more):
    """A waiting job that takes so many hours."""
    return job(name, expected_duration=hours * HOUR, **more)


def promise(hours, *replicas):
    """What an earlier plan promised."""
    return Promise(start=at(hours), replicas=replicas)


def whole(*nodes):
    """One replica on all eight GPUs of each node."""
    return tuple(replica(name, gpus=range(8)) for name in nodes)


NODES = [node(f"h100-{index}", rack="r1") for index in range(1, 5)]
JOBS = [
    running("train-a", *whole("h100-1"), hours=2, queue="research"),
    running("train-b", *whole("h100-2"), hours=2, queue="research"),
    running("prep-1", replica("h100-3", gpus=range(4)), hours=1, queue="batch"),
    waiting("train-moe", gpus=8, replicas=2, hours=6, queue="research", deadline=at(9)),
    waiting("eval", gpus=4, queue="batch", depends_on=(Dependency(job="prep-1"),), deadline=at(2)),
    waiting("sweep", gpus=8, hours=2, queue="batch"),
    waiting("notebook", gpus=1, hours=1, queue="batch", not_before=at(3)),
    waiting(
        "render",
        gpus=8,
        hours=3,
        queue="batch",
        promise=promise(1, *whole("h100-1")),
        deadline=at(4),
    ),
    waiting(
        "late",
        gpus=8,
        hours=3,
        queue="batch",
        deadline=at(2),
        hard_deadline=True,
        promise=promise(2, *whole("h100-2")),
    ),
]
WORLD = snapshot(nodes=NODES, queues=[queue("research"), queue("batch")], jobs=JOBS)
STARTS = (placement("sweep", *whole("h100-4")),)
LATER = (
    LaterStart("train-moe", 2, whole("h100-1", "h100-4")),
    LaterStart("eval", 1, (replica("h100-3", gpus=range(4)),)),
    LaterStart("render", 2, whole("h100-2")),
    LaterStart("notebook", 3, (replica("h100-3", gpus=(0,)),), promised=False),
)


def timely_plan(world=WORLD, started=STARTS, *, planned=LATER, policy=None, **more):
    """A plan with ids that are always the same."""
    defaults = {
        "status": SolveStatus.FEASIBLE,
        "objective": 45_900,
        "bound": 46_330,
        "greedy_objective": 43_790,
        "seconds": 6.04,
    }
    base = Base(snapshot="9f3a" * 16, policy="1d20" * 16)
    policy = policy or looking_ahead(kill=True)
    plan = drafted(world, *started, policy=policy, planned=planned, **defaults | more)
    return plan.model_copy(update={"plan_id": "7c1e55aa01234567", "base": base})
