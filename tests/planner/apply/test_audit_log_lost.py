"""An audit log that cannot be written, or is lost: nothing is done unrecorded, and nothing twice."""

from __future__ import annotations

import pytest

from gpuplan.models.errors import PartlyAppliedError, StalePlanError
from gpuplan.models.plan.audit import ActionOutcome
from gpuplan.planner.apply.audit_log import AuditLog, AuditWriter
from gpuplan.planner.apply.outcome import ApplyOutcome
from gpuplan.planner.executors.interface import ActionPhase, ActionProgress
from tests.support.builders.plan_builders import plan_of
from tests.support.doubles.wrapped_cluster import Wrapped
from tests.support.samples.apply_world import B, carry_out, recorded, running, steal, stop_after


def test_an_unforeseen_error_leaves_the_outcome_in_the_log(live, log):
    def broken(*_):
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        carry_out(live, log, on_progress=broken)

    assert recorded(log) == [("begin", ""), ("intent", "a1"), ("outcome", "a1")]
    assert carry_out(live, log, resume=True).done == ("a2", "a3")


def fail_writes(monkeypatch, *, from_write):
    """The disk is full from the given write on."""
    write = AuditWriter._write
    count = iter(range(100))

    def full(self, content):
        if next(count) >= from_write:
            raise OSError(28, "No space left on device")
        write(self, content)

    monkeypatch.setattr(AuditWriter, "_write", full)


def test_nothing_is_done_unless_its_intent_can_be_recorded(live, log, monkeypatch):
    with monkeypatch.context() as patch:
        fail_writes(patch, from_write=1)
        with pytest.raises(PartlyAppliedError, match="No space left on device") as caught:
            carry_out(live, log)
    failed = caught.value.outcome.failures[0]
    assert failed.action == "a2"
    assert "intent" in failed.reason
    assert running(live) == {"a", "runs"}

    outcome = carry_out(live, log, resume=True)
    assert (outcome.skipped, outcome.done) == (("a1",), ("a2", "a3"))
    assert [record.action for record in log.records() if record.outcome is ActionOutcome.SKIPPED] == ["a1"]


def test_a_plan_done_with_an_end_that_cannot_be_recorded_is_told_and_its_log_completed_later(
    live, log, monkeypatch
):
    with monkeypatch.context() as patch:
        fail_writes(patch, from_write=3)
        with pytest.raises(PartlyAppliedError, match="audit log") as caught:
            carry_out(live, log)
    assert caught.value.outcome == ApplyOutcome(done=("a1", "a2", "a3"))
    assert running(live) == {"a", "b", "c", "runs"}

    outcome = carry_out(live, log, resume=True)
    assert outcome.skipped == ("a1", "a2", "a3")
    assert recorded(log)[-3:] == [("begin", ""), ("outcome", "a3"), ("end", "")]


def test_a_lost_log_is_made_up_for_by_what_the_cluster_knows(live, log, tmp_path):
    with pytest.raises(PartlyAppliedError):
        carry_out(live, log, stop=stop_after(2))
    other = AuditLog(tmp_path / "new.jsonl")

    outcome = carry_out(live, other, resume=True)

    assert (outcome.skipped, outcome.done) == (("a1", "a2"), ("a3",))
    skipped = [record for record in other.records() if record.outcome is ActionOutcome.SKIPPED]
    assert [record.action for record in skipped] == ["a1", "a2"]


def test_a_lost_log_of_a_complete_apply_is_made_up_for_too(live, log, tmp_path):
    carry_out(live, log)
    other = AuditLog(tmp_path / "new.jsonl")

    assert carry_out(live, other).skipped == ("a1", "a2", "a3")
    assert recorded(other) == [
        ("begin", ""),
        ("outcome", "a1"),
        ("outcome", "a2"),
        ("outcome", "a3"),
        ("end", ""),
    ]


def left_open(live, log, monkeypatch):
    """An apply that started job a and could record neither that nor its end."""
    with monkeypatch.context() as patch:
        fail_writes(patch, from_write=1)
        with pytest.raises(PartlyAppliedError):
            carry_out(live, log)
    assert recorded(log) == [("begin", ""), ("intent", "a1")]


def test_the_next_apply_completes_the_records_of_a_plan_that_is_given_up(live, log, monkeypatch):
    left_open(live, log, monkeypatch)
    other = plan_of(live.snapshot(), B)

    carry_out(live, log, plan=other)

    given_up = log.records()[0].plan_uid
    own = [(each.kind.value, each.action) for each in log.records() if each.plan_uid == given_up]
    assert own == [("begin", ""), ("intent", "a1"), ("outcome", "a1"), ("end", "")]
    (outcome,) = (each for each in log.records() if each.plan_uid == given_up and each.outcome)
    assert (outcome.outcome, outcome.type, outcome.subject) == (ActionOutcome.SKIPPED, "start", "job a")
    assert log.records()[-1].detail.startswith("complete")


def test_a_plan_that_became_stale_on_the_way_is_recorded_as_far_as_it_went(live, log, monkeypatch):
    left_open(live, log, monkeypatch)
    steal(live, B)

    for _ in range(2):
        with pytest.raises(StalePlanError):
            carry_out(live, log, resume=True)

    assert recorded(log) == [("begin", ""), ("intent", "a1"), ("outcome", "a1"), ("end", "")]


def test_a_plan_with_an_action_that_may_still_land_stays_open(live, log, monkeypatch):
    left_open(live, log, monkeypatch)
    before = recorded(log)

    carry_out(Undecided(live, key=f"{log.records()[0].plan_uid}:a1"), log, plan=plan_of(live.snapshot(), B))

    given_up = log.records()[0].plan_uid
    assert [(each.kind.value, each.action) for each in log.records() if each.plan_uid == given_up] == before


class Undecided(Wrapped):
    """A cluster on which one action is under way."""

    def __init__(self, inner, key):
        super().__init__(inner)
        self.key = key

    def observe(self, keys):
        under_way = {self.key: ActionProgress(ActionPhase.UNDER_WAY)}
        return self.inner.observe(keys) | {key: under_way[key] for key in keys if key in under_way}
