"""The Gittins index of a job, against its definition."""

from __future__ import annotations

from fractions import Fraction
from math import ceil

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpuplan.models.timing.gittins_index import index_of_unknown, seconds_per_completion, smoothed_durations


def by_definition(durations, attained):
    left = [each - attained for each in durations if each > attained]
    least = max(60, attained // 4)
    stops = {*(each for each in left if each >= least), *([least] if min(left) <= least else [])}
    return min(
        Fraction(sum(min(each, stop) for each in left), sum(each <= stop for each in left)) for stop in stops
    )


@pytest.mark.parametrize(
    ("durations", "attained", "seconds"),
    [
        ((10, 20), 0, 15),  # served for a minute at least
        ((600,), 0, 600),
        ((600,), 500, 100),
        ((100, 100, 1000), 0, 150),  # stopped after 100 s two of three complete: 300 s for two
        ((100, 100, 1000), 200, 800),
        ((200, 210), 0, 205),  # worth going on to the second
    ],
)
def test_a_completion_takes_as_much_service_as_the_best_time_to_stop_makes_it(durations, attained, seconds):
    assert seconds_per_completion(durations, attained) == seconds


def test_nothing_is_known_of_a_job_that_ran_longer_than_all():
    assert seconds_per_completion((10, 20), 20) is None
    assert seconds_per_completion((), 0) is None


@given(st.lists(st.integers(1, 5000), min_size=1, max_size=12), st.integers(0, 5000))
def test_the_sum_is_the_definition(durations, attained):
    durations.sort()
    found = seconds_per_completion(durations, attained)

    if max(durations) <= attained:
        assert found is None
    else:
        assert found == ceil(by_definition(durations, attained))


def test_a_job_of_which_nothing_is_known_counts_less_the_longer_it_has_run():
    found = [index_of_unknown(attained) for attained in (0, 1000, 10_000, 100_000, 10**7)]

    assert found == sorted(found)
    assert found[-1] > 50 * found[0]


@pytest.mark.parametrize("attained", [0, 1000, 20_000, 500_000])
def test_the_formula_for_any_duration_is_the_index_of_that_distribution(attained):
    shortest, longest, count = 60, 30 * 24 * 3600, 4000
    quantiles = [round(shortest * (longest / shortest) ** ((at + 0.5) / count)) for at in range(count)]

    assert index_of_unknown(attained) == pytest.approx(seconds_per_completion(quantiles, attained), rel=0.2)


def test_between_durations_that_were_seen_a_job_counts_about_the_same():
    seen = smoothed_durations([600 * factor for factor in range(4, 12)])
    found = [seconds_per_completion(seen, attained) for attained in range(2500, 6500, 40)]

    assert max(found) < 4 * min(found)
