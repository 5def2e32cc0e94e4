"""Units: what people may write, the integer it is held as, and how it is printed again."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta, timezone

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic import TypeAdapter, ValidationError

from gpuplan.models.units import (
    LARGEST_COUNT,
    LARGEST_MIB,
    Count,
    Label,
    Mib,
    Milli,
    Milliseconds,
    Name,
    Seconds,
    Timestamp,
)
from tests.support.seeds import examples

MODEST = settings(max_examples=examples(100), deadline=None)


def held(unit, written):
    return TypeAdapter(unit).validate_python(written)


def printed(unit, value):
    return TypeAdapter(unit).dump_python(value, mode="json")


@pytest.mark.parametrize(
    ("unit", "written", "value"),
    [
        (Milli, 4, 4000),
        (Milli, 11.3, 11_300),
        (Milli, "11.5", 11_500),
        (Milli, "500m", 500),
        (Milli, " 2 ", 2000),
        (Milli, 0.001, 1),
        (Milli, LARGEST_COUNT, LARGEST_COUNT * 1000),
        (Mib, 512, 512),
        (Mib, "64Gi", 65_536),
        (Mib, "1024Ki", 1),
        (Mib, "1.5Gi", 1536),
        (Mib, "1Ti", 1_048_576),
        (Mib, "0Gi", 0),
        (Seconds, 90, 90),
        (Seconds, "90s", 90),
        (Seconds, "1h30m", 5400),
        (Seconds, "2d", 172_800),
        (Seconds, "1d2h3m4s", 93_784),
        (Seconds, "1000ms", 1),
        (Milliseconds, 10, 10_000),
        (Milliseconds, "0.5s", 500),
        (Milliseconds, "250ms", 250),
        (Milliseconds, "1s1ms", 1001),
    ],
)
def test_what_people_write_is_held_as_an_integer(unit, written, value):
    assert held(unit, written) == value


REFUSED = {
    Milli: (
        *(None, True, [], "", "x", "1.2345", "0.5m", "nan", "inf", -0.001, "1,5"),
        *(LARGEST_COUNT + 1, 1e308, float("nan"), float("inf")),
    ),
    Mib: (None, True, 1.5, "64", "64GB", "64gi", "-1Gi", "Gi", "", -1, LARGEST_MIB + 1),
    Seconds: (None, True, 1.5, "", "s", "90", "1.5h", "30m1h", "-5s", "0.5s", -1, "1e3s"),
    Milliseconds: (None, 1.5, "0.0005s", "-1ms", "367d"),
    Count: ("1", 1.0, True, -1, LARGEST_COUNT + 1),
    Name: ("", " a", "a ", "-a", "a-", "a b", "a\n", "é", "a" * 254, 5, None),
    Label: ("a" * 254, 5, None),
    Timestamp: ("", "soon", "2026-11-20T12:00:00", 0, 1.5, None, True),
}


@pytest.mark.parametrize(
    ("unit", "written"), [(unit, value) for unit, all_ in REFUSED.items() for value in all_]
)
def test_what_has_no_clear_meaning_is_refused(unit, written):
    with pytest.raises(ValidationError):
        held(unit, written)


@pytest.mark.parametrize(
    ("unit", "written"),
    [
        (Milli, "1e999999999"),
        (Milli, "1e999999999m"),
        (Mib, "9" * 40 + "Gi"),
        (Timestamp, "9999-12-31T23:59:59-14:00"),
        (Timestamp, "0001-01-01T00:00:00+14:00"),
    ],
)
def test_what_is_beyond_all_bounds_is_refused(unit, written):
    with pytest.raises(ValidationError):
        held(unit, written)


@MODEST
@given(st.integers(0, LARGEST_COUNT * 1000))
def test_thousandths_come_back_from_print(value):
    assert held(Milli, printed(Milli, value)) == value
    assert held(Milli, f"{value}m") == value


@MODEST
@given(st.integers(0, 100 * 366 * 86_400))
def test_seconds_come_back_from_print(value):
    assert held(Seconds, printed(Seconds, value)) == value
    assert held(Milliseconds, "1ms") == 1


@MODEST
@given(st.integers(0, 366 * 86_400_000))
def test_milliseconds_come_back_from_print(value):
    assert held(Milliseconds, printed(Milliseconds, value)) == value


@pytest.mark.parametrize(
    ("unit", "value", "text"),
    [
        (Milli, 4000, 4),
        (Milli, 11_300, 11.3),
        (Milli, 1, 0.001),
        (Seconds, 0, "0s"),
        (Seconds, 5400, "1h30m"),
        (Seconds, 86_400, "24h"),
        (Seconds, 61, "1m1s"),
        (Milliseconds, 1500, "1500ms"),
        (Milliseconds, 60_000, "1m"),
    ],
)
def test_values_are_printed_as_people_write_them(unit, value, text):
    assert printed(unit, value) == text


@MODEST
@given(st.integers(1, 10**6), st.sampled_from(["Ki", "Mi", "Gi", "k", "M", "G"]))
def test_memory_is_rounded_up_to_whole_mib(amount, suffix):
    scale = {"Ki": 2**10, "Mi": 2**20, "Gi": 2**30, "k": 10**3, "M": 10**6, "G": 10**9}[suffix]

    value = held(Mib, f"{amount}{suffix}")

    assert (value - 1) * 2**20 < amount * scale <= value * 2**20


@pytest.mark.parametrize(
    ("written", "text"),
    [
        ("2026-11-20T12:00:00Z", "2026-11-20T12:00:00Z"),
        ("2026-11-20T13:30:00+01:30", "2026-11-20T12:00:00Z"),
        ("2026-11-20T12:00:00.999Z", "2026-11-20T12:00:00Z"),
        ("2026-11-20 12:00:00Z", "2026-11-20T12:00:00Z"),
        (datetime(2026, 11, 20, 14, tzinfo=timezone(timedelta(hours=2))), "2026-11-20T12:00:00Z"),
    ],
)
def test_times_are_kept_in_utc_to_the_second(written, text):
    found = held(Timestamp, written)

    assert found == datetime(2026, 11, 20, 12, tzinfo=UTC)
    assert printed(Timestamp, found) == text


@pytest.mark.parametrize("year", [1, 99, 999, 1000, 9999])
def test_every_year_is_written_so_that_it_can_be_read(year):
    moment = datetime(year, 2, 3, 4, 5, 6, tzinfo=UTC)

    text = printed(Timestamp, moment)

    assert text == f"{year:04d}-02-03T04:05:06Z"
    assert held(Timestamp, text) == moment


@pytest.mark.parametrize(
    "name", ["a", "h100-03", "NVIDIA-A100-SXM4-40GB", "user@host", "rdma/hca", "a.b_c:1+2", "a" * 253]
)
def test_names_are_those_of_kubernetes_and_slurm(name):
    assert held(Name, name) == name
