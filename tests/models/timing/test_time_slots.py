"""Slots: where the clock cuts time, and which of them a job takes."""

from __future__ import annotations

from datetime import timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpuplan.models.policy.settings import HorizonPolicy
from gpuplan.models.timing.time_slots import TimeSlots
from tests.support.builders import build

LENGTHS = st.sampled_from((60, 600, 2400, 3600, 86_400, 5000))


def slots(count=4, *, length=3600, minutes=0):
    """Slots from so many minutes after noon on."""
    return TimeSlots.of(HorizonPolicy(slots=count, length=length), build.NOW + timedelta(minutes=minutes))


def test_the_first_slot_is_what_is_left_of_one():
    assert slots().edges == (0, 3600, 7200, 10_800, 14_400)
    assert slots(2, minutes=50).edges == (0, 600, 4200)
    assert slots(1, minutes=59).edges == (0, 60)


@given(st.integers(1, 96), LENGTHS, st.integers(0, 10**9))
def test_later_slots_begin_on_a_grid_that_never_moves(count, length, seconds):
    now = build.NOW + timedelta(seconds=seconds)
    found = TimeSlots.of(HorizonPolicy(slots=count, length=length), now)

    assert found.count == count
    assert found.edges[0] == 0 < found.edges[1] <= length
    assert {(int(now.timestamp()) + edge) % length for edge in found.edges[1:]} == {0}
    assert {later - edge for edge, later in zip(found.edges[1:], found.edges[2:], strict=False)} <= {length}


@given(st.integers(1, 20), LENGTHS, st.integers(0, 59), st.integers(-100, 10**6))
def test_after_is_the_first_slot_that_does_not_begin_before(count, length, minutes, second):
    found = slots(count, length=length, minutes=minutes)
    expected = [slot for slot in range(count) if found.edges[slot] >= second]

    assert found.after(second) == (expected[0] if expected else count)


@given(st.integers(1, 20), LENGTHS, st.integers(0, 59), st.integers(0, 10**6), st.data())
def test_no_job_is_gone_before_it_ends(count, length, minutes, seconds, data):
    found = slots(count, length=length, minutes=minutes)
    start = data.draw(st.integers(0, count - 1))

    until = found.until(start, seconds)

    assert start < until <= count
    ends = found.edges[start] + seconds
    if until < count:
        assert found.edges[until] >= ends
    if until > start + 1:
        assert found.edges[until - 1] < ends


@pytest.mark.parametrize(
    ("start", "seconds", "until"), [(0, 3600, 1), (0, 3601, 2), (3, 60, 4), (2, 9**9, 4)]
)
def test_an_end_on_an_edge_frees_the_slot_that_begins_there(start, seconds, until):
    assert slots().until(start, seconds) == until


@given(st.integers(0, 59), st.integers(0, 10**5))
def test_a_job_that_starts_later_is_gone_no_earlier(minutes, seconds):
    found = slots(9, minutes=minutes)
    untils = [found.until(slot, seconds) for slot in range(9)]

    assert untils == sorted(untils)
