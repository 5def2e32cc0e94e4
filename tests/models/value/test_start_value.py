"""Earnings: what a start is worth, the earlier the more, in deadlines met and tariffs paid."""

from __future__ import annotations

from datetime import timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpuplan.models.calendar import Tariff
from gpuplan.models.value.job_value import job_points
from gpuplan.models.value.start_value import StartValue
from tests.oracle.completion import completion_points
from tests.support.builders import build
from tests.support.builders.build import NOW, by_value

HOUR = 3600
H = 4


def earnings(*, slots=H, tariffs=(), earliness=0.1, **policy):
    horizon = {"slots": slots, "length": HOUR, "earliness": earliness}
    return StartValue(build.snapshot(tariffs=tariffs), by_value(horizon=horizon, **policy))


def a_job(**more):
    """A hundred GPUs: ten thousand points."""
    return build.job(**{"gpus": 100, "expected_duration": HOUR} | more)


def completion(job, start=0, *, model=None, replicas=1, seconds=None, **more):
    return earnings(**more).completion(job, model, replicas, start=start, seconds=seconds)


@pytest.mark.parametrize(
    ("start", "takes", "points"),
    [
        (0, 1, 9750),  # it ends after a quarter of the horizon: a quarter of a tenth is lost
        (1, 1, 9500),
        (3, 1, 9000),
        (0, 4, 9000),
        (0, 8, 4500),  # half of it is done by then
        (2, 8, 2250),
        (3, 2, 4500),
        (4, 1, 1),
    ],
)
def test_what_is_done_by_the_end_of_the_horizon_counts_the_earlier_the_more(start, takes, points):
    assert completion(a_job(), start * HOUR, seconds=takes * HOUR) == points


def test_without_earliness_only_what_is_done_counts():
    assert completion(a_job(), 2 * HOUR, earliness=0) == 10_000
    assert completion(a_job(), 2 * HOUR, seconds=4 * HOUR, earliness=0) == 5000


def test_slow_models_take_their_time():
    job = a_job(gpu_models={"fast": 1, "slow": 0.25})

    assert completion(job, model="fast") == 9750
    assert completion(job, model="slow") == 9000


def test_elastic_jobs_earn_by_the_replica():
    job = a_job(gpus=50, replicas=(1, 2))

    assert [completion(job, replicas=count) for count in (1, 2)] == [4875, 9750]


@given(
    st.integers(0, 96 * HOUR),
    st.integers(1, 200 * HOUR),
    st.integers(1, 200),
    st.sampled_from((1, (1, 3))),
    st.integers(0, 1000),
)
def test_later_is_never_better_and_nothing_is_worth_less_than_a_point(start, seconds, gpus, gang, milli):
    job = a_job(gpus=min(gpus, 128), replicas=gang)
    policy = {"earliness": milli / 1000, "slots": 48}
    found = [completion(job, each, seconds=seconds, **policy) for each in (start, start + 900)]

    assert found[0] >= found[1] >= 1
    assert found[0] <= job_points(by_value(), job, NOW)
    assert completion(job, start, seconds=seconds + 900, **policy) <= found[0]


def test_weight_0_is_worth_nothing():
    assert completion(a_job(weight=0)) == 0


@given(st.integers(1, 100), st.sampled_from((1, (1, 3))), st.sampled_from(("fast", "slow", None)))
def test_with_one_slot_there_is_no_later(gpus, gang, model):
    job = a_job(
        gpus=gpus, replicas=gang, gpu_models={"fast": 1, "slow": 0.3}, deadline=NOW + timedelta(hours=1)
    )
    found = earnings(slots=1, tariffs=[tariff()])
    full = job_points(by_value(), job, NOW)

    assert found.completion(job, model, 2, start=0, seconds=77) == completion_points(full, job, model, 2)
    assert found.saved_lateness(job, start=0, seconds=HOUR) == 0
    assert found.tariff_points(job, model, 2, start=0, seconds=HOUR) == 0


def due(hours, **more):
    return a_job(deadline=NOW + timedelta(hours=hours), waited=timedelta(hours=5), **more)


@pytest.mark.parametrize(
    ("deadline", "start", "saved"),
    [
        # Each hour of lateness is a tenth of 10,000 points; after the horizon it would end after 5 hours.
        (1, 0, 4000),
        (1, 1, 3000),
        (2, 0, 3000),
        (5, 0, 0),
        (9, 3, 0),
        (0, 3, 1000),
        (-100, 0, 0),
    ],
)
def test_what_is_saved_is_the_lateness_of_starting_after_the_horizon(deadline, start, saved):
    job = due(deadline).model_copy(update={"submitted_at": NOW})

    assert earnings().saved_lateness(job, start=start * HOUR, seconds=HOUR) == saved


def test_lateness_takes_no_more_than_a_job_is_worth():
    found = earnings(prices={"lateness": 10})

    assert found.saved_lateness(due(1), start=0, seconds=HOUR) == 10_000
    assert found.saved_lateness(due(1), start=HOUR, seconds=HOUR) == 0
    assert found.saved_lateness(a_job(), start=0, seconds=HOUR) == 0


