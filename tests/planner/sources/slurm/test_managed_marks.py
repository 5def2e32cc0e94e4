"""Marks are read as they were written, and the text of operators stays."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpuplan.planner.action_marks import MarkStage
from gpuplan.planner.sources.slurm.managed import Mark, Marks

TEXTS = st.text(st.characters(codec="utf-8", exclude_categories=["C", "Z"]), max_size=20)
MARKS = st.builds(
    Mark, st.text("abc:/-0", min_size=1), st.sampled_from(MarkStage), TEXTS, st.integers(0, 2**40), TEXTS
)


@given(
    TEXTS.filter(lambda text: text not in ("(null)", "N/A")),
    st.lists(MARKS, max_size=6, unique_by=lambda mark: mark.key),
    st.none() | TEXTS,
    st.none() | st.integers(0, 2**40),
    TEXTS,
    st.none() | st.integers(0, 2**40),
)
def test_what_is_written_is_read(theirs, marks, required, submitted, promise, begin):
    promise_key = promise and "key"
    written = Marks(theirs, tuple(marks), required, submitted, promise, promise_key, begin)
    assert Marks.read(str(written)) == written


@pytest.mark.parametrize(
    "text", ["gpuplan", "see ticket 7", "gpuplan:{", 'gpuplan:{"marks":[{}]}', "gpuplan:{]"]
)
def test_a_text_that_gpuplan_did_not_write_is_left_as_it_is(text):
    assert str(Marks.read(text)) == text
    marked = Marks.read(text).with_mark(Mark("plan:start/1", MarkStage.ASKED, "gpu01"))
    assert str(marked).startswith(f"{text} gpuplan:")
    assert str(Marks.read(str(marked)).without("plan:start/1")) == text


@pytest.mark.parametrize("nothing", ["", "(null)", "N/A"])
def test_an_empty_field_has_no_marks(nothing):
    assert Marks.read(nothing) == Marks()
    assert str(Marks()) == ""


def test_a_new_step_replaces_the_mark_of_its_action_and_old_plans_are_forgotten():
    marks = (
        Marks().with_mark(Mark("a:start/1", MarkStage.ASKED)).with_mark(Mark("a:start/1", MarkStage.LANDED))
    )
    assert [mark.step for mark in marks.marks] == [MarkStage.LANDED]
    for number in range(20):
        marks = marks.with_mark(Mark(f"b{number}:preempt/1", MarkStage.LANDED))
    assert marks.of("a:start/1") is None
    assert marks.of("b19:preempt/1") is not None
