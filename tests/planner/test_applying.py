"""Apply: proves the plan still true, does it once, records each step, and says exactly where it stopped."""

from __future__ import annotations

import os
from datetime import timedelta

import pytest
from build import NOW, cluster, job, placement, queue, replica, snapshot
from handmade import plan_of, start

from planner.applying import apply_plan
from planner.auditing import AuditLog, AuditWriter
from planner.executors.simulated import SimulatedCluster
from planner.locking import LockedError
from planner.models.audit import AuditKind, Outcome
from planner.models.errors import PartlyAppliedError, PlannerError, StalePlanError
from planner.models.policy import Drift
from planner.planfile import load_plan, save_plan

WORLD = snapshot(
    jobs=[
        job("a", gpus=2),
        job("b", gpus=2),
        job("c", gpus=2, replicas=2),
        job("big", gpus=8, replicas=9),
        job("runs", gpus=2, at=[replica("n0", gpus=[6, 7])]),
        job("thief", gpus=2),
    ]
)
A = placement("a", replica("n0", gpus=[0, 1]))
B = placement("b", replica("n1", gpus=[0, 1]))
C = placement("c", replica("n0", gpus=[2, 3]), replica("n1", gpus=[2, 3]))
PLAN = plan_of(WORLD, A, B, C)


@pytest.fixture
def live(tmp_path):
    with SimulatedCluster.create(tmp_path / "cluster.db", WORLD) as cluster_:
        yield cluster_


@pytest.fixture
def log(tmp_path):
    return AuditLog(tmp_path / "audit.jsonl")


def carry_out(live, log, *, plan=PLAN, **more):
    return apply_plan(plan, live, log, who="ann@login1", now=lambda: NOW, **more)


def running(live):
    return {placed.job for placed in live.snapshot().running_placements}


def told(log):
    """Kind and action of every record."""
    return [(record.kind.value, record.action) for record in log.records()]


def steal(live, gpus_of):
    """Somebody else starts a job where the plan wants to start one."""
    with SimulatedCluster(live.path) as theirs:
        theirs.perform(start("x", placement("thief", *gpus_of.replicas)), "theirs:x")


def stop_after(count):
    """A stop that lets so many actions be done."""
    asked = iter(range(100))
    return lambda: next(asked) >= count


def test_the_jobs_run_where_the_plan_says(live, log):
    outcome = carry_out(live, log)

    assert outcome.done == ("a1", "a2", "a3")
    assert (outcome.skipped, outcome.failed, outcome.remaining) == ((), None, ())
    assert live.snapshot().running_placements == (A, B, C, *WORLD.running_placements)


def test_a_plan_read_from_its_file_does_the_same(live, log, tmp_path):
    save_plan(PLAN, tmp_path / "plan.json")

    carry_out(live, log, plan=load_plan(tmp_path / "plan.json"))

    assert running(live) == {"a", "b", "c", "runs"}


def test_an_intent_stands_before_each_outcome_between_begin_and_end(live, log):
    carry_out(live, log)

    assert told(log) == [
        ("begin", ""),
        ("intent", "a1"),
        ("outcome", "a1"),
        ("intent", "a2"),
        ("outcome", "a2"),
        ("intent", "a3"),
        ("outcome", "a3"),
        ("end", ""),
    ]


def test_the_records_tell_who_did_what_where_and_what_was_seen(live, log):
    carry_out(live, log)
    _, intent, outcome, *_ = log.records()

    assert (intent.who, intent.plan_id, intent.cluster) == ("ann@login1", PLAN.plan_id, live.identity)
    assert (intent.type, intent.subject, intent.detail) == ("start", "job a", "start a on n0")
    assert intent.seen == ("job a waits, unchanged", "node n0 has free 1 of GPU 0, 1 of GPU 1")
    assert outcome.outcome is Outcome.DONE
    assert outcome.seconds > 0


def test_what_earlier_actions_took_is_seen_by_later_ones(tmp_path, log):
    world = snapshot(jobs=[job("x", milli=300), job("y", milli=300)])
    places = [placement(name, replica("n0", gpus=[0], milli=300)) for name in ("x", "y")]
    with SimulatedCluster.create(tmp_path / "c.db", world) as live:
        carry_out(live, log, plan=plan_of(world, *places))

    seen = [record.seen[1] for record in log.records() if record.kind is AuditKind.INTENT]
    assert seen == ["node n0 has free 1 of GPU 0", "node n0 has free 0.7 of GPU 0"]


