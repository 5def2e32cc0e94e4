"""A plan applied in part: the run says exactly what is done, and a later one does the rest."""

from __future__ import annotations

from datetime import timedelta

import pytest

from gpuplan.models.errors import PartlyAppliedError, StalePlanError
from gpuplan.models.plan.audit import AuditKind
from gpuplan.planner.apply.outcome import ApplyOutcome, UnappliedError
from gpuplan.planner.executors.simulated import SimulatedCluster
from tests.support.builders.build import NOW, cluster, job, placement, replica, snapshot
from tests.support.builders.plan_builders import plan_of
from tests.support.output.golden import figures
from tests.support.samples.apply_world import PLAN, WORLD, A, B, carry_out, running, steal, stop_after


def test_after_a_stop_the_error_says_what_is_done_and_how_to_go_on(live, log):
    with pytest.raises(PartlyAppliedError) as caught:
        carry_out(live, log, stop=stop_after(2))

    assert caught.value.exit_code == 22
    assert figures(str(caught.value)) == f"{PLAN.plan_id} 2 a1 a2 1 a3"
    assert caught.value.outcome == ApplyOutcome(done=("a1", "a2"), remaining=("a3",))
    assert running(live) == {"a", "b", "runs"}
    assert log.records()[-1].detail == "stopped: 2 of 3 done"


def test_a_plan_applied_in_part_is_gone_on_with_only_when_told_to(live, log):
    with pytest.raises(PartlyAppliedError):
        carry_out(live, log, stop=stop_after(1))
    before = log.records()

    with pytest.raises(PartlyAppliedError, match="--resume") as caught:
        carry_out(live, log)
    assert figures(str(caught.value)) == f"{PLAN.plan_id} 1 a1 2 a2 a3"
    assert caught.value.outcome == ApplyOutcome(done=(), skipped=("a1",), remaining=("a2", "a3"))
    assert log.records() == before

    outcome = carry_out(live, log, resume=True)
    assert (outcome.skipped, outcome.done) == (("a1",), ("a2", "a3"))
    assert running(live) == {"a", "b", "c", "runs"}
    assert "resumed: 1 of 3 done before" in [record.detail for record in log.records()]


def test_resuming_counts_what_was_done_before(live, log):
    with pytest.raises(PartlyAppliedError):
        carry_out(live, log, stop=stop_after(1))
    progress = []

    carry_out(live, log, resume=True, on_progress=lambda done, total, _: progress.append((done, total)))

    assert progress == [(2, 3), (3, 3)]


def test_resuming_a_plan_never_begun_begins_it(live, log):
    assert carry_out(live, log, resume=True).done == ("a1", "a2", "a3")


def test_a_stop_before_the_first_action_is_a_plain_failure(live, log):
    with pytest.raises(UnappliedError) as caught:
        carry_out(live, log, stop=lambda: True)

    assert caught.value.exit_code == 1
    assert caught.value.outcome == ApplyOutcome(done=(), remaining=("a1", "a2", "a3"))
    assert live.snapshot() == WORLD
    assert carry_out(live, log).done == ("a1", "a2", "a3")


def test_the_first_failure_ends_the_run_and_says_exactly_what_is_done(live, log):
    def interfere(done, _total, _what):
        if done == 1:
            steal(live, B)

    with pytest.raises(PartlyAppliedError) as caught:
        carry_out(live, log, on_progress=interfere)

    outcome = caught.value.outcome
    assert (outcome.done, outcome.failures[0].action, outcome.remaining) == (("a1",), "a2", ("a3",))
    assert "action a2 failed: job b cannot start" in str(caught.value)
    assert figures(outcome.failures[0].reason) == "n1 1000 0 0"
    assert running(live) == {"a", "thief", "runs"}
    assert [record.outcome for record in log.records() if record.kind is AuditKind.OUTCOME] == [
        "done",
        "failed",
    ]
    assert log.records()[-1].detail == "failed: 1 of 3 done"


def test_a_failure_of_the_first_action_is_a_plain_failure(live, log):
    def interfere():
        steal(live, A)
        return False

    with pytest.raises(UnappliedError, match="job a cannot start") as caught:
        carry_out(live, log, stop=interfere)
    assert caught.value.exit_code == 1
    assert caught.value.outcome.failures[0].action == "a1"
    assert running(live) == {"thief", "runs"}


def test_an_action_that_failed_is_tried_again_when_resumed(live, log):
    def interfere(done, _total, _what):
        if done == 1:
            steal(live, B)

    with pytest.raises(PartlyAppliedError):
        carry_out(live, log, on_progress=interfere)
    with pytest.raises(StalePlanError, match="job thief now runs on n1"):
        carry_out(live, log, resume=True)

    with SimulatedCluster(live.path) as theirs:
        theirs._db.execute("PRAGMA foreign_keys = ON")
        theirs._db.execute("DELETE FROM jobs WHERE name = 'thief'")
    assert carry_out(live, log, resume=True).done == ("a2", "a3")


def test_jobs_that_ended_meanwhile_on_nodes_not_needed_any_more_do_not_hinder_resuming(tmp_path, log):
    world = snapshot(jobs=[job("a", gpus=2, expected_duration="1m"), job("b", gpus=2)])
    plan = plan_of(world, A, B)
    with SimulatedCluster.create(tmp_path / "c.db", world) as live:
        with pytest.raises(PartlyAppliedError):
            carry_out(live, log, plan=plan, stop=stop_after(1))
        assert live.advance(3600) == NOW + timedelta(hours=1)

        assert carry_out(live, log, plan=plan, resume=True).done == ("a2",)
        assert running(live) == {"b"}


def test_long_lists_of_actions_are_wrapped_and_no_id_is_torn(tmp_path, log):
    names = [f"job-with-a-long-name-{number:02d}" for number in range(30)]
    places = [placement(name, replica(f"n{number}", gpus=[0])) for number, name in enumerate(names)]
    world = snapshot(nodes=cluster(30), jobs=[job(name, gpus=1) for name in names])
    with (
        SimulatedCluster.create(tmp_path / "other.db", world) as other,
        pytest.raises(PartlyAppliedError) as caught,
    ):
        carry_out(other, log, plan=plan_of(world, *places), stop=stop_after(5))
    lines = str(caught.value).splitlines()
    assert max(map(len, lines)) <= 79
    assert figures(lines[1]) == "5 a1 a2 a3 a4 a5"
    assert figures(lines[2]).startswith("25 a6 a7 ")
    assert lines[3].startswith("            a")
    assert lines[3].endswith("a25 and 5 more)")
