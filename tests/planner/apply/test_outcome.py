"""The cluster says what is done, the audit log records it: what becomes of a plan when the two differ."""

from __future__ import annotations

import shutil
from datetime import timedelta

import pytest

from gpuplan.models.errors import PartlyAppliedError
from gpuplan.planner.apply.audit_log import AuditLog
from gpuplan.planner.apply.outcome import DriftedPlanError, UnperformedError
from gpuplan.planner.executors.simulated import SimulatedCluster
from gpuplan.planner.plan_file.plan_file import load_plan, save_plan, uid_of
from tests.support.builders.build import NOW
from tests.support.output.golden import figures
from tests.support.samples.apply_world import PLAN, WORLD, carry_out, recorded, running, stop_after

MADE_AGAIN = PLAN.model_copy(update={"created_at": NOW + timedelta(minutes=5)})


@pytest.fixture
def restored(tmp_path, log):
    """A cluster in which the plan was applied, and which was then restored from an earlier copy."""
    with SimulatedCluster.create(tmp_path / "c.db", WORLD) as live:
        shutil.copy(tmp_path / "c.db", tmp_path / "copy.db")
        carry_out(live, log)
    shutil.move(tmp_path / "copy.db", tmp_path / "c.db")
    with SimulatedCluster(tmp_path / "c.db") as live:
        assert running(live) == {"runs"}
        yield live


def test_what_is_recorded_and_not_done_is_an_error_of_its_own(restored, log):
    before = log.records()

    with pytest.raises(UnperformedError) as caught:
        carry_out(restored, log)

    assert caught.value.exit_code == 1
    assert caught.value.lost == ("a1", "a2", "a3")
    assert figures(str(caught.value)) == f"{PLAN.plan_id} 3 a1 a2 a3"
    assert (running(restored), log.records()) == ({"runs"}, before)


def test_resuming_does_not_pass_over_what_the_cluster_has_not_done(tmp_path, log):
    with SimulatedCluster.create(tmp_path / "c.db", WORLD) as live:
        with pytest.raises(PartlyAppliedError):
            carry_out(live, log, stop=stop_after(1))
        live._db.execute("PRAGMA wal_checkpoint(TRUNCATE)")
        shutil.copy(tmp_path / "c.db", tmp_path / "copy.db")
        carry_out(live, log, resume=True)

    shutil.move(tmp_path / "copy.db", tmp_path / "c.db")
    with SimulatedCluster(tmp_path / "c.db") as live:
        with pytest.raises(UnperformedError) as caught:
            carry_out(live, log, resume=True)
        assert caught.value.lost == ("a2", "a3")
        assert running(live) == {"a", "runs"}


def test_the_same_plan_made_again_is_carried_out_in_a_cluster_that_was_restored(restored, log):
    assert MADE_AGAIN.plan_id == PLAN.plan_id

    assert carry_out(restored, log, plan=MADE_AGAIN).done == ("a1", "a2", "a3")

    assert running(restored) == {"a", "b", "c", "runs"}
    assert [record.plan_uid for record in log.records() if not record.action] == [
        uid_of(plan) for plan in (PLAN, PLAN, MADE_AGAIN, MADE_AGAIN)
    ]


def test_a_plan_made_again_that_was_applied_before_is_stale_and_not_done(live, log):
    carry_out(live, log)

    with pytest.raises(DriftedPlanError) as caught:
        carry_out(live, log, plan=MADE_AGAIN)
    first = caught.value.items[0]
    assert (first.subject, first.change) == ("job a", "is already running")


def test_all_that_read_one_plan_file_mean_the_same_plan(tmp_path):
    made = PLAN.model_copy(update={"created_at": NOW + timedelta(microseconds=123456)})
    save_plan(made, tmp_path / "plan.json")

    assert uid_of(load_plan(tmp_path / "plan.json")) == uid_of(made)
    assert uid_of(made).startswith(f"{made.plan_id}-")
    assert uid_of(made) != uid_of(MADE_AGAIN)


def test_a_log_of_another_cluster_says_nothing_of_this_one(live, log, tmp_path):
    carry_out(live, log)
    with SimulatedCluster.create(tmp_path / "other.db", WORLD) as other:
        assert carry_out(other, log).done == ("a1", "a2", "a3")


def test_what_the_cluster_has_done_counts_without_any_log(live, log, tmp_path):
    with pytest.raises(PartlyAppliedError):
        carry_out(live, log, stop=stop_after(2))
    fresh = AuditLog(tmp_path / "fresh.jsonl")

    assert carry_out(live, fresh, resume=True).skipped == ("a1", "a2")
    assert recorded(fresh)[:3] == [("begin", ""), ("outcome", "a1"), ("outcome", "a2")]
