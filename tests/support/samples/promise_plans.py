"""A small world, and a plan of it made by hand that starts one job and promises two others a start."""

from __future__ import annotations

from datetime import timedelta

from gpuplan.models.placement import Promise
from gpuplan.models.plan.actions import Start
from gpuplan.models.plan.plan import PlannedStart
from gpuplan.models.policy.settings import HorizonPolicy
from gpuplan.planner.plan_file.plan_file import with_id
from tests.support.builders.build import NOW, by_value, job, placement, replica, snapshot
from tests.support.builders.plan_builders import plan_of

HOUR = timedelta(hours=1)
AHEAD = by_value(horizon=HorizonPolicy(slots=4, length=3600))
"""A policy that looks four hours ahead."""


def promise(hours, *replicas):
    return Promise(start=NOW + hours * HOUR, replicas=replicas)


def promising(world, *placements, promised=None, foreseen=None, policy=AHEAD, kill_at=None):
    """A plan that starts the placed jobs and plans others for later: {job: promise}."""
    made = plan_of(world, *placements, policy=policy)
    planned = tuple(
        PlannedStart(
            job=name,
            slot=int((each.start - world.taken_at) / HOUR),
            start=each.start,
            replicas=each.replicas,
            promised=name in (promised or {}),
        )
        for name, each in sorted({**(promised or {}), **(foreseen or {})}.items())
    )
    actions = tuple(
        action.model_copy(update={"kill_at": kill_at}) if isinstance(action, Start) else action
        for action in made.actions
    )
    return with_id(made.model_copy(update={"planned": planned, "actions": actions}))


def promises_in(live):
    """What the waiting jobs of a cluster are promised, by job."""
    return {each.name: each.promise for each in live.snapshot().jobs if each.promise}


B_LATER, C_LATER = promise(1, replica("n0", gpus=range(8))), promise(2, replica("n1", gpus=range(8)))
LOST = promise(1, replica("lost", gpus=range(8)))
"""Places on a node that is gone."""

WORLD = snapshot(
    jobs=[
        job("a", gpus=4, expected_duration="30m"),
        job("b", gpus=8, expected_duration="1h"),
        job("c", gpus=8, expected_duration="1h"),
        job("d", gpus=8, expected_duration="1h", promise=LOST),
        job("held", gpus=8, held=True),
        job("runs", gpus=8, expected_duration="2h", at=[replica("n1", gpus=range(8))]),
    ]
)
A_NOW = placement("a", replica("n0", gpus=[0, 1, 2, 3]))
PLAN = promising(
    WORLD,
    A_NOW,
    promised={"b": B_LATER, "c": C_LATER},
    foreseen={"d": promise(3, replica("n0", gpus=range(8)))},
)
"""Starts a now, promises b and c a start, and only foresees one of d."""

PROMISES_ONLY = promising(WORLD, promised={"b": B_LATER, "c": C_LATER})
"""Changes nothing now."""