class Stranger:
    """A cluster of another make: the simulated one behind methods that may be replaced."""

    def __init__(self, live):
        self.identity = live.identity
        self.exclusively = live.exclusively
        self.snapshot = live.snapshot
        self.performed = live.performed
        self.perform = live.perform


def test_the_intent_is_on_disk_before_the_deed(live, log):
    def perform(action, key):
        assert told(log)[-1] == ("intent", action.id)
        live.perform(action, key)

    watched = Stranger(live)
    watched.perform = perform

    assert carry_out(watched, log).done == ("a1", "a2", "a3")


def test_what_the_log_says_is_done_is_not_done_again_by_a_cluster_that_forgets(live, log):
    with pytest.raises(PartlyAppliedError):
        carry_out(live, log, stop=stop_after(2))
    forgetful = Stranger(live)
    forgetful.performed = lambda _: False

    assert carry_out(forgetful, log, resume=True).done == ("a3",)


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
    gone = WORLD.model_copy(update={"jobs": ()})
    with SimulatedCluster(live.path) as theirs:
        theirs._db.execute("DELETE FROM jobs")
    assert live.snapshot().jobs == gone.jobs

    assert carry_out(live, log).skipped == ("a1", "a2", "a3")


def test_a_cluster_made_anew_gets_the_plan_although_the_log_is_old(live, log, tmp_path):
    carry_out(live, log)
    with SimulatedCluster.create(tmp_path / "again.db", WORLD) as again:
        assert carry_out(again, log).done == ("a1", "a2", "a3")


def test_after_a_stop_the_error_says_what_is_done_and_how_to_go_on(live, log):
    with pytest.raises(PartlyAppliedError) as caught:
        carry_out(live, log, stop=stop_after(2))

    assert caught.value.exit_code == 22
    assert str(caught.value).splitlines() == [
        f"Plan {PLAN.plan_id} was applied in part: it was told to stop.",
        "  done:     2 (a1, a2)",
        "  not done: 1 (a3)",
        "Go on with the same command and --resume,",
        "or make a new plan of what is left with `gpuplan plan`.",
    ]
    assert caught.value.outcome.remaining == ("a3",)
    assert running(live) == {"a", "b", "runs"}
    assert log.records()[-1].detail == "stopped: 2 of 3 done"


def test_a_plan_applied_in_part_is_gone_on_with_only_when_told_to(live, log):
    with pytest.raises(PartlyAppliedError):
        carry_out(live, log, stop=stop_after(1))
    before = log.records()

    with pytest.raises(PartlyAppliedError, match="applied in part by an earlier run") as caught:
        carry_out(live, log)
    assert "done:     1 (a1)" in str(caught.value)
    assert "not done: 2 (a2, a3)" in str(caught.value)
    assert "--resume" in str(caught.value)
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
    with pytest.raises(PlannerError, match=r"told to stop\.\nNo action of it was done") as caught:
        carry_out(live, log, stop=lambda: True)

    assert caught.value.exit_code == 1
    assert live.snapshot() == WORLD
    assert carry_out(live, log).done == ("a1", "a2", "a3")


def test_the_first_failure_ends_the_run_and_says_exactly_what_is_done(live, log):
    def interfere(done, _total, _what):
        if done == 1:
            steal(live, B)

    with pytest.raises(PartlyAppliedError) as caught:
        carry_out(live, log, on_progress=interfere)

    outcome = caught.value.outcome
    assert (outcome.done, outcome.failed.action, outcome.remaining) == (("a1",), "a2", ("a3",))
    assert "action a2 failed: job b cannot start: node n1: expected 1000 thousandths free" in str(
        caught.value
    )
    assert "  failed:   a2\n  not done: 1 (a3)\n" in str(caught.value)
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

    with pytest.raises(PlannerError, match="was not applied: action a1 failed: job a cannot start") as caught:
        carry_out(live, log, stop=interfere)
    assert caught.value.exit_code == 1
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


