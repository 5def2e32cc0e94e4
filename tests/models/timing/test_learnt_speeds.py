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


@st.composite
def measurements(draw):
    """Seconds and samples of sizes, near those of a concave table."""
    sizes = sorted(draw(st.sets(st.integers(1, 64), min_size=2, max_size=6)))
    # Two measurements differ by less than a quarter from any table between them.
    power, noise = draw(st.floats(0, 1)), st.floats(0.9, 1.1)
    return {size: (10_000 / size**power * draw(noise), draw(st.integers(SAMPLES, 40))) for size in sizes}


def error(speeds, measured):
    """Weighted sum of squared relative errors, at the best scale of the speeds."""
    ratios = [(speeds(size) * seconds, weight) for size, (seconds, weight) in measured.items()]
    scale = sum(ratio * weight for ratio, weight in ratios) / sum(r * r * weight for r, weight in ratios)
    return sum(weight * (scale * ratio - 1) ** 2 for ratio, weight in ratios)


@pytest.mark.slow
@given(measurements(), st.integers(2, 99), st.randoms(use_true_random=False))
def test_no_other_concave_table_is_nearer_to_what_was_measured(measured, most, draw):
    table = fit_speeds(measured, max(most, *measured))
    assert table is not None

    gang = Gang(min=1, max=99, scaling=table)  # refuses one that is not concave
    best = error(gang.speed_milli, measured)
    for _ in range(20):
        parts = {size: draw.uniform(0.01, 1) ** 3 for size in measured}
        other = {k: sum(part * min(k, size) for size, part in parts.items()) for k in measured}
        assert best <= error(other.__getitem__, measured) + 1e-4
    assert gang.speed_milli(min(measured)) == pytest.approx(1000 * min(measured), abs=1)


@given(measurements(), st.integers(1, 40))
def test_a_table_has_no_speeds_beyond_what_the_job_may_have(measured, most):
    table = fit_speeds(measured, most)

    assert max(table) == most
    Gang(min=1, max=most, scaling=table)


def test_of_noisy_sizes_those_with_more_samples_count_more():
    few, many = ({1: (8000, 3), 2: (4200, 3), 4: (5000, samples)} for samples in (3, 300))

    assert fit_speeds(many, 4)[4] < fit_speeds(few, 4)[4]


def test_a_size_that_seems_slower_than_a_smaller_one_by_chance_is_as_fast():
    table = fit_speeds({1: (8000, 9), 2: (4400, 9), 4: (4600, 9)}, 4)

    assert table[2] == table[4] > 1.5


@pytest.mark.parametrize(
    "seconds",
    [{1: 8000, 2: 16_000}, {1: 8000, 8: 500}, {1: 10**9, 8: 1}, {1: 8000, 2: 4000, 4: 12_000}],
    ids=["more is slower", "faster than in proportion", "not the same work", "contradictory"],
)
def test_history_that_no_table_comes_near_teaches_nothing(seconds):
    assert not learnt(history(seconds)).scaled
