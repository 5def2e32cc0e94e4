"""One line an event, whatever is in it; two forms of the same."""

from __future__ import annotations

import io
import json
import logging

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpuplan.planner.service.event_log import LogFormat, log_event, logging_to

LOG = logging.getLogger("gpuplan.planner.service.testing")


def lines(form, *tellings):
    stream = io.StringIO()
    with logging_to(stream, form):
        for telling in tellings:
            telling()
    return stream.getvalue().removesuffix("\n").split("\n")


def test_an_event_is_a_line_of_pairs():
    (line,) = lines(LogFormat.TEXT, lambda: log_event(LOG, "planned", epoch=3, gap=0.5, who="a b", plan=None))

    at, rest = line.split(" ", 1)
    assert at.startswith("at=")
    assert at.endswith("Z")
    assert rest == 'level=info event=planned epoch=3 gap=0.5 who="a b"'


def test_of_a_change_nothing_is_left_out():
    (line,) = lines(
        LogFormat.TEXT,
        lambda: log_event(LOG, "policy_changed", epoch=3, whole={"knob": "a.b", "old": 5, "new": None}),
    )
    (emptied,) = lines(
        LogFormat.TEXT, lambda: log_event(LOG, "policy_changed", whole={"old": ["x"], "new": []})
    )

    assert line.endswith("event=policy_changed epoch=3 knob=a.b old=5 new=null")
    assert emptied.endswith("new=[]")


@pytest.mark.slow
@given(st.dictionaries(st.sampled_from(["a", "b", "c"]), st.text() | st.integers() | st.booleans()))
def test_json_holds_what_was_told_in_one_line(fields):
    (line,) = lines(LogFormat.JSON, lambda: log_event(LOG, "event", **fields))

    told = json.loads(line)
    assert {key: told[key] for key in told if key in "abc"} == {
        key: value for key, value in fields.items() if value != ""
    }
    assert (told["level"], told["event"]) == ("info", "event")


@given(st.text())
def test_text_is_one_line_whatever_is_told(value):
    stream = io.StringIO()
    with logging_to(stream, LogFormat.TEXT):
        log_event(LOG, "event", value=value)

    assert stream.getvalue().count("\n") == 1


@pytest.mark.parametrize("form", LogFormat)
def test_a_defect_has_its_traceback_in_the_same_line(form):
    def fail():
        try:
            int("boom")
        except ValueError:
            log_event(LOG, "defect", level=logging.ERROR, traced=True)

    (line,) = lines(form, fail)

    assert "Traceback" in line
    assert "boom" in line


def test_what_others_log_has_its_logger_and_message():
    (line,) = lines(
        LogFormat.JSON, lambda: logging.getLogger("gpuplan.planner.apply.apply").warning("a=%s", 1)
    )

    told = json.loads(line)
    assert (told["level"], told["logger"], told["message"]) == (
        "warning",
        "gpuplan.planner.apply.apply",
        "a=1",
    )


def test_others_are_heard_at_the_level_that_is_set_only():
    assert lines(LogFormat.TEXT, lambda: logging.getLogger("gpuplan.planner.epoch").info("phase=pose")) == [
        ""
    ]


def test_afterwards_logging_is_as_it_was():
    root = logging.getLogger()
    before = root.handlers[:], logging.getLogger("gpuplan.planner.service").level

    lines(LogFormat.TEXT)

    assert (root.handlers[:], logging.getLogger("gpuplan.planner.service").level) == before


def test_at_the_level_of_warnings_only_trouble_is_told():
    stream = io.StringIO()
    with logging_to(stream, LogFormat.TEXT, least=logging.WARNING):
        log_event(LOG, "planned")
        log_event(LOG, "policy_unreadable", level=logging.WARNING)

    assert [line.split()[2] for line in stream.getvalue().splitlines()] == ["event=policy_unreadable"]