@given(st.integers(-10, 200), st.integers(0, 96), st.integers(1, 300), st.integers(0, 3000))
def test_starting_earlier_saves_no_less_and_never_costs(deadline, start, takes, milli):
    found = earnings(slots=96, prices={"lateness": milli / 1000})
    job = due(deadline)
    saved = [
        found.saved_lateness(job, start=slot * HOUR, seconds=takes * HOUR) for slot in (start, start + 1)
    ]

    assert saved[0] >= 0
    assert start == 96 or saved[0] >= saved[1] >= 0


@pytest.mark.parametrize(("start", "late"), [(0, False), (HOUR, False), (HOUR + 1, True)])
def test_only_a_hard_deadline_makes_too_late(start, late):
    found = earnings()

    assert found.misses_hard_deadline(due(2, hard_deadline=True), start=start, seconds=HOUR) == late
    assert not found.misses_hard_deadline(due(2), start=start, seconds=HOUR)
    assert not found.misses_hard_deadline(a_job(hard_deadline=True), start=start, seconds=HOUR)
    assert found.slack(due(2), HOUR) == HOUR
    assert found.slack(due(-2), HOUR) == -3 * HOUR
    assert found.slack(a_job(), HOUR) is None


def tariff(start=1, lasts=2, price=0.01, **more):
    begins = NOW + timedelta(hours=start)
    return Tariff(name="peak", start=begins, duration=lasts * HOUR, price_per_gpu_hour=price, **more)


@pytest.mark.parametrize(
    ("start", "takes", "points"),
    # A hundred GPUs, a hundred points a unit of currency: a hundred points an hour under the tariff.
    [(0, 1, 0), (0, 2, 100), (1, 1, 100), (0, 3, 200), (0, 9, 200), (2, 9, 100), (3, 1, 0), (1.5, 0.5, 50)],
)
def test_a_tariff_costs_for_the_time_under_it(start, takes, points):
    found = earnings(tariffs=[tariff()])

    assert (
        found.tariff_points(a_job(), "any", 1, start=int(start * HOUR), seconds=int(takes * HOUR)) == points
    )


def test_tariffs_add_up_end_with_the_horizon_and_are_of_models():
    found = earnings(
        tariffs=[
            tariff(0, 99),
            tariff(0, 1).model_copy(update={"name": "second", "gpu_models": ("T4",)}),
        ]
    )

    def cost(model, replicas=1):
        return found.tariff_points(a_job(), model, replicas, start=0, seconds=50 * HOUR)

    assert cost("T4") == 100 * H + 100
    assert cost("T4", 3) == 3 * cost("T4")
    assert cost("other") == 100 * H
    assert cost(None) == 0


def turns(*jobs, gap=0, **horizon):
    """Prices of stopping running jobs, by goal `value`: a hundred points for each GPU at full speed."""
    nodes = [build.node("fast", gpus=6, model="fast"), build.node("slow", gpus=2, model="slow")]
    policy = by_value(disruption={"priority_gap": gap, "checkpoint": 0, "restart": 900}, horizon=horizon)
    found = StartValue(build.snapshot(nodes=nodes, jobs=jobs), policy)
    return {job.name: found.stop_points(job) for job in jobs}


def runs(name, hours, gpus, *, node="fast", **more):
    """A running job that has saved all its work and has so many hours left."""
    made = build.job(name, gpus=len(gpus), at=[build.replica(node, gpus=gpus)], **more)
    running = made.running.model_copy(update={"last_checkpoint_at": NOW})
    whole = round((1 + hours) * HOUR)
    return made.model_copy(update={"running": running, "expected_duration": whole})


def test_a_stop_among_equals_costs_more_the_nearer_the_end_of_a_job_is():
    # A quarter of an hour is lost: 25 points for each GPU-hour, and the fourth root of 1 + 15 / minutes.
    long, gang = runs("long", 20, [0]), runs("gang", 20, [1, 2])

    def price(minutes):
        return turns(long, gang, runs("next", minutes / 60, [3]))

    assert price(15)["long"] == 25 + round(100 * (2 ** (1 / 4) - 1))
    assert price(1)["long"] == price(0.2)["long"] == 25 + 100
    # Two GPUs are not free before 20 hours.
    assert price(15)["gang"] == 50 + round(200 * ((1 + 1 / 80) ** (1 / 4) - 1))


def test_a_stop_costs_what_a_job_loses_on_a_slower_gpu_model():
    speeds = {"fast": 1, "slow": 0.2}  # 0.8 on average: two hours become two and a half
    job = runs("job", 2, [0], gpu_models=speeds)

    assert turns(job)["job"] == 25 + round(100 * ((1 + 0.75 / 2) ** (1 / 4) - 1))
    assert turns(job.model_copy(update={"gpu_models": {"fast": 1_000}}))["job"] == 25 + round(
        100 * ((1 + 0.25 / 2) ** (1 / 4) - 1)
    )
    # On slow GPUs it has done an hour of 15, and loses nothing by another model.
    on_slow = runs("job", 2, [0], node="slow", gpu_models=speeds)
    assert turns(on_slow)["job"] == 25 + round(20 * ((1 + 0.25 / (3 * 5 - 1)) ** (1 / 4) - 1))


def test_for_a_higher_priority_or_over_a_horizon_only_lost_hours_count():
    job = runs("job", 0.1, [0], gpu_models={"fast": 1, "slow": 0.2})

    assert turns(job, gap=1)["job"] == 25
    assert turns(job, slots=4, length=HOUR)["job"] == 25
