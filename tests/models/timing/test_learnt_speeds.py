"""Scaling tables learnt from what finished jobs of each size took."""

from __future__ import annotations

from datetime import timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpuplan.models.dependency import FinishedJob
from gpuplan.models.gang import Gang
from gpuplan.models.timing.learnt_speeds import SAMPLES, fit_speeds, with_learnt_scaling
from tests.support.builders.build import NOW, job, snapshot

HOUR = 3600


def over(number, replicas, seconds, **more):
    return FinishedJob(
        name=f"train-{number}",
        queue="q",
        user="ada",
        started_at=NOW - timedelta(seconds=seconds + 60),
        ended_at=NOW - timedelta(seconds=60),
        replicas=replicas,
        **more,
    )


def history(seconds, *, each=SAMPLES, **more):
    """So many jobs of each size that took so long."""
    sizes = [(size, took) for size, took in seconds.items() for _ in range(each)]
    return tuple(over(number, size, took, **more) for number, (size, took) in enumerate(sizes))


def elastic(name="train-99", **gang):
    gang = Gang.model_validate({"min": 1, "max": 8} | gang)
    return job(name, user="ada").model_copy(update={"gang": gang})


def teaching(finished, waiting):
    return snapshot(jobs=[waiting]).model_copy(update={"finished": finished})


def learnt(finished, *, name="train-99", **gang):
    waiting = elastic(name, **gang)
    (found,) = with_learnt_scaling(teaching(finished, waiting)).jobs
    return found.gang


def test_sizes_that_took_less_time_are_faster():
    gang = learnt(history({1: 8000, 2: 5000, 4: 4000}))

    assert [gang.speed_milli(size) for size in (1, 2, 4)] == [1000, 1600, 2000]


def test_a_size_that_was_never_tried_goes_on_like_the_last_two():
    gang = learnt(history({1: 8000, 2: 5000, 4: 4000}))

    assert gang.speed_milli(8) == 2800


def test_the_middle_one_of_several_counts():
    slow = over(98, 2, 50_000)

    gang = learnt((*history({1: 8000, 2: 5000}), slow))

    assert gang.speed_milli(2) == 1600


def test_models_have_tables_of_their_own_and_the_best_known_is_for_all_others():
    finished = (
        *history({1: 8000, 2: 5000}, each=SAMPLES + 1, gpu_model="A100-80GB"),
        *history({1: 9000, 2: 4500}, gpu_model="T4"),
    )

    gang = learnt(finished)

    assert gang.speed_milli(2, "T4") == 2000
    assert gang.speed_milli(2, "A100-80GB") == gang.speed_milli(2, "L4") == 1600


@pytest.mark.parametrize(
    ("finished", "change"),
    [
        (history({1: 8000, 2: 5000}, each=SAMPLES - 1), {}),
        (history({2: 5000}), {}),
        (history({1: 8000, 2: 5000}, outcome="failed"), {}),
        (history({None: 5000, 1: 8000}), {}),
        (history({1: 8000, 2: 5000}), {"name": "infer-1"}),
        (history({1: 8000, 2: 5000}), {"min": 8}),
    ],
    ids=["too few", "one size", "failed", "sizes unknown", "another job", "not elastic"],
)
def test_what_teaches_nothing(finished, change):
    assert not learnt(finished, **change).scaled


def test_what_a_job_says_itself_counts():
    gang = learnt(history({1: 8000, 2: 5000}), scaling={1: 1, 2: 2})

    assert gang.speed_milli(2) == 2000


def test_without_anything_to_learn_it_is_the_same_snapshot():
    same = teaching((), elastic())

    assert with_learnt_scaling(same) is same


@given(
    st.dictionaries(st.integers(1, 64), st.integers(10, 10**5), min_size=2, max_size=6), st.integers(2, 99)
)
def test_whatever_was_measured_makes_the_lowest_concave_table_above_it(seconds, most):
    table = fit_speeds(seconds, most)

    gang = Gang(min=1, max=99, scaling=table)  # refuses one that is not concave
    smallest, largest = min(seconds), max(seconds)
    measured = {size: smallest * seconds[smallest] / took for size, took in seconds.items()}
    fastest = max(measured.values())
    for size, speed in measured.items():
        assert gang.speed_milli(size) >= 1000 * speed - 2
    for size, speed in table.items():
        if size <= largest:
            assert min(abs(speed - measured.get(size, fastest)), abs(speed - fastest)) < 0.001
    assert max(table) == max(largest, most)


def test_a_job_that_did_something_else_makes_no_table_that_cannot_be():
    gang = learnt(history({1: 10**9, 8: 1}))

    assert gang.speed_milli(8) == 10_000_000
