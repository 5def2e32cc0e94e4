"""The price list: every number here is worked out by hand from the formulas in models.policy."""

from datetime import timedelta

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gpuplan.models.job import Progress, ResourceRequest
from gpuplan.models.policy.policy import Ageing, Policy, SizeBasis, Weights
from gpuplan.models.units import MILLI
from gpuplan.models.value.job_value import job_points
from tests.oracle.completion import completion_points
from tests.support.builders.build import NOW, job
from tests.support.seeds import examples
from tests.support.strategies.snapshot_strategies import policies

HOUR = timedelta(hours=1)


def policy(**weights):
    return Policy(weights=Weights(**weights))


def points(job, policy=None):
    return job_points(policy or Policy(), job, NOW)


def sized(basis, **more):
    return policy(basis=basis, **more)


# --- w_j ---------------------------------------------------------------------------------------------------


def test_one_gpu_of_weight_one_is_worth_a_hundred_points():
    assert points(job(gpus=1)) == 100


def test_points_grow_with_gpus_replicas_and_weight():
    assert points(job(gpus=8)) == 800
    assert points(job(gpus=8, replicas=4)) == 3200
    assert points(job(gpus=8, weight=2.5)) == 2000
    assert points(job(milli=250)) == 25
    assert points(job(milli=250, replicas=3)) == 75


def test_an_elastic_job_is_priced_at_its_maximum():
    assert points(job(gpus=2, replicas=(1, 4))) == points(job(gpus=2, replicas=4)) == 800


def test_mig_instances_count_by_their_compute_slices():
    wants = job().model_copy(update={"request": ResourceRequest(mig={"3g.40gb": 2, "1g.10gb": 1})})

    # 2 × 428 + 142 thousandths of a GPU
    assert points(wants) == 99


def test_each_point_of_priority_adds_the_weight_once_more():
    assert [points(job(gpus=1, priority=priority)) for priority in (0, 1, 2, 10)] == [100, 200, 300, 1100]


def test_a_job_without_gpus_counts_as_the_smallest_size():
    assert points(job(cpus=64)) == 10
    assert points(job(cpus=64), policy(smallest_size=0.5)) == 50
    assert points(job(milli=50)) == 10
    assert points(job(milli=100)) == 10
    assert points(job(milli=101)) == 10
    assert points(job(milli=110)) == 11


def test_a_job_is_worth_at_least_one_point():
    assert points(job(gpus=1, weight=0.001)) == 1
    assert points(job(cpus=1), policy(smallest_size=0)) == 1


def test_a_weight_of_zero_is_worth_nothing():
    assert points(job(gpus=8, priority=5, weight=0, waited=100 * HOUR)) == 0


@pytest.mark.parametrize(
    ("waited", "boost"),
    [
        (timedelta(0), 0),
        (6 * HOUR - timedelta(seconds=1), 0),
        (6 * HOUR, 1),
        (12 * HOUR - timedelta(seconds=1), 1),
        (12 * HOUR, 2),
        (60 * HOUR, 10),
        (66 * HOUR, 10),
        (10_000 * HOUR, 10),
    ],
)
def test_waiting_counts_in_whole_steps_up_to_a_cap(waited, boost):
    assert points(job(gpus=1, waited=waited)) == 100 * (1 + boost)


def test_gain_and_step_and_cap_of_ageing_are_the_policys():
    quick = policy(ageing=Ageing(step=3600, gain=3, cap=7))

    assert [points(job(gpus=1, waited=hours * HOUR), quick) for hours in (0, 1, 2, 3)] == [100, 400, 700, 800]


def test_ageing_can_be_switched_off():
    assert points(job(gpus=1, waited=100 * HOUR), policy(ageing=Ageing(gain=0))) == 100
    assert points(job(gpus=1, waited=100 * HOUR), policy(ageing=Ageing(cap=0))) == 100


def test_a_job_submitted_after_the_snapshot_has_not_waited():
    assert points(job(gpus=1, waited=-100 * HOUR)) == 100


def test_ageing_adds_to_priority():
    assert points(job(gpus=2, priority=3, weight=0.5, waited=12 * HOUR)) == 600


def test_basis_job_ignores_size():
    by_job = sized(SizeBasis.JOB)

    assert points(job(gpus=8, replicas=16), by_job) == 100
    assert points(job(cpus=1), by_job) == 100
    assert points(job(gpus=1, priority=1, weight=3), by_job) == 600


def test_basis_gpu_hour_counts_expected_hours():
    by_hour = sized(SizeBasis.GPU_HOUR)

    assert points(job(gpus=2, expected_duration=3600 * 3), by_hour) == 600
    assert points(job(gpus=2, expected_duration=1800), by_hour) == 100
    assert points(job(cpus=1, expected_duration=7200), by_hour) == 20
    assert points(job(gpus=1, expected_duration=1), by_hour) == 1
    assert points(job(gpus=1, expected_duration=0), by_hour) == 1


