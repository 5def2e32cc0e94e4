"""What disturbing a running job and keeping a node cost."""

from __future__ import annotations

from datetime import timedelta

import pytest

from gpuplan.models.placement import Running
from gpuplan.models.policy.policy import Policy
from gpuplan.models.value.disruption_cost import currency_points, disruption_points, lost_seconds, node_points
from tests.support.builders.build import NOW, job, node, pool, replica

POLICY = Policy()


def runs(*, gpus=2, milli=1000, saved=None, **more):
    """A job that started an hour ago and saved its state some time ago."""
    at = [replica(gpus=range(gpus), milli=milli)]
    made = job(gpus=gpus, at=at, **more)
    checkpoint = None if saved is None else NOW - saved
    running = Running(started_at=NOW - timedelta(hours=1), last_checkpoint_at=checkpoint, replicas=tuple(at))
    return made.model_copy(update={"running": running})


@pytest.mark.parametrize(
    ("fields", "seconds"),
    [
        ({}, 60 + 300 + 3600),
        ({"saved": timedelta(minutes=10)}, 60 + 300 + 600),
        ({"saved": timedelta(0), "checkpoint_duration": 0, "restart_duration": 5}, 5),
        ({"saved": timedelta(0), "checkpoint_duration": "2m"}, 120 + 300),
    ],
)
def test_a_stopped_job_loses_checkpoint_restart_and_work_since_it_saved(fields, seconds):
    assert lost_seconds(POLICY, runs(**fields), NOW) == seconds


def test_the_policys_durations_hold_where_the_job_says_nothing():
    policy = Policy(disruption={"checkpoint": "1s", "restart": "2s"})

    assert lost_seconds(policy, runs(saved=timedelta(0)), NOW) == 3


def test_what_does_not_run_loses_nothing():
    assert (lost_seconds(POLICY, job(gpus=8), NOW), disruption_points(POLICY, job(gpus=8), NOW)) == (0, 0)


def test_a_job_that_has_yet_to_start_loses_no_work():
    soon = runs().model_copy(
        update={"running": Running(started_at=NOW + timedelta(hours=1), replicas=(replica(gpus=(0,)),))}
    )

    assert lost_seconds(POLICY, soon, NOW) == 360


def test_disruption_costs_the_gpu_hours_that_are_lost():
    # 66 minutes of 2 GPUs at 100 points a GPU-hour.
    assert disruption_points(POLICY, runs(), NOW) == 220
    assert disruption_points(Policy(prices={"disruption": 7}), runs(), NOW) == 15
    # Without GPUs, the smallest size counts.
    assert disruption_points(POLICY, runs(gpus=0), NOW) == 11


@pytest.mark.parametrize(
    ("policy", "fields", "points"),
    [
        ({}, {}, 0),
        ({}, {"template": node("s", price_per_hour=2.555)}, 256),
        ({"pools": {"horizon": "30m"}}, {"template": node("s", price_per_hour=2)}, 100),
        # An interruption in two hours, 8 GPUs, 5 minutes of restart at 100 points a GPU-hour.
        ({}, {"template": node("s", spot=True), "interruptions_per_hour": 0.5}, 33),
        ({}, {"template": node("s"), "interruptions_per_hour": 0.5}, 0),
        ({"prices": {"currency": 3}}, {"template": node("s", price_per_hour=2)}, 6),
    ],
)
def test_a_node_costs_its_price_and_what_interruptions_lose(policy, fields, points):
    assert node_points(Policy(**policy), pool(**fields)) == points


def test_currency_is_rounded_to_the_nearest_point():
    assert [currency_points(POLICY, amount) for amount in (0, 0.004, 0.005, 1.239)] == [0, 0, 1, 124]
