"""For how long GPUs have been hot or idle, and what goes on from one look to the next."""

from __future__ import annotations

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpuplan.models.health.measurement import Measurement, held_at_least, held_at_most, joined

SAMPLES = st.lists(st.tuples(st.integers(1, 90), st.integers(60, 100)), max_size=12).map(
    lambda steps: [
        (float(sum(step for step, _ in steps[: number + 1])), value)
        for number, (_, value) in enumerate(steps)
    ]
)
"""Samples in the order of time, between 1 and 90 seconds apart."""


def brute_force(samples, threshold, gap, *, holds):
    """The longest time up to the last sample in which all samples hold, without a long gap; None if none."""
    longest = None
    for first in range(len(samples)):
        part = samples[first:]
        near = all(later - at <= gap for (at, _), (later, _) in pairwise(part))
        if near and all(holds(value, threshold) for _, value in part):
            longest = max(longest or 0, int(part[-1][0] - part[0][0]))
    return longest


@given(SAMPLES, st.integers(70, 100), st.sampled_from([30, 60, 90]))
def test_a_gpu_is_hot_for_as_long_as_all_samples_up_to_now_are(samples, threshold, gap):
    seen = Measurement(node="n0", index=0, hot=held_at_least(samples, 70, gap=gap))

    expected = brute_force(samples, threshold, gap, holds=lambda value, least: value >= least)
    assert seen.hot_for(threshold) == expected


@given(SAMPLES, st.integers(0, 10), st.sampled_from([30, 90]))
def test_a_gpu_is_idle_for_as_long_as_all_samples_up_to_now_are(samples, threshold, gap):
    rates = [(at, value - 60) for at, value in samples]
    seen = Measurement(node="n0", index=0, idle=held_at_most(rates, 10, gap=gap))

    assert seen.idle_for(threshold) == brute_force(rates, threshold, gap, holds=lambda one, most: one <= most)


def test_only_steps_are_kept():
    samples = [(0, 60), (60, 88), (120, 90), (180, 90), (240, 95)]

    assert held_at_least(samples, 70, gap=60) == {95: 0, 90: 120, 88: 180}
    assert held_at_least(samples, 70, gap=59) == {95: 0}
    assert held_at_least([], 70, gap=60) == {}


def seen(period=0, **more):
    return Measurement(node="n0", index=0, period=period, **more)


def test_what_two_looks_find_has_lasted_since_the_first_began():
    before = seen(30, hot={90: 30, 88: 200}, idle={0: 30})

    now = joined(before, seen(30, hot={91: 30}, idle={3: 30}), 300)

    assert now.hot_for(91) == 30
    assert now.hot_for(90) == 330
    assert now.hot_for(88) == 500
    assert (now.idle_for(0), now.idle_for(3)) == (None, 330)


def test_what_began_within_a_look_has_not_lasted():
    now = joined(seen(30, hot={90: 30}), seen(30, hot={90: 20}), 60)

    assert now.hot_for(90) == 20


@pytest.mark.slow
@given(SAMPLES.filter(lambda found: len(found) > 1), st.data(), st.integers(70, 100))
def test_two_looks_that_meet_find_what_one_long_look_finds(samples, data, threshold):
    cut = data.draw(st.integers(0, len(samples) - 1))
    first, second = samples[: cut + 1], samples[cut:]
    before = seen(int(first[-1][0] - first[0][0]), hot=held_at_least(first, 70, gap=90))
    after = seen(int(second[-1][0] - second[0][0]), hot=held_at_least(second, 70, gap=90))

    both = joined(before, after, int(second[-1][0] - first[-1][0]))

    whole = seen(hot=held_at_least(samples, 70, gap=90))
    assert both.hot_for(threshold) == whole.hot_for(threshold)


@pytest.mark.parametrize("wrong", [{"hot": {60: 1}}, {"idle": {11: 1}}, {"xids": {0: 1}}, {"row_remap": "x"}])
def test_what_cannot_be_measured_is_refused(wrong):
    with pytest.raises(ValueError, match=next(iter(wrong))):
        seen(**wrong)


def test_a_measurement_reads_as_it_is_written():
    full = seen(900, temperature=91, hot={91: 60}, idle={0: 900}, xids={79: 900}, row_remap="failed")

    assert Measurement.model_validate(full.document()) == full
    assert full.document()["hot"] == {"91": "1m"}