def test_basis_gpu_hour_counts_the_hours_that_earlier_runs_have_left():
    stopped = job(gpus=2, expected_duration=3600 * 3)
    stopped = stopped.model_copy(update={"progress": Progress.model_validate({"completed": "2h"})})

    assert points(stopped, sized(SizeBasis.GPU_HOUR)) == 200


def test_basis_gpu_hour_takes_the_default_where_no_duration_is_declared():
    assert points(job(gpus=2), sized(SizeBasis.GPU_HOUR)) == 200
    assert points(job(gpus=2), sized(SizeBasis.GPU_HOUR, default_duration="2h")) == 400


def test_duration_means_nothing_to_the_other_bases():
    for basis in (SizeBasis.JOB, SizeBasis.GPU):
        assert points(job(gpus=2, expected_duration=36000), sized(basis)) == points(job(gpus=2), sized(basis))


# --- w_j · completed_j -------------------------------------------------------------------------------------


def test_a_rigid_job_earns_its_points():
    assert completion_points(800, job(gpus=2, replicas=4), "H100-80GB", 4) == 800
    assert completion_points(10, job(cpus=1), None, 1) == 10


def test_a_job_earns_its_speed_relative_to_its_fastest_model():
    picky = job(gpus=1, gpu_models={"H100-80GB": 2, "A100-80GB": 1, "T4": 0.3})

    assert completion_points(800, picky, "H100-80GB", 1) == 800
    assert completion_points(800, picky, "A100-80GB", 1) == 400
    assert completion_points(800, picky, "T4", 1) == 120


def test_points_at_a_slow_speed_are_rounded_down_and_at_least_one():
    picky = job(gpus=1, gpu_models={"H100-80GB": 3, "A100-80GB": 1, "T4": 0.001})

    # 1000 // 3 = 333 thousandths of the speed
    assert completion_points(100, picky, "A100-80GB", 1) == 33
    assert completion_points(100, picky, "T4", 1) == 1


def test_an_elastic_job_earns_by_the_replica():
    elastic = job(gpus=1, replicas=(1, 4))

    assert [completion_points(400, elastic, "H100-80GB", count) for count in (1, 2, 3, 4)] == [
        100,
        200,
        300,
        400,
    ]


def test_an_elastic_job_earns_whole_points_by_the_replica():
    elastic = job(gpus=1, replicas=(1, 3))

    assert [completion_points(100, elastic, "H100-80GB", count) for count in (1, 2, 3)] == [33, 66, 99]
    assert [completion_points(2, elastic, "H100-80GB", count) for count in (1, 2, 3)] == [1, 2, 3]


def test_an_elastic_job_earns_at_the_speed_of_its_model():
    elastic = job(gpus=1, replicas=(1, 4), gpu_models={"H100-80GB": 1, "A100-80GB": 0.5})

    assert completion_points(400, elastic, "A100-80GB", 3) == 150


def test_what_is_worth_nothing_earns_nothing():
    assert completion_points(0, job(gpus=1), "H100-80GB", 1) == 0
    assert completion_points(0, job(gpus=1, replicas=(1, 4)), "H100-80GB", 4) == 0


@settings(max_examples=examples(100))
@given(
    policies(),
    st.integers(0, 8),
    st.integers(0, 100),
    st.integers(0, 200),
    st.sampled_from((1, 0.5, 20)),
)
def test_longer_waiting_larger_or_more_important_jobs_are_never_worth_less(
    policy, gpus, priority, hours, weight
):
    base = points(job(gpus=gpus, priority=priority, weight=weight, waited=hours * HOUR), policy)

    assert base >= 1
    assert points(job(gpus=gpus, priority=priority, weight=weight, waited=(hours + 1) * HOUR), policy) >= base
    assert points(job(gpus=gpus, priority=priority + 1, weight=weight, waited=hours * HOUR), policy) >= base
    assert points(job(gpus=gpus + 1, priority=priority, weight=weight, waited=hours * HOUR), policy) >= base


@settings(max_examples=examples(100))
@given(st.integers(1, 10**9), st.integers(1, 16), st.integers(1, MILLI))
def test_a_slower_model_or_a_replica_less_never_earns_more(full, most, speed):
    elastic = job(gpus=1, replicas=(1, most), gpu_models={"H100-80GB": 1, "T4": speed / MILLI})
    earned = [completion_points(full, elastic, "H100-80GB", count) for count in range(1, most + 1)]

    assert earned == sorted(earned)
    assert completion_points(full, elastic, "T4", most) <= earned[-1]
    assert earned[-1] <= max(full, most)
