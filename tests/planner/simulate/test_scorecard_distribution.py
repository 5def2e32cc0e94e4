"""Means and percentiles say what is exact and what is only a lower bound."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from gpuplan.planner.simulate.scorecard import ObservedJob, distribution

SECONDS = st.integers(0, 50)


def test_nothing_has_no_distribution():
    assert distribution([]) is None


def test_percentiles_are_the_nearest_ranks():
    found = distribution(ObservedJob(value) for value in range(1, 101))

    assert (found.p50.value, found.p95.value, found.p99.value) == (50, 95, 99)
    assert found.mean.value == 50.5
    assert not any(each.at_least for each in (found.mean, found.p50, found.p95, found.p99))


def test_a_job_that_is_not_over_bounds_the_mean_and_the_percentiles_above_it():
    found = distribution([*(ObservedJob(value) for value in range(1, 100)), ObservedJob(60, censored=True)])

    assert found.mean.at_least
    assert not found.p50.at_least
    assert found.p95.at_least


@given(st.lists(st.tuples(SECONDS, st.booleans(), SECONDS), min_size=1, max_size=40))
def test_what_is_not_called_a_lower_bound_is_true_however_it_goes_on(jobs):
    told = distribution(ObservedJob(seconds, censored) for seconds, censored, _ in jobs)
    true = distribution(ObservedJob(seconds + more * censored) for seconds, censored, more in jobs)

    for name in ("mean", "p50", "p95", "p99"):
        figure, truth = getattr(told, name), getattr(true, name)
        assert figure.value <= truth.value
        assert figure.at_least or figure.value == truth.value
