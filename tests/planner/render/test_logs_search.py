from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpuplan.models.plan.solution import DRAFT_STAGE, Milestone
from gpuplan.planner.io.search_log import SearchRecord
from gpuplan.planner.render.logs import progress_lines, search_text
from gpuplan.planner.render.style import Style
from tests.support.builders.search_log_builders import ASKED, ENDED, MILESTONES
from tests.support.output.golden import golden_section

TEXTS = Path(__file__).with_name("texts.golden.txt")
SEARCH = SearchRecord(
    ASKED,
    MILESTONES,
    ENDED,
    None,
)


def style(width=80, *, ascii_only=False):
    return Style(width=width, ascii_only=ascii_only)


def now(milestone, *, width=80, seconds=2.3):
    return progress_lines(milestone, seconds=seconds, limit=10.0, style=style(width))


def test_what_is_known_now_at_eighty_columns():
    assert now(MILESTONES[3]) == [
        "milp  objective 2,784,012  found 2,872,479  bound 2,884,380  gap 3.6 %",
        "2 s used  8 s left  Ctrl-C keeps this plan",
    ]


def test_sixty_columns_take_another_line():
    # Less the margin of two.
    assert now(MILESTONES[3], width=58) == [
        "milp  objective 2,784,012  found 2,872,479",
        "bound 2,884,380  gap 3.6 %",
        "2 s used  8 s left  Ctrl-C keeps this plan",
    ]


def test_before_the_first_plan_there_is_none_to_keep():
    assert now(MILESTONES[0]) == ["greedy  no plan yet  bound 3,341,062", "2 s used  8 s left"]


def test_while_the_plan_is_written_the_search_is_over():
    assert now(replace(MILESTONES[-1], stage=DRAFT_STAGE))[-1] == "2 s used"


def test_after_the_limit_nothing_is_left():
    assert "0 s left" in now(MILESTONES[-1], seconds=12.0)[-1]


def test_what_was_found_but_is_no_better_is_not_told():
    assert "found" not in now(replace(MILESTONES[3], found=2_784_012))[0]


@given(
    st.builds(
        Milestone,
        seconds=st.floats(0, 1e5),
        stage=st.sampled_from(["greedy", "relaxation", "milp", "place", "neighbourhoods", DRAFT_STAGE]),
        objective=st.none() | st.integers(-(10**15), 10**15),
        bound=st.integers(-(10**15), 10**15),
        found=st.none() | st.integers(-(10**15), 10**15),
    ),
    st.sampled_from([58, 60, 80, 200]),
)
def test_no_line_is_wider_than_the_terminal(milestone, width):
    assert all(len(line) <= width for line in now(milestone, width=width))


def test_a_search_at_eighty_columns():
    found = search_text(SEARCH, style())

    assert found == golden_section(TEXTS, "a search", found)


def test_in_ascii_nothing_else_is_shown():
    many = replace(SEARCH, milestones=MILESTONES * 10)

    assert search_text(many, style(ascii_only=True)).isascii()


def test_of_many_milestones_first_and_last_are_shown_and_that_some_are_not():
    many = tuple(Milestone(float(index), "milp", index, 1000) for index in range(500))

    shown = search_text(replace(SEARCH, milestones=many), style())

    assert "     0.00  milp" in shown
    assert "   499.00  milp" in shown
    assert "… 20 of 500 milestones" in shown
    assert len(shown.splitlines()) < 40


@pytest.mark.parametrize(
    ("changed", "words"),
    [
        ({"finished": None}, "The log ends here: planning was killed, or still goes on."),
        ({"finished": None, "failure": "MemoryError"}, "No plan: MemoryError"),
        (
            {"finished": ENDED.model_copy(update={"how": "interrupted"})},
            "Ended after 2.4 s: interrupted. Plan",
        ),
        (
            {
                "began": ASKED.model_copy(update={"ticks": 20}),
                "finished": ENDED.model_copy(update={"how": "time"}),
            },
            "the time was up before the deterministic work was done. Plan",
        ),
        (
            {"finished": ENDED.model_copy(update={"fallback": "milp: x", "gap": None})},
            "bound unknown. Fell back: milp: x.",
        ),
    ],
)
def test_how_it_ended_is_told(changed, words):
    shown = " ".join(search_text(replace(SEARCH, **changed), style()).split())

    assert words in shown


def test_a_search_without_milestones_or_solvers_is_one_too():
    began = ASKED.model_copy(update={"solvers": {}, "ticks": 20})

    shown = search_text(SearchRecord(began, (), None, None), style())

    assert "solvers none" in shown
    assert "limit 20 ticks" in shown


@pytest.mark.parametrize(
    ("objective", "bound", "words"),
    [
        (0, 3_341_062, "gap 3,341,062 points"),
        (0, 1, "gap 1 point"),
        (-200, 1_000, "gap 1,200 points"),
        (100, 3_341_062, "gap 3,340,962 points"),
        (100, 200, "gap 100 points"),
        (100, 199, "gap 99.0 %"),
        (0, 0, "gap 0.0 %"),
        (-200, -200, "gap 0.0 %"),
    ],
)
def test_a_gap_of_which_a_share_of_the_objective_says_nothing_is_given_in_points(objective, bound, words):
    assert now(Milestone(0.1, "greedy", objective, bound))[0].endswith(words)