def test_a_stale_plan_is_refused_before_anything_is_done(live, log):
    steal(live, B)

    with pytest.raises(StalePlanError) as caught:
        carry_out(live, log)
    assert caught.value.exit_code == 21
    assert str(caught.value) == (
        f"Plan {PLAN.plan_id} is stale: 1 thing changed since it was made.\n"
        "  job thief now runs on n1: expected not running there, found running there\n"
        "Run `gpuplan plan` again."
    )
    assert running(live) == {"thief", "runs"}
    assert log.records() == ()


def test_a_stale_plan_tells_each_change(tmp_path, log):
    changed = snapshot(nodes=cluster(2, gpus=1), jobs=[job_ for job_ in WORLD.jobs if job_.name != "c"])
    with (
        SimulatedCluster.create(tmp_path / "other.db", changed) as other,
        pytest.raises(StalePlanError) as caught,
    ):
        carry_out(other, log)
    first, *items, last = str(caught.value).splitlines()
    assert first.endswith("is stale: 7 things changed since it was made.")
    assert items[0] == "  job c is gone: expected a waiting job, found no such job"
    assert "  node n0 lost 7 GPUs: expected 8, found 1" in items
    assert len(items) == len(caught.value.items) == 7
    assert last == "Run `gpuplan plan` again."


def test_a_long_list_of_changes_is_cut_in_the_message_and_whole_in_the_error(tmp_path, log):
    jobs = [job(f"j{number}", gpus=1) for number in range(30)]
    places = [placement(f"j{number}", replica(f"n{number}", gpus=[0])) for number in range(30)]
    plan = plan_of(snapshot(nodes=cluster(30), jobs=jobs), *places)
    with (
        SimulatedCluster.create(tmp_path / "other.db", snapshot(nodes=cluster(30))) as other,
        pytest.raises(StalePlanError, match="and 10 more") as caught,
    ):
        carry_out(other, log, plan=plan)
    assert len(caught.value.items) == 30


def test_where_jobs_have_only_left_the_message_tells_how_to_apply_all_the_same(tmp_path, log):
    freed = WORLD.model_copy(update={"jobs": tuple(job_ for job_ in WORLD.jobs if job_.name != "runs")})
    with SimulatedCluster.create(tmp_path / "other.db", freed) as other:
        with pytest.raises(StalePlanError) as caught:
            carry_out(other, log)
        assert str(caught.value).splitlines()[1:] == [
            "  job runs no longer runs on n0: expected running there, found no such job",
            "Run `gpuplan plan` again.",
            "Such changes only free room: `--drift preconditions` accepts them.",
        ]
        assert carry_out(other, log, drift_mode=Drift.PRECONDITIONS).done == ("a1", "a2", "a3")


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
    assert lines[1] == "  done:     5 (a1, a2, a3, a4, a5)"
    assert lines[2].startswith("  not done: 25 (a6, a7, ")
    assert lines[3].startswith("            a")
    assert lines[3].endswith("a25 and 5 more)")


def test_the_callers_drift_mode_goes_before_the_policys(live, log):
    steal(live, placement("thief", replica("n1", gpus=[6, 7])))

    with pytest.raises(StalePlanError):
        carry_out(live, log)
    assert carry_out(live, log, drift_mode=Drift.PRECONDITIONS).done == ("a1", "a2", "a3")


def test_the_policys_drift_mode_is_kept(live, log):
    policy = PLAN.policy.model_copy(update={"drift": Drift.PRECONDITIONS})
    steal(live, placement("thief", replica("n1", gpus=[6, 7])))

    assert carry_out(live, log, plan=plan_of(WORLD, A, B, C, policy=policy)).done == ("a1", "a2", "a3")


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
            pytest.raises(LockedError, match=f"is in use by process {os.getpid()} since") as caught,
        ):
            carry_out(theirs, AuditLog(tmp_path / "other.jsonl"), resume=True)
        refused.append(caught.value.exit_code)

    assert carry_out(live, log, on_progress=second).done == ("a1", "a2", "a3")
    assert refused == [1, 1, 1]


