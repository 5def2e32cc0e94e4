from __future__ import annotations

import re
from dataclasses import replace

import pytest

from gpuplan.planner.io.search_log import SearchRecord
from gpuplan.planner.render.charts.gap import gap_chart, gap_svg
from tests.support.builders.search_log_builders import ASKED, ENDED, MILESTONES

SEARCH = SearchRecord(ASKED, MILESTONES, ENDED, None)


@pytest.mark.parametrize(("kind", "magic"), [("png", b"\x89PNG"), ("svg", b"<?xml")])
def test_the_same_search_is_the_same_picture(kind, magic):
    first, second = gap_chart(SEARCH, kind), gap_chart(SEARCH, kind)

    assert first == second
    assert first.startswith(magic)


def test_another_gap_is_another_picture():
    other = replace(SEARCH, finished=ENDED.model_copy(update={"gap": 0.0}))

    assert gap_chart(SEARCH, "svg") != gap_chart(other, "svg")


@pytest.mark.parametrize(
    "changed",
    [
        {"milestones": ()},
        {"milestones": (), "finished": None},
        {"milestones": MILESTONES[:1], "finished": None},
        {"finished": ENDED.model_copy(update={"gap": None, "bound": None})},
        {"milestones": tuple(replace(each, objective=each.bound) for each in MILESTONES)},
        {"milestones": tuple(replace(each, seconds=0.0) for each in MILESTONES), "finished": None},
    ],
)
def test_whatever_is_known_can_be_drawn(changed):
    assert gap_chart(replace(SEARCH, **changed), "png")


def test_on_a_page_the_gap_is_told_too():
    end = ENDED.model_copy(update={"gap": 0.0159})

    assert "Proven gap over 2.4 seconds: 20.0 % at first, 1.6 % at the end" in gap_svg(MILESTONES, end)


def test_a_gap_that_stays_large_is_drawn_all_the_same():
    large = [replace(each, objective=100, bound=400) for each in MILESTONES]
    heights = re.findall(
        r"<text[^>]*>([\d.]+) %</text>", gap_svg(large, ENDED.model_copy(update={"gap": 3.0}))
    )

    assert "300" in heights


def test_the_gap_of_a_plan_that_changes_nothing_is_drawn_in_points():
    idle = [replace(each, objective=0, bound=1_235_007 - number) for number, each in enumerate(MILESTONES)]
    end = ENDED.model_copy(update={"objective": 0, "bound": 1_235_000, "gap": 1_235_000.0})
    drawn = gap_svg(idle, end)

    assert "1,235,007 points at first, 1,235,000 points at the end" in drawn
    assert "%</text>" not in drawn


def test_what_was_never_known_or_only_once_is_not_drawn():
    assert gap_svg((), ENDED.model_copy(update={"gap": None})) == ""
    assert gap_svg((), ENDED) == ""
