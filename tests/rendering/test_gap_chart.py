from __future__ import annotations

from dataclasses import replace

import pytest
from searches import ASKED, ENDED, MILESTONES

from planner.search import Search

pytest.importorskip("matplotlib", reason="pictures are an extra: gpuplan[plots]")
gap_chart = pytest.importorskip("planner.rendering.gap_chart").gap_chart
SEARCH = Search(ASKED, None, MILESTONES, ENDED, None)


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