def test_a_log_in_use_for_another_cluster_is_refused(live, log, tmp_path):
    with (
        SimulatedCluster.create(tmp_path / "other.db", WORLD) as other,
        log.writing(who="bob@login2", now=lambda: NOW),
        pytest.raises(LockedError, match="audit log"),
    ):
        carry_out(other, log)


def test_an_error_nobody_foresaw_leaves_the_outcome_in_the_log(live, log):
    def broken(*_):
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        carry_out(live, log, on_progress=broken)

    assert told(log) == [("begin", ""), ("intent", "a1"), ("outcome", "a1")]
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


def test_nothing_is_done_whose_intent_cannot_be_recorded(live, log, monkeypatch):
    with monkeypatch.context() as patch:
        fail_writes(patch, from_write=1)
        with pytest.raises(
            PartlyAppliedError, match="a2 failed: its intent cannot be recorded: audit log"
        ) as caught:
            carry_out(live, log)
    assert "No space left on device" in str(caught.value)
    assert running(live) == {"a", "runs"}

    outcome = carry_out(live, log, resume=True)
    assert (outcome.skipped, outcome.done) == (("a1",), ("a2", "a3"))
    assert [record.action for record in log.records() if record.outcome is Outcome.SKIPPED] == ["a1"]


def test_a_plan_done_whose_end_cannot_be_recorded_is_told_and_its_log_completed_later(live, log, monkeypatch):
    with monkeypatch.context() as patch:
        fail_writes(patch, from_write=3)
        with pytest.raises(PartlyAppliedError, match="was applied, but its audit log is not complete"):
            carry_out(live, log)
    assert running(live) == {"a", "b", "c", "runs"}

    outcome = carry_out(live, log, resume=True)
    assert outcome.skipped == ("a1", "a2", "a3")
    assert told(log)[-3:] == [("begin", ""), ("outcome", "a3"), ("end", "")]


def test_a_lost_log_is_made_up_for_by_what_the_cluster_knows(live, log, tmp_path):
    with pytest.raises(PartlyAppliedError):
        carry_out(live, log, stop=stop_after(2))
    other = AuditLog(tmp_path / "new.jsonl")

    outcome = carry_out(live, other, resume=True)

    assert (outcome.skipped, outcome.done) == (("a1", "a2"), ("a3",))
    skipped = [record for record in other.records() if record.outcome is Outcome.SKIPPED]
    assert [record.action for record in skipped] == ["a1", "a2"]


def test_a_lost_log_of_a_complete_apply_is_made_up_for_too(live, log, tmp_path):
    carry_out(live, log)
    other = AuditLog(tmp_path / "new.jsonl")

    assert carry_out(live, other).skipped == ("a1", "a2", "a3")
    assert told(other) == [
        ("begin", ""),
        ("outcome", "a1"),
        ("outcome", "a2"),
        ("outcome", "a3"),
        ("end", ""),
    ]


def test_jobs_that_ended_meanwhile_on_nodes_not_needed_any_more_do_not_hinder_resuming(tmp_path, log):
    world = snapshot(jobs=[job("a", gpus=2, expected_duration="1m"), job("b", gpus=2)])
    plan = plan_of(world, A, B)
    with SimulatedCluster.create(tmp_path / "c.db", world) as live:
        with pytest.raises(PartlyAppliedError):
            carry_out(live, log, plan=plan, stop=stop_after(1))
        assert live.advance(3600) == NOW + timedelta(hours=1)

        assert carry_out(live, log, plan=plan, resume=True).done == ("a2",)
        assert running(live) == {"b"}


@pytest.mark.parametrize("mode", list(Drift))
def test_quota_that_shrank_since_the_plan_makes_it_stale(tmp_path, log, mode):
    planned = snapshot(jobs=[job("a", gpus=4)], queues=[queue("q", nominal=4)])
    plan = plan_of(planned, placement("a", replica("n0", gpus=range(4))))
    shrunk = planned.model_copy(update={"queues": (queue("q", nominal=3),)})
    with SimulatedCluster.create(tmp_path / "cluster.db", shrunk) as live:
        with pytest.raises(StalePlanError, match="queues: queue q: found 4 GPUs, allowed 3 GPUs"):
            apply_plan(plan, live, log, who="me", now=lambda: NOW, drift_mode=mode)

        assert live.snapshot().running_placements == ()
