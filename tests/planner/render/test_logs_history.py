"""The history as a table: one line an epoch, what went wrong below it."""

from __future__ import annotations

from datetime import timedelta

import pytest

from gpuplan.planner.render.logs import history_text
from gpuplan.planner.render.style import Style
from gpuplan.planner.service.history import EpochOutcome, EpochRecord, KnobChange
from tests.support.builders.build import NOW

STYLE = Style(width=80)


def record(number, outcome=EpochOutcome.APPLIED, **about):
    began = NOW + timedelta(minutes=number)
    return EpochRecord(number=number, began_at=began, ended_at=began, outcome=outcome, **about)


RECORDS = (
    record(
        1,
        plan_id="7c1e55aa01234567",
        objective=2_839_283,
        gap=0.016,
        done=3_300,
        undone=67,
    ),
    record(2, EpochOutcome.FAILED, error="jobs.yaml:3: no such queue.\nMaybe 'q' was meant."),
    record(3, EpochOutcome.UNCHANGED, plan_id="0" * 16, objective=0, gap=80.0, skipped_ticks=1),
    record(
        4,
        EpochOutcome.PARTLY_APPLIED,
        plan_id="1" * 16,
        objective=-5,
        done=1,
        done_before=2,
        undone=3,
        error="action a4 failed",
        policy_changes=(KnobChange(knob="disruption.preempt", old=True, new=False),),
    ),
    record(5, EpochOutcome.PLANNED, policy_error="policy.yaml:1: broken\nmore"),
)

EXPECTED = """\
  EPOCH  BEGAN     OUTCOME         PLAN             DONE  OBJECTIVE        GAP
      1  12:01:00  applied         7c1e55aa  3,300/3,367  2,839,283      1.6 %
      2  12:02:00  failed
         jobs.yaml:3: no such queue.
      3  12:03:00  unchanged       00000000                       0  80 points
         1 tick skipped
      4  12:04:00  partly_applied  11111111          3/6         -5
         action a4 failed; disruption.preempt: True → False
      5  12:05:00  planned
         policy kept: policy.yaml:1: broken

5 epochs: 1 planned, 1 unchanged, 1 applied, 1 partly_applied, 1 failed. 3,301
steps carried out.
"""


def test_a_history_of_all_kinds():
    assert history_text(RECORDS, STYLE) == EXPECTED


def test_no_epochs_are_said_to_be_none():
    assert history_text((), STYLE) == "No epochs.\n"


def test_other_days_are_told_with_their_date():
    earlier = EpochRecord(
        number=1, began_at=NOW - timedelta(days=1), ended_at=NOW, outcome=EpochOutcome.PLANNED
    )

    assert "11-19 12:00:00" in history_text((earlier, record(2)), STYLE)


@pytest.mark.parametrize("width", [40, 60, 80, 120])
def test_lines_fit_the_width(width):
    text = history_text(RECORDS, Style(width=width))

    assert max(map(len, text.splitlines())) <= max(width, 60)


def test_ascii_is_ascii():
    assert history_text(RECORDS, Style(width=80, ascii_only=True)).isascii()
