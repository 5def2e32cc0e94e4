"""No thrash: under small noise of demand a running job keeps its size, and a pool its nodes."""

from __future__ import annotations

import random
from datetime import timedelta

import pytest

from gpuplan.models.cluster import NodePool
from gpuplan.models.plan.actions import Grow, ScaleDown, ScaleUp, Shrink, changes_of
from gpuplan.models.policy.policy import Disruption, Policy, PoolPolicy
from gpuplan.planner.epoch import plan_epoch
from gpuplan.planner.executors.simulated import SimulatedCluster
from tests.support.builders.build import job, node, replica, snapshot
from tests.support.seeds import EVERY_SEED

EPOCHS = 20
EVERY = 180
"""Seconds from one epoch to the next: twenty of them are within an hour."""

STEADY = 19
"""Jobs of one GPU that run all the time; one more comes on average, or none, or two: 20 GPUs and 5 %."""

SEEDS = range(12 if EVERY_SEED else 2)


def steady(nodes):
    """The jobs that run all the time, on the GPUs of the first nodes."""
    places = [(each.name, index) for each in nodes for index in range(each.gpu_count)]
    return [
        job(f"steady-{number}", gpus=1, priority=9, at=[replica(name, gpus=[index])])
        for number, (name, index) in enumerate(places[:STEADY])
    ], places[STEADY:]


def noise(draw, epoch):
    """None, one or two jobs of one GPU, which are over by the next epoch."""
    about = {"gpus": 1, "priority": 9, "weight": 60, "expected_duration": EVERY}
    waited = timedelta(seconds=-epoch * EVERY)
    return [
        job(f"noise-{epoch}-{number}", waited=waited, **about) for number in range(draw.choice((0, 1, 2)))
    ]


def changes(live, policy, seed, kinds):
    """Changes of some kinds that twenty epochs make, each with its epoch."""
    draw, last, found = random.Random(seed), None, []
    for epoch in range(EPOCHS):
        live.submit(noise(draw, epoch))
        last = plan_epoch(live.snapshot(), policy, seed=0, created_at=live.snapshot().taken_at, last=last)
        for change in changes_of(last.actions):
            live.begin(change, f"{epoch}:{change.id}")
            found += [(epoch, change.type)] if isinstance(change, kinds) else []
        live.advance(EVERY)
    return found


def elastic_world():
    """28 GPUs: an elastic job has those that the demand of 20 leaves."""
    nodes = [node(f"n{number}", gpus=7) for number in range(4)]
    running, free = steady(nodes)
    places = [replica(name, gpus=[index]) for name, index in free[-8:]]
    elastic = job("elastic", gpus=1, replicas=(1, 9), at=places, weight=30, **AT_ONCE)
    return snapshot(nodes=nodes, jobs=[*running, elastic])


AT_ONCE = {"checkpoint_duration": 0, "restart_duration": 0}
"""A job that loses nothing but work when it is resized."""


def pool_world():
    """20 GPUs, and a pool for what the demand is more than that."""
    nodes = [node(f"n{number}", gpus=5) for number in range(4)]
    cloud = NodePool(name="cloud", template=node("cloud", gpus=4, price_per_hour=1.0), max=2)
    return snapshot(nodes=nodes, jobs=steady(nodes)[0], pools=(cloud,))


WORLDS = {"elastic": (elastic_world, (Shrink, Grow)), "pool": (pool_world, (ScaleUp, ScaleDown))}

NO_DWELL = Policy(
    solvers=(),
    disruption=Disruption(resize_dwell=0),
    pools=PoolPolicy(scale_down_delay_after_add=0, scale_up_delay_after_remove=0),
)


def twenty_epochs(path, kind, policy, seed):
    world, kinds = WORLDS[kind]
    with SimulatedCluster.create(path / "c.db", world()) as live:
        return changes(live, policy, seed, kinds)


@pytest.mark.slow
@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("kind", WORLDS)
def test_noise_of_five_percent_changes_a_size_at_most_once_in_twenty_epochs(tmp_path, kind, seed):
    assert len(twenty_epochs(tmp_path, kind, Policy(solvers=()), seed)) <= 1


@pytest.mark.slow
@pytest.mark.parametrize("seed", SEEDS[:1])
@pytest.mark.parametrize("kind", WORLDS)
def test_without_a_dwell_the_same_noise_changes_sizes_all_the_time(tmp_path, kind, seed):
    assert len(twenty_epochs(tmp_path, kind, NO_DWELL, seed)) > 5
