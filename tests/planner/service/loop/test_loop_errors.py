"""Trouble in a run: what cannot be read, done or written is told, and outlived."""

from __future__ import annotations

import logging
from dataclasses import replace

import pytest

from gpuplan.models.errors import BadInputError, InputProblem, PlannerError
from gpuplan.planner.service.history import EpochOutcome, History
from tests.support.doubles.wrapped_cluster import Wrapped


class FailingAt(Wrapped):
    """The cluster, refusing what comes after so many actions."""

    def __init__(self, inner, after, error):
        super().__init__(inner)
        self.after, self.error = after, error

    def begin(self, action, key):
        self.after -= 1
        if self.after < 0:
            raise self.error
        return self.inner.begin(action, key)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("after", "error", "outcome", "then"),
    [
        (0, PlannerError("no"), "failed", "applied"),
        (1, PlannerError("no"), "partly_applied", "applied"),
        # Whether it was done is unknown: the plan is resumed, not given up.
        (0, ZeroDivisionError("oops"), "failed", "resumed"),
        (1, ZeroDivisionError("oops"), "partly_applied", "resumed"),
    ],
)
def test_what_was_done_before_an_action_failed_is_recorded_and_the_rest_is_planned_anew(
    bench, after, error, outcome, then
):
    one = bench()
    live = one.live
    one.live = replace(live, executor=FailingAt(one.cluster, after, error))
    assert not one.epochs(1)
    one.live = live
    assert one.epochs(1 if then == "resumed" else 2)

    first, second, *_ = one.records()
    assert one.outcomes() == [outcome, then, "unchanged"]
    assert (first.done, first.undone) == (after, 2 - after)
    assert second.done == 2 - after
    assert sum(record.done for record in one.records()) == len(one.plans_of_steps())
    assert str(error) in first.error


def test_an_epoch_that_cannot_read_is_recorded_and_retried_ever_later_while_the_last_plan_stays(bench):
    one = bench()
    one.epochs(1)
    good = one.context.plans.latest()
    problem = BadInputError((InputProblem("jobs.yaml:3", "no such queue."),))

    def unreadable():
        raise problem

    read = one.reader
    one.reader = unreadable
    one.stop.pauses.clear()
    assert not one.epochs(5)
    one.reader = read

    failed = one.records()[1:]
    assert {record.outcome for record in failed} == {EpochOutcome.FAILED}
    assert all("jobs.yaml:3: no such queue." in record.error for record in failed)
    shortest, *_, longest = one.stop.pauses
    assert shortest < longest / 4
    assert one.context.plans.latest() == good
    assert one.epochs(1)


def test_a_defect_in_one_epoch_does_not_end_the_run(bench, caplog):
    one = bench()
    calls = []

    def broken():
        calls.append(None)
        if len(calls) == 1:
            raise ZeroDivisionError("oops")
        return one.live.read()

    one.reader = broken
    with caplog.at_level(logging.ERROR, "gpuplan.planner.service"):
        one.epochs(2)

    assert one.outcomes() == ["failed", "applied"]
    assert one.records()[0].error == "defect: ZeroDivisionError: oops"
    assert "ZeroDivisionError" in caplog.text


def test_a_latest_plan_that_cannot_be_read_is_passed_over(bench):
    one = bench(applies=False)
    one.epochs(1)
    path = (one.folder / "plans" / "latest.json").resolve()
    path.write_text("{}")

    assert one.epochs(1)


def test_a_history_that_cannot_be_written_is_trouble_but_no_end(bench, caplog, monkeypatch):
    one = bench()

    def full(self, record):
        raise PlannerError("the disk is full.")

    with monkeypatch.context() as patch:
        patch.setattr(History, "add", full)
        with caplog.at_level(logging.ERROR, "gpuplan.planner.service"):
            assert not one.epochs(1)
    assert "not_recorded" in caplog.text
    assert one.epochs(1)


def test_a_history_that_cannot_be_read_after_the_start_is_no_end(bench, monkeypatch):
    one = bench()
    number, asked = History.next_number, []

    def once(self):
        asked.append(None)
        if len(asked) > 1:
            raise PlannerError("the disk is gone.")
        return number.fget(self)

    monkeypatch.setattr(History, "next_number", property(once))

    assert one.epochs(3)
    assert [record.number for record in one.records()] == [1, 2, 3]


def test_an_epoch_that_was_not_recorded_leaves_a_gap_in_the_history(bench, monkeypatch):
    one, add, calls = bench(), History.add, []

    def full_once(self, record):
        calls.append(None)
        if len(calls) == 2:
            raise PlannerError("the disk is full.")
        add(self, record)

    monkeypatch.setattr(History, "add", full_once)

    assert one.epochs(3)
    assert [record.number for record in one.records()] == [1, 3]
    numbers = sorted(int(path.name[:6]) for path in one.context.plans.folder.glob("0*"))
    assert numbers == [1, 2, 3]


def test_an_audit_log_that_cannot_be_read_at_the_start_is_no_end(bench, caplog):
    one = bench()
    one.epochs(1)
    (one.folder / "audit.jsonl").write_text("edited\n")
    with caplog.at_level(logging.ERROR, "gpuplan.planner.service"):
        assert one.epochs(1)

    assert "not_resumed" in caplog.text
    assert one.outcomes() == ["applied", "unchanged"]
