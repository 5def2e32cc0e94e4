"""Calendar: when recurring spans fall, and what a reservation may say."""

from __future__ import annotations

from datetime import timedelta

import pytest
from pydantic import ValidationError

from gpuplan.models.calendar import Recurring, Reservation, Tariff
from tests.support.builders import build
from tests.support.builders.build import NOW

HOUR = 3600


def spans(until=24 * HOUR, now=NOW, **about):
    return list(Recurring(**about).spans(now, until))


@pytest.mark.parametrize(
    ("start", "found"),
    [
        (0, [(0, HOUR)]),
        (5, [(5 * HOUR, 6 * HOUR)]),
        (-0.5, [(-1800, 1800)]),
        (-1, []),
        (23.9, [(int(23.9 * HOUR), int(24.9 * HOUR))]),
        (24, []),
    ],
)
def test_a_single_span_is_seen_unless_it_is_over_or_too_far_ahead(start, found):
    assert spans(start=NOW + timedelta(hours=start), duration=HOUR) == found


def test_a_cron_line_recurs_and_may_be_under_way():
    # It is noon: the span of ten is under way.
    assert spans(20 * HOUR, cron="0 10,20 * * *", duration=3 * HOUR) == [
        (-2 * HOUR, HOUR),
        (8 * HOUR, 11 * HOUR),
    ]
    assert spans(20 * HOUR, cron="0 9,20 * * *", duration=3 * HOUR) == [(8 * HOUR, 11 * HOUR)]
    assert spans(cron="0 12 * * *", duration=HOUR) == [(0, HOUR)]


def test_cron_lines_know_days_of_the_week():
    # NOW is a Friday.
    assert build.NOW.weekday() == 4
    week = 7 * 24 * HOUR

    assert spans(week, cron="0 12 * * 1", duration=HOUR) == [(3 * 24 * HOUR, 3 * 24 * HOUR + HOUR)]
    assert len(spans(week, cron="0 22 * * 1-5", duration=HOUR)) == 5


def test_spans_move_with_the_clock():
    about = {"cron": "17 3 * * *", "duration": 2 * HOUR}
    now = NOW + timedelta(hours=7, minutes=13, seconds=8)
    gone = int((now - NOW).total_seconds())

    assert spans(72 * HOUR, now=now, **about) == [
        (begins - gone, ends - gone) for begins, ends in spans(72 * HOUR + gone, **about) if ends > gone
    ]


@pytest.mark.slow
def test_spans_of_every_minute_for_ever_come_to_an_end():
    assert len(spans(10**9, cron="* * * * *", duration=60)) == 10_000


@pytest.mark.parametrize(
    "about",
    [
        {"duration": 60},
        {"duration": 60, "start": NOW, "cron": "0 0 * * *"},
        {"duration": 0, "start": NOW},
        {"duration": 60, "cron": "0 0 * *"},
        {"duration": 60, "cron": "0 0 * * * *"},
        {"duration": 60, "cron": "61 0 * * *"},
        {"duration": 60, "cron": "@daily"},
    ],
)
def test_a_span_begins_in_one_way_and_lasts(about):
    with pytest.raises(ValidationError):
        Recurring(**about)


@pytest.mark.parametrize(
    ("about", "words"),
    [
        ({"queues": ("q",)}, "expected one of nodes and count, found neither"),
        ({"queues": ("q",), "nodes": ("a",), "count": 1}, "found both"),
        ({"queues": ("q",), "nodes": ("a",), "gpu_model": "T4"}, "only with count"),
        ({"nodes": ("a",)}, "expected queues, users or job_labels"),
        ({"nodes": ("a",), "queues": ("q",), "kind": "maintenance"}, "no queues, users or job_labels"),
    ],
)
def test_a_reservation_says_which_nodes_and_for_which_jobs(about, words):
    with pytest.raises(ValidationError, match=words):
        Reservation(name="r", start=NOW, duration=60, **about)


def test_reservations_and_tariffs_that_say_enough_are_taken():
    assert Reservation(name="r", start=NOW, duration="2h", count=2, users=("eve",)).duration == 2 * HOUR
    assert Reservation(name="r", start=NOW, duration=60, nodes=("a",), kind="maintenance").count == 0
    assert Tariff(name="t", cron="0 0 * * *", duration="8h", price_per_gpu_hour=0.5).gpu_models == ()
