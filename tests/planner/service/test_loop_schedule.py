"""Epochs begin at ticks, never two at a time; after trouble sooner, then later and later."""

from __future__ import annotations

import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpuplan.planner.service.loop import FIRST_RETRY, LONGEST_RETRY, LONGEST_SECONDS, EpochSchedule

EVERY = 60.0


def pace(began=1000.0, seed=0):
    return EpochSchedule(EVERY, began=began, draw=random.Random(seed))


@given(st.lists(st.floats(0.01, 500), min_size=1, max_size=30), st.floats(-1e6, 1e6))
def test_good_epochs_begin_at_the_first_tick_after_the_one_before_and_skipped_ticks_are_those_between(
    durations, began
):
    paced, now, tick = pace(began), began, 0
    for seconds in durations:
        now += seconds
        pause = paced.after(now, trouble=False)
        now += pause.seconds
        begins = round((now - began) / EVERY)
        assert now == pytest.approx(began + begins * EVERY, abs=1e-6)
        assert 0 <= pause.seconds <= EVERY + 1e-6
        assert pause.skipped == begins - tick - 1
        tick = begins


def test_an_epoch_of_two_and_a_half_intervals_skips_two_ticks():
    pause = pace().after(1150.0, trouble=False)

    assert (pause.seconds, pause.skipped) == (30.0, 2)


@given(st.integers(0, 1000), st.integers(1, 40))
def test_retries_come_within_an_eighth_of_the_interval_then_double_up_to_four_intervals(seed, failures):
    paced, now = pace(seed=seed), 1000.0
    for number in range(failures):
        pause = paced.after(now, trouble=True)
        expected = EVERY * min(LONGEST_RETRY, FIRST_RETRY * 2**number)
        assert 0.8 * expected <= pause.seconds <= 1.2 * expected
        assert pause.skipped == 0
        now += pause.seconds
    assert paced.failures == failures


@pytest.mark.parametrize(
    ("every", "first", "longest"),
    [(60, 7.5, 240), (300, 37.5, 900), (900, 60, 900), (3600, 60, 3600), (86_400, 60, 86_400)],
)
def test_long_intervals_are_retried_within_a_minute_and_never_later_than_the_next_tick_would_be(
    every, first, longest
):
    paced, pauses = EpochSchedule(every, began=0.0, draw=random.Random(1)), []
    for _ in range(40):
        pauses.append(paced.after(sum(pauses), trouble=True).seconds)

    assert 0.8 * first <= pauses[0] <= 1.2 * first
    assert 0.8 * longest <= max(pauses) <= 1.2 * longest
    assert max(every, LONGEST_SECONDS) >= longest


def test_a_fault_that_lasts_a_year_overflows_nothing():
    paced = pace()

    for _ in range(5000):
        assert paced.after(1000.0, trouble=True).seconds <= 1.2 * LONGEST_RETRY * EVERY


def test_the_same_seed_retries_at_the_same_times_and_another_one_does_not():
    one, same, other = (pace(seed=seed).after(1001.0, trouble=True).seconds for seed in (1, 1, 2))

    assert one == same != other


def test_after_trouble_epochs_are_back_at_the_ticks():
    paced = pace()
    retried = paced.after(1003.0, trouble=True)
    again = paced.after(1003.0 + retried.seconds + 1, trouble=False)

    assert 1003.0 + retried.seconds + 1 + again.seconds == pytest.approx(1060.0)
    assert (again.skipped, paced.failures) == (0, 0)
