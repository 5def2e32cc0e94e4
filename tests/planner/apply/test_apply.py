"""Apply: proves the plan still true, does it once, records each step, and says how far it is."""

from __future__ import annotations

import os

import pytest

from gpuplan.models.errors import PlannerError
from gpuplan.models.plan.actions import ActionKind
from gpuplan.models.plan.audit import ActionOutcome, AuditKind
from gpuplan.planner.apply.apply import check_plan
from gpuplan.planner.apply.audit_log import AuditLog
from gpuplan.planner.apply.outcome import IncapableError
from gpuplan.planner.executors.simulated import SimulatedCluster
from gpuplan.planner.io.file_lock import LockedError
from gpuplan.planner.plan_file.plan_file import load_plan, save_plan
from tests.support.builders.build import NOW, job, placement, replica, snapshot
from tests.support.builders.plan_builders import plan_of, start
from tests.support.doubles.wrapped_cluster import Wrapped
from tests.support.samples.apply_world import PLAN, WORLD, A, B, C, carry_out, recorded, running


def test_the_jobs_run_where_the_plan_says(live, log):
    outcome = carry_out(live, log)

    assert outcome.done == ("a1", "a2", "a3")
    assert (outcome.skipped, outcome.failures, outcome.remaining) == ((), (), ())
    assert live.snapshot().running_placements == (A, B, C, *WORLD.running_placements)


def test_a_plan_read_from_its_file_does_the_same(live, log, tmp_path):
    save_plan(PLAN, tmp_path / "plan.json")

    carry_out(live, log, plan=load_plan(tmp_path / "plan.json"))

    assert running(live) == {"a", "b", "c", "runs"}


class Unable(Wrapped):
    """A cluster that starts no jobs."""

    can = frozenset({ActionKind.RELEASE})


def test_a_plan_with_what_the_executor_cannot_do_is_refused_before_anything_is_recorded(live, log):
    for attempt in (carry_out, lambda *given: check_plan(PLAN, *given, resume=False)):
        with pytest.raises(IncapableError) as caught:
            attempt(Unable(live), log)

        assert caught.value.missing == {ActionKind.START: ["a1", "a2", "a3"]}
    assert not log.path.exists()


def test_an_intent_stands_before_each_outcome_between_begin_and_end(live, log):
    carry_out(live, log)

    assert recorded(log) == [
        ("begin", ""),
        ("intent", "a1"),
        ("outcome", "a1"),
        ("intent", "a2"),
        ("outcome", "a2"),
        ("intent", "a3"),
        ("outcome", "a3"),
        ("end", ""),
    ]


def test_the_records_name_the_actor_the_deed_the_place_and_what_was_seen(live, log):
    carry_out(live, log)
    _, intent, outcome, *_ = log.records()

    assert (intent.who, intent.plan_id, intent.cluster) == ("ann@login1", PLAN.plan_id, live.identity)
    assert (intent.type, intent.subject, intent.detail) == ("start", "job a", "start a on n0")
    assert intent.seen == ("job a waits, unchanged", "node n0 has free 1 of GPU 0, 1 of GPU 1")
    assert outcome.outcome is ActionOutcome.DONE
    assert outcome.seconds > 0


def test_what_earlier_actions_took_is_seen_by_later_ones(tmp_path, log):
    world = snapshot(jobs=[job("x", milli=300), job("y", milli=300)])
    places = [placement(name, replica("n0", gpus=[0], milli=300)) for name in ("x", "y")]
    with SimulatedCluster.create(tmp_path / "c.db", world) as live:
        carry_out(live, log, plan=plan_of(world, *places))

    seen = [record.seen[1] for record in log.records() if record.kind is AuditKind.INTENT]
    assert seen == ["node n0 has free 1 of GPU 0", "node n0 has free 0.7 of GPU 0"]


def test_the_intent_is_on_disk_before_the_deed(live, log):
    def begin(action, key):
        assert recorded(log)[-1] == ("intent", action.id)
        return live.begin(action, key)

    watched = Wrapped(live)
    watched.begin = begin

    assert carry_out(watched, log).done == ("a1", "a2", "a3")


def test_progress_is_told_after_each_action(live, log):
    progress = []

    carry_out(live, log, on_progress=lambda *told_: progress.append(told_))

    assert progress == [
        (1, 3, "start a on n0"),
        (2, 3, "start b on n1"),
        (3, 3, "start c on 2 nodes from n0 to n1"),
    ]


def test_a_plan_without_changes_does_nothing_and_writes_nothing(live, log):
    outcome = carry_out(live, log, plan=plan_of(WORLD))

    assert outcome.done == ()
    assert log.records() == ()


def test_a_plan_applied_again_does_nothing_and_writes_nothing(live, log):
    carry_out(live, log)
    before = (log.records(), live.snapshot())

    outcome = carry_out(live, log)

    assert (outcome.done, outcome.skipped) == ((), ("a1", "a2", "a3"))
    assert (log.records(), live.snapshot()) == before


def test_a_plan_that_was_applied_is_done_even_when_its_jobs_are_gone(live, log):
    carry_out(live, log)
    with SimulatedCluster(live.path) as theirs:
        theirs._db.execute("DELETE FROM jobs")
    assert live.snapshot().jobs == ()

    assert carry_out(live, log).skipped == ("a1", "a2", "a3")


def test_a_cluster_made_anew_gets_the_plan_although_the_log_is_old(live, log, tmp_path):
    carry_out(live, log)
    with SimulatedCluster.create(tmp_path / "again.db", WORLD) as again:
        assert carry_out(again, log).done == ("a1", "a2", "a3")


@pytest.mark.parametrize(
    ("actions", "message"),
    [
        ([start("a1", A, after=["a2"]), start("a2", B)], "action a1 must come after a2"),
        ([start("a1", A, after=["zzz"])], "action a1 must come after zzz"),
        ([start("a1", A), start("a1", B)], "found a1 twice"),
    ],
)
def test_a_plan_that_breaks_its_own_order_is_not_begun(live, log, actions, message):
    with pytest.raises(PlannerError, match=message):
        carry_out(live, log, plan=plan_of(WORLD, A, B, actions=actions))
    assert live.snapshot() == WORLD


def test_an_action_may_come_after_one_that_changes_nothing(live, log):
    _, _, _, *others = PLAN.actions
    fingerprint = WORLD.job_by_name["a"].fingerprint()
    actions = [*others, start("a1", A, after=[others[0].id], fingerprint=fingerprint)]

    assert carry_out(live, log, plan=plan_of(WORLD, A, actions=actions)).done == ("a1",)


def test_a_second_apply_at_the_same_time_is_refused(live, log, tmp_path):
    refused = []

    def second(*_):
        with (
            SimulatedCluster(live.path) as theirs,
            pytest.raises(LockedError, match=f"process {os.getpid()} ") as caught,
        ):
            carry_out(theirs, AuditLog(tmp_path / "other.jsonl"), resume=True)
        refused.append(caught.value.exit_code)

    assert carry_out(live, log, on_progress=second).done == ("a1", "a2", "a3")
    assert refused == [1, 1, 1]


def test_a_log_in_use_for_another_cluster_is_refused(live, log, tmp_path):
    with (
        SimulatedCluster.create(tmp_path / "other.db", WORLD) as other,
        log.writing(actor="bob@login2", now=lambda: NOW),
        pytest.raises(LockedError, match="audit log"),
    ):
        carry_out(other, log)
