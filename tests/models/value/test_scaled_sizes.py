"""Scaled jobs: costs of places by GPU model, the size and worth there, and where a job rather waits."""

from __future__ import annotations

import random
from datetime import timedelta

import pytest

from gpuplan.models.gang import Gang
from gpuplan.models.policy.policy import Policy
from gpuplan.models.policy.settings import Goal, HorizonPolicy, Objective
from gpuplan.models.value.scaled_sizes import ScaledSizes
from gpuplan.models.value.start_value import StartValue
from tests.support.builders import build

FAST, SLOW = "H100-80GB", "T4"
STEEP, FLAT = {1: 1, 2: 1.9, 4: 3.6}, {1: 1, 2: 1.4, 4: 1.6}
HOUR = 3600
POLICY = Policy()


def scaled(name="a", *, table=STEEP, speeds=None, least=1, **more):
    job = build.job(name, gpus=1, **{"expected_duration": HOUR, **more})
    gang = Gang(min=least, max=4, scaling=table)
    return job.model_copy(update={"gang": gang, "gpu_models": speeds or {FAST: 4000, SLOW: 1000}})


def world(*jobs, fast=8, slow=8, queues=None, **about):
    nodes = [build.node("fast", gpus=fast, model=FAST, **about), build.node("slow", gpus=slow, model=SLOW)]
    return build.snapshot(nodes=nodes, jobs=jobs, queues=queues)


def sizes(*jobs, **about):
    return ScaledSizes(world(*jobs, **about))


def plain(jobs, job, *, fast=8, slow=8):
    """Costs by model and size, from the formula in words: each job as one that asks for a GPU."""
    room = {FAST: fast, SLOW: slow}

    def pace(each, model):
        return each.gpu_models.get(model, 0)

    price = {
        model: sum(pace(each, model) / sum(room[m] * pace(each, m) for m in room) for each in jobs)
        for model in room
    }
    at_full = max(job.gpu_models.values()) * job.gang.speed_milli(4)
    return {
        model: {
            k: (1 + price[model] * k) / (pace(job, model) * job.gang.speed_milli(k) / at_full)
            for k in (1, 2, 4)
        }
        for model in room
    }


@pytest.mark.parametrize("number", [1, 3, 12, 60])
@pytest.mark.parametrize("table", [STEEP, FLAT])
def test_size_and_worth_are_those_of_least_cost(number, table):
    draw = random.Random(number)
    speeds = [{FAST: draw.choice([1500, 4000, 8000]), SLOW: 1000} for _ in range(number)]
    jobs = [scaled(f"j{index}", table=table, speeds=each) for index, each in enumerate(speeds)]
    found = sizes(*jobs)

    for job in jobs[:5]:
        costs = plain(jobs, job)
        best = {model: min(by_size, key=by_size.__getitem__) for model, by_size in costs.items()}
        least = {model: costs[model][best[model]] for model in costs}
        assert {model: found.of(job, model).usual for model in costs} == best
        # Points with the usual size are in proportion to one over the least cost.
        paid = {
            model: found.of(job, model).worth_milli * job.gang.speed_milli(best[model]) for model in costs
        }
        assert paid[FAST] / paid[SLOW] == pytest.approx(least[SLOW] / least[FAST], rel=0.02)
        assert found.best_model(job) == min(least, key=least.__getitem__)


def test_the_longer_the_queue_the_sooner_a_job_leaves_the_fast_model_to_others():
    modest = scaled("modest", speeds={FAST: 1200, SLOW: 1000})
    others = [scaled(f"o{number}", speeds={FAST: 8000, SLOW: 1000}) for number in range(30)]

    assert sizes(modest).best_model(modest) == FAST
    assert sizes(modest, *others).best_model(modest) == SLOW
    assert sizes(modest, *others).best_model(others[0]) == FAST


def test_the_order_of_the_jobs_does_not_matter_for_the_last_digit():
    jobs = [scaled(f"j{index}", speeds={FAST: 1000 + 37 * index, SLOW: 1000}) for index in range(40)]
    mixed = random.Random(1).sample(jobs, len(jobs))

    one, other = sizes(*jobs), ScaledSizes(world().model_copy(update={"jobs": tuple(mixed)}))

    assert [one.of(job, FAST) for job in jobs] == [other.of(job, FAST) for job in jobs]


def test_no_size_is_larger_than_all_gpus_of_the_model():
    alone = scaled()

    assert sizes(alone).of(alone, FAST).usual == 4
    assert sizes(alone, fast=2).of(alone, FAST).usual == 2


