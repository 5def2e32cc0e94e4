"""Reasons of jobs that wait while others run or start."""

from __future__ import annotations

from gpuplan.models.plan.reason import ReasonCode
from gpuplan.models.policy.policy import Disruption, MigPolicy, PoolPolicy
from gpuplan.planner.waiting.diagnose import waiting_reasons
from tests.support.builders.build import (
    by_value,
    job,
    node,
    replica,
    snapshot,
)
from tests.support.builders.solution_builders import target
from tests.support.output.golden import figures

OF_ROOM = (
    ReasonCode.RESOURCES,
    ReasonCode.FRAGMENTED,
    ReasonCode.LAYOUT_BLOCKED,
    ReasonCode.DOMAIN,
    ReasonCode.NOT_CHOSEN,
)
MAY_DO_NOTHING = by_value(mig=MigPolicy(repartition=False), pools=PoolPolicy(scale_up=False))
RACKS = [node(f"r{rack}n{index}", rack=f"r{rack}") for rack in (1, 2) for index in (1, 2)]
"""Two nodes in each of two racks."""
SMALL = {"nodes": [node(gpus=1, mig={0: [("1g.10gb", 1), ("1g.10gb", 5), ("1g.10gb", 6)]})]}
"""One GPU in MIG mode, with three of its slices cut."""
SERVERS = [
    job("s1", mig={"1g.10gb": 1}, at=[replica(mig=[(0, "1g.10gb", 1)])]),
    job("s2", mig={"1g.10gb": 1}, at=[replica(mig=[(0, "1g.10gb", 5)])]),
]
"""Jobs that hold two of them."""


def reason_of(waiting, *others, started=(), policy=MAY_DO_NOTHING, target_of=target, proven=False, **world):
    """One job's reason while others run or start."""
    world = snapshot(jobs=[waiting, *others], **world)
    goal = target_of(world, *started)
    return waiting_reasons(world, policy, goal, proven=proven)[waiting.name]


def why(waiting, *others, **more):
    """Code and numbers of that reason."""
    reason = reason_of(waiting, *others, **more)
    return reason.code, reason.numbers


def told(waiting, *others, **more):
    """Code and figures of that reason, where the sentence has more of them than the numbers."""
    reason = reason_of(waiting, *others, **more)
    return reason.code, figures(reason.text)


def budgets(*given):
    """A policy with these disruption budgets."""
    return MAY_DO_NOTHING.model_copy(update={"disruption": Disruption(budgets=given)})


def remarks(reason):
    """What the policy forbids, after what is needed and what is there."""
    return "".join(reason.text.split("; ", 2)[2:])


def running(name="r", *replicas, **more):
    return job(name, at=replicas, gpus=len(replicas[0].gpus), **more)
