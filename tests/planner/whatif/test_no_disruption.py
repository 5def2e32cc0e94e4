"""Running jobs go on as before, however much more the jobs in question are worth."""

from __future__ import annotations

import pytest

from gpuplan.models.policy.policy import BudgetMode, BudgetPolicy, Disruption, Policy
from gpuplan.planner.epoch import plan_epoch
from gpuplan.planner.whatif.no_disruption import without_disruption
from tests.support.builders.build import job, node, queue, replica, snapshot
from tests.support.strategies import instances

ANYTHING = Policy(
    budget=BudgetPolicy(mode=BudgetMode.DETERMINISTIC),
    disruption=Disruption(preempt=True, resize=True, migrate=True, priority_gap=0),
)
ASKED = job("asked", gpus=4, queue="owning")
WHOLE_NODE = [replica("n0", gpus=range(4))]


def disturbed(world, asked):
    """Jobs that run on otherwise than before."""
    alone, rules = without_disruption(world, ANYTHING, asked, points=10**6, currency=100)
    plan = plan_epoch(alone, rules, seed=0, created_at=world.taken_at)
    after = {placement.job: placement.replicas for placement in plan.placements}
    return [
        each.name for each in world.jobs if each.running and after.get(each.name) != each.running.replicas
    ]


@pytest.mark.parametrize(
    "running",
    [
        job("small", gpus=4, queue="owning", weight=0, at=WHOLE_NODE),
        job("borrower", gpus=4, queue="lent", at=WHOLE_NODE),
        job("shrinks", gpus=1, queue="lent", replicas=(1, 4), at=[replica("n0", gpus=[n]) for n in range(4)]),
        job("grows", gpus=1, queue="lent", replicas=(1, 4), at=[replica("n0", gpus=[0])]),
        job("drained", gpus=4, queue="lent", at=[replica("old", gpus=range(4))]),
    ],
    ids=lambda each: each.name,
)
def test_no_job_is_disturbed(running):
    queues = [
        queue("all", nominal=0),
        queue("lent", parent="all", guarantee=0, nominal=0),
        queue("owning", parent="all", guarantee=4, nominal=4),
    ]
    nodes = [node("n0", gpus=4), node("old", gpus=4, drain=True)]

    assert disturbed(snapshot(nodes=nodes, queues=queues, jobs=[running, ASKED]), [ASKED]) == []


@pytest.mark.parametrize("seed", range(12))
def test_no_job_is_disturbed_in_any_world(seed):
    world = instances.everything(seed).snapshot
    waiting = [each for each in world.jobs if each.running is None]

    assert disturbed(world, waiting) == []
