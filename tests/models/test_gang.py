"""How fast so many replicas of a job are."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from gpuplan.models.gang import Gang
from gpuplan.models.value.job_value import replica_points
from tests.oracle.completion import completion_points
from tests.support.builders import build

TABLE = {1: 1.0, 2: 1.9, 4: 3.4}


def test_without_a_table_speed_is_in_proportion():
    gang = Gang(min=1, max=8)

    assert [gang.speed_milli(size) for size in (1, 3, 8)] == [1000, 3000, 8000]
    assert not gang.scaled


def test_between_sizes_it_grows_evenly_and_beyond_the_largest_it_stays():
    gang = Gang(min=1, max=8, scaling=TABLE)

    assert [gang.speed_milli(size) for size in (1, 2, 3, 4, 8)] == [1000, 1900, 2650, 3400, 3400]


def test_below_the_smallest_size_it_is_in_proportion():
    assert Gang(min=1, max=8, scaling={4: 1, 8: 1.6}).speed_milli(1) == 250


def test_a_gpu_model_may_have_a_table_of_its_own():
    gang = Gang(min=1, max=4, scaling=TABLE, scaling_by_model={"T4": {1: 1, 4: 4}})

    assert (gang.speed_milli(3, "T4"), gang.speed_milli(3, "A100-80GB")) == (3000, 2650)


def test_of_the_fastest_model_all_replicas_are_a_thousand():
    job = build.job(gpus=1, gpu_models={"A100-80GB": 4, "T4": 1})
    job = job.model_copy(update={"gang": Gang(min=1, max=4, scaling={1: 1, 4: 2})})

    assert [job.rate_milli("A100-80GB", size) for size in (1, 4)] == [500, 1000]
    assert [job.rate_milli("T4", size) for size in (1, 4)] == [125, 250]
    assert job.speed_milli("T4") == 250


def test_the_usual_size_is_smaller_in_a_longer_queue():
    gang = Gang(min=1, max=4, scaling=TABLE)

    assert [gang.usual_size(contention) for contention in (0, 0.5, 4, 1000)] == [4, 4, 2, 1]


@pytest.mark.parametrize("jobs", [1, 2, 6, 40])
def test_with_the_usual_size_equal_jobs_complete_soonest(jobs):
    """Batches of as many as fit on 8 GPUs, one after the other; as many jobs come after them as there are."""
    gang = Gang(min=1, max=8, scaling={1: 1, 2: 1.7, 4: 2.6, 8: 3.4})

    def mean(size):
        takes = 1000 / gang.speed_milli(size)
        ends = [takes * (1 + position * size / 8) for position in range(jobs * 2)]
        return sum(ends) / len(ends)

    assert mean(gang.usual_size(jobs / 8)) <= 1.1 * min(map(mean, (1, 2, 4, 8)))


@pytest.mark.parametrize(
    ("table", "said"),
    [
        ({1: 1, 2: 2.1}, "found 1.1 for each of those from 1 to 2, and 1 for each before them"),
        ({1: 1, 2: 0.9}, "found 0.9 with 2 after 1 with 1"),
        ({1: 0}, "found 0 with 1"),
    ],
)
def test_a_table_that_grows_faster_or_falls_is_refused(table, said):
    for field in ({"scaling": table}, {"scaling_by_model": {"T4": table}}):
        with pytest.raises(ValidationError, match=said):
            Gang(min=1, max=4, **field)


def test_a_table_reads_as_it_was_written():
    gang = Gang(min=1, max=4, scaling={4: 3.4, 1: 1, 2: 1.9})

    assert Gang.model_validate_json(gang.model_dump_json()) == gang
    assert hash(Gang.model_validate(gang.document())) == hash(gang)


@st.composite
def gangs(draw):
    """Tables that do not grow faster."""
    steps = sorted(draw(st.lists(st.integers(0, 1000), min_size=1, max_size=6)), reverse=True)
    speeds, speed = {}, 0.0
    for size, step in enumerate([1000, *steps], start=1):
        speed += step / 1000
        speeds[size] = round(speed, 3)
    most = draw(st.integers(2, 9))
    return Gang(min=draw(st.integers(1, most - 1)), max=most, scaling=speeds)


@given(gangs(), st.integers(1, 100_000))
def test_no_replica_adds_more_points_than_one_before_it_and_all_add_no_more_than_full_size(gang, points):
    job = build.job(gpus=1).model_copy(update={"gang": gang})

    found = replica_points(points, job, None)

    assert len(found) == gang.maximum
    assert list(found) == sorted(found, reverse=True)
    assert sum(found) <= max(points, found[0] * gang.maximum)
    for size in range(1, gang.maximum + 1):
        part = points * gang.speed_milli(size) / gang.speed_milli(gang.maximum)
        assert part - size - points * 2 / 1000 <= completion_points(points, job, None, size) <= part + size