@pytest.mark.parametrize(
    ("job", "about"),
    [
        ({"least": 4}, {"fast": 2}),
        ({}, {"cordoned": True}),
        ({}, {"queues": [build.queue(**{FAST: 0})]}),
        ({}, {"queues": [build.queue("root", **{FAST: 0}), build.queue(parent="root")]}),
        ({"node_selector": {"disk": "nvme"}}, {}),
        ({"speeds": {SLOW: 1000}}, {}),
    ],
    ids=["too few GPUs", "cordoned", "quota", "quota above", "label", "not allowed"],
)
def test_a_job_does_not_wait_for_what_it_cannot_get(job, about):
    waits = scaled(**job)

    assert sizes(waits).best_model(scaled()) == FAST
    assert sizes(waits, **about).best_model(waits) != FAST


def patience(job, *, policy=POLICY, on=SLOW, others=()):
    return StartValue(world(job, *others), policy).worth.patience(job, on)


def test_a_job_waits_as_long_as_the_better_model_would_save():
    job = scaled()
    costs = {model: min(by_size.values()) for model, by_size in plain([job], job).items()}

    assert patience(job) == pytest.approx(HOUR * (costs[SLOW] - costs[FAST]), rel=0.001)
    assert patience(job, on=FAST) == 0


def test_it_never_waits_longer_than_a_doubling_nor_for_an_unknown_duration():
    week = scaled(expected_duration=7 * 24 * HOUR)

    assert patience(week) == POLICY.objective.doubling
    assert patience(scaled(expected_duration=None)) == 0


@pytest.mark.parametrize(
    ("change", "policy"),
    [
        ({"speeds": {FAST: 1300, SLOW: 1000}}, {}),
        ({"table": {}}, {}),
        ({"at": [build.replica("slow", gpus=(0,))]}, {}),
        ({}, {"objective": Objective(goal=Goal.VALUE)}),
        ({}, {"horizon": HorizonPolicy(slots=4)}),
    ],
    ids=["little slower", "no table", "runs", "another goal", "several slots"],
)
def test_when_a_job_starts_wherever_there_is_room(change, policy):
    assert patience(scaled(**change), policy=Policy(**policy)) == 0


def points_on_slow(waited, *, ends, held=1):
    """Points of sizes on the slow model, and its patience; a job ends on fast GPUs in so many seconds."""
    job = scaled(waited=timedelta(seconds=waited))
    at = [build.replica("fast", gpus=range(held))]
    runs = build.job("runs", gpus=held, at=at, expected_duration=HOUR + ends)
    value = StartValue(world(job, runs), POLICY)
    return [value.completion(job, SLOW, size) for size in (1, 2, 4)], value.worth.patience(job, SLOW)


def test_a_start_where_it_rather_waits_costs_a_point_until_it_has_waited_long_enough():
    _, end = points_on_slow(0, ends=60)

    assert points_on_slow(end - 61, ends=60)[0] == [-1, -1, -1]
    assert min(points_on_slow(end, ends=60)[0]) > 0


def test_a_job_waits_only_if_running_jobs_end_in_time_where_it_had_better_be():
    _, end = points_on_slow(0, ends=HOUR // 2)

    assert points_on_slow(0, ends=end)[0] == [-1, -1, -1]
    assert min(points_on_slow(1, ends=end)[0]) > 0
    assert min(StartValue(world(scaled()), POLICY).completion(scaled(), SLOW, size) for size in (1, 2, 4)) > 0


def test_as_many_gpus_must_become_free_as_the_job_needs_at_least():
    pair = scaled(least=2)
    value = [
        StartValue(
            world(pair, build.job("runs", gpus=held, at=[build.replica("fast", gpus=range(held))])), POLICY
        )
        for held in (1, 2)
    ]

    assert [each.worth.waits_for_better(pair, SLOW) for each in value] == [False, True]


def test_ends_count_on_nodes_only_that_the_job_may_use():
    def waits(**about):
        job = scaled(**about)
        runs = build.job("runs", gpus=1, at=[build.replica("other", gpus=(0,))], expected_duration=HOUR + 60)
        nodes = [build.node(name, gpus=4, model=FAST, labels={"at": name}) for name in ("fast", "other")]
        slow = build.node("slow", gpus=8, model=SLOW, labels={"at": "fast"})
        snapshot = build.snapshot(nodes=[*nodes, slow], jobs=[job, runs])
        return StartValue(snapshot, POLICY).worth.waits_for_better(job, SLOW)

    assert waits()
    assert not waits(node_selector={"at": "fast"})


def test_a_job_without_gpus_waits_for_no_model():
    job = scaled().model_copy(update={"request": build.job(cpus=4).request})
    runs = build.job("runs", gpus=1, at=[build.replica("fast", gpus=(0,))], expected_duration=HOUR + 60)

    assert not StartValue(world(job, runs), POLICY).worth.waits_for_better(job, SLOW)
