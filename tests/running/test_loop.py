"""Epoch after epoch: what each outcome is, that trouble is outlived, and that an earlier run is taken up."""

from __future__ import annotations

import logging
from dataclasses import replace
from datetime import timedelta

import pytest
from build import cluster, job, queue, replica, snapshot
from periodic import EVERY, GREEDY, Bench

from planner.auditing import verify_log
from planner.models.approval import Approval
from planner.models.errors import BadInputError, InputProblem, PlannerError
from planner.models.horizon import HorizonPolicy
from planner.models.policy import Disruption, SolverName
from planner.running.history import History, read_history
from planner.running.record import EpochOutcome

pytestmark = pytest.mark.usefixtures("no_processes")

WORLD = snapshot(
    nodes=cluster(2),
    jobs=[job("a", gpus=8), job("b", gpus=8, waited=timedelta(hours=1)), job("c", gpus=8)],
)


@pytest.fixture
def bench(tmp_path):
    made = []

    def make(world=WORLD, **about):
        made.append(Bench(tmp_path, world, **about))
        return made[-1]

    yield make
    for each in made:
        each.close()


def records(bench_):
    return read_history(bench_.folder / "history.db")


def outcomes(bench_):
    return [record.outcome.value for record in records(bench_)]


def keys(bench_):
    """What was carried out, by plan."""
    return [key.rpartition(":")[0] for key, _ in bench_.cluster.operations()]


# --- outcomes ----------------------------------------------------------------------------------------------


def test_a_plan_is_applied_and_then_nothing_is_left_to_do(bench):
    one = bench()

    assert one.epochs(3)

    first, second, third = records(one)
    assert outcomes(one) == ["applied", "unchanged", "unchanged"]
    assert (first.done, first.done_before, first.undone) == (2, 0, 0)
    assert first.actions == {"start": 2, "wait": 1}
    assert (second.number, third.number) == (2, 3)
    assert keys(one) == [first.plan_id] * 2
    assert {len(first.snapshot), len(first.policy)} == {64}
    assert first.policy == second.policy


def test_without_an_applier_plans_are_saved_and_nothing_changes(bench):
    one = bench(applies=False)

    assert one.epochs(2)

    assert outcomes(one) == ["planned", "planned"]
    assert keys(one) == []
    assert one.around.plans.latest().plan_id == records(one)[-1].plan_id


def test_a_plan_that_the_policy_leaves_to_people_waits_for_them(bench):
    one = bench(policy=GREEDY.model_copy(update={"approval": Approval(most_changes=1)}))

    assert one.epochs(1)

    (record,) = records(one)
    assert (record.outcome, record.done, record.undone) == (EpochOutcome.AWAITS_APPROVAL, 0, 2)
    one.epochs(1)
    assert outcomes(one) == ["awaits_approval", "awaits_approval"]
    assert keys(one) == []
    one.apply(one.around.plans.latest(), resume=False)
    one.epochs(1)
    assert outcomes(one)[-1] == "unchanged"


def test_a_cluster_that_changes_before_the_apply_makes_the_plan_stale_and_is_planned_anew(bench):
    one = bench()
    apply, calls = one.live.apply, []

    def later(plan, *, resume):
        calls.append(plan)
        if len(calls) == 1:
            one.cluster.fail("n0")
        return apply(plan, resume=resume)

    one.apply = later
    one.epochs(2)

    assert outcomes(one) == ["stale", "applied"]
    assert "stale" in records(one)[0].error
    assert one.stop.pauses[0] < EVERY / 4


class FailingAt:
    """The cluster, refusing what comes after so many actions."""

    def __init__(self, inner, after, error):
        self.inner, self.after, self.error = inner, after, error
        self.identity, self.exclusively = inner.identity, inner.exclusively
        self.snapshot, self.performed = inner.snapshot, inner.performed

    def perform(self, action, key):
        self.after -= 1
        if self.after < 0:
            raise self.error
        self.inner.perform(action, key)


@pytest.mark.parametrize(
    ("after", "error", "outcome", "then"),
    [
        (0, PlannerError("no"), "failed", ["applied", "unchanged"]),
        (1, PlannerError("no"), "partly_applied", ["applied", "unchanged"]),
        # Nobody knows whether it was done: the plan is resumed, not given up.
        (0, ZeroDivisionError("oops"), "failed", ["resumed", "unchanged"]),
        (1, ZeroDivisionError("oops"), "partly_applied", ["resumed", "unchanged"]),
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
    assert one.epochs(3 - len(then) + (then[0] == "applied"))

    first, second, *_ = records(one)
    assert outcomes(one) == [outcome, *then]
    assert (first.done, first.undone) == (after, 2 - after)
    assert second.done == 2 - after
    assert sum(record.done for record in records(one)) == len(keys(one))
    assert str(error) in first.error


def test_what_a_source_does_not_remember_of_promises_the_last_plan_does(bench):
    runs = job("runs", gpus=8, at=[replica("n0", gpus=range(8))], expected_duration="2h")
    world = snapshot(nodes=cluster(1), jobs=[runs, job("waits", gpus=8, expected_duration="1h")])
    ahead = GREEDY.model_copy(update={"horizon": HorizonPolicy(slots=3)})
    one = bench(world, policy=ahead, applies=False, remembers=False)

    one.epochs(1)
    first = one.around.plans.latest()
    one.epochs(1)
    second = one.around.plans.latest()

    (promise,) = first.planned
    assert first.snapshot.job_by_name["waits"].promise is None
    assert second.snapshot.job_by_name["waits"].promise.start == promise.start


# --- trouble -----------------------------------------------------------------------------------------------


def test_an_epoch_that_cannot_read_is_recorded_and_retried_ever_later_while_the_last_plan_stays(bench):
    one = bench()
    one.epochs(1)
    good = one.around.plans.latest()
    problem = BadInputError((InputProblem("jobs.yaml:3", "no such queue."),))

    def unreadable():
        raise problem

    read = one.reader
    one.reader = unreadable
    one.stop.pauses.clear()
    assert not one.epochs(5)
    one.reader = read

    failed = records(one)[1:]
    assert {record.outcome for record in failed} == {EpochOutcome.FAILED}
    assert all("jobs.yaml:3: no such queue." in record.error for record in failed)
    shortest, *_, longest = one.stop.pauses
    assert shortest < longest / 4
    assert one.around.plans.latest() == good
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
    with caplog.at_level(logging.ERROR, "planner.running"):
        one.epochs(2)

    assert outcomes(one) == ["failed", "applied"]
    assert records(one)[0].error == "defect: ZeroDivisionError: oops"
    assert "ZeroDivisionError" in caplog.text


def test_a_slow_epoch_overlaps_none_and_the_ticks_it_missed_are_counted(bench):
    one = bench()
    read = one.reader

    def slow():
        one.clock.seconds += 2.5 * EVERY
        return read()

    one.reader = slow
    one.epochs(2)

    first, second = records(one)
    assert (first.skipped_ticks, second.skipped_ticks) == (2, 2)
    assert second.began_at - first.ended_at == timedelta(seconds=EVERY / 2)


def test_a_changed_policy_is_in_force_in_the_next_epoch_and_recorded(bench):
    one = bench()
    one.epochs(1)

    one.policy = GREEDY.model_copy(update={"disruption": Disruption(preempt=False)})
    one.epochs(2)

    _, second, third = records(one)
    assert [change.knob for change in second.policy_changes] == [
        "disruption.minimum_runtime",
        "disruption.preempt",
    ]
    assert third.policy_changes == ()
    assert second.policy == third.policy == one.policy.fingerprint()


# --- the end of a run, and the next one --------------------------------------------------------------------


def test_told_to_stop_during_an_apply_it_finishes_the_action_in_hand_and_the_next_run_does_the_rest(bench):
    one = bench()
    asked = iter([False, True])
    live = one.live

    def stop_after_one():
        if next(asked, True):
            one.stop.requested = True
        return one.stop.requested

    one.live = replace(live, stop=stop_after_one)
    assert one.epochs(3)
    one.live, one.stop.requested = live, False
    assert one.epochs(1)

    stopped, resumed, after = records(one)
    assert (stopped.outcome.value, stopped.done, stopped.undone) == ("stopped", 1, 1)
    assert (resumed.outcome.value, resumed.done, resumed.done_before) == ("resumed", 1, 1)
    assert resumed.plan_id == stopped.plan_id
    assert after.outcome is EpochOutcome.UNCHANGED
    assert keys(one) == [stopped.plan_id] * 2


def test_told_to_stop_before_the_apply_it_keeps_the_plan_and_applies_nothing(bench):
    one = bench()
    save = one.around.plans.save

    def save_and_stop(plan, number):
        one.stop.requested = True
        return save(plan, number)

    one.around.plans.save = save_and_stop
    one.epochs(3)
    one.around.plans.save, one.stop.requested = save, False
    one.epochs(1)

    assert outcomes(one) == ["stopped", "applied"]
    assert records(one)[0].undone == 2


def test_told_to_stop_while_it_searches_it_keeps_the_best_plan_so_far(bench, tmp_path):
    one = bench(policy=GREEDY.model_copy(update={"solvers": (SolverName.MILP,)}))
    end_search, seen = one.stop.end_search, []

    def hear(now):
        one.stop.requested |= now.objective is not None
        seen.append(now)
        end_search(now)

    one.stop.end_search = hear
    one.epochs(3)

    assert outcomes(one) == ["stopped"]
    assert one.around.plans.latest().solution.ended == "interrupted"


def left_half_done(bench_):
    """An epoch that is told to stop after the first of two actions."""
    live = bench_.live
    bench_.live = replace(live, stop=iter([False, True]).__next__)
    bench_.epochs(1)
    bench_.live = live


OTHER_RULES = Disruption(preempt=False)
PEOPLE = Approval(most_changes=0)


@pytest.mark.parametrize(
    ("rules", "then"),
    [
        ({"disruption": OTHER_RULES}, "applied"),
        ({"approval": PEOPLE}, "awaits_approval"),
        # Only the effort is another one.
        ({"solvers": (SolverName.MILP,)}, None),
    ],
)
def test_under_another_policy_a_plan_is_made_anew_and_not_resumed(bench, rules, then):
    one = bench()
    left_half_done(one)
    one.policy = GREEDY.model_copy(update=rules)
    one.around.policy.reread()
    one.epochs(1)

    stopped, given_up, after = records(one)
    assert given_up.plan_id == stopped.plan_id
    if then is None:
        assert given_up.outcome is EpochOutcome.RESUMED
        return
    assert (given_up.outcome, given_up.done) == (EpochOutcome.PARTLY_APPLIED, 0)
    assert (given_up.done_before, given_up.undone) == (1, 1)
    assert "the policy has other rules" in given_up.error
    assert after.outcome.value == then


def test_what_people_left_undone_of_a_plan_that_awaits_approval_is_left_to_them(bench):
    one = bench(policy=GREEDY.model_copy(update={"approval": PEOPLE}))
    one.epochs(1)
    plan = one.around.plans.latest()
    with pytest.raises(PlannerError):
        replace(one.live, stop=iter([False, True]).__next__).apply(plan, resume=False)
    one.epochs(1)

    first, left, after = records(one)
    assert first.outcome is after.outcome is EpochOutcome.AWAITS_APPROVAL
    assert (left.plan_id, left.done_before, left.undone) == (plan.plan_id, 1, 1)
    assert "left to people" in left.error
    assert len(keys(one)) == 1


def test_what_people_did_of_a_plan_as_a_whole_is_written_down(bench):
    one = bench(policy=GREEDY.model_copy(update={"approval": PEOPLE}))
    one.epochs(1)
    one.live.apply(one.around.plans.latest(), resume=False)
    one.epochs(1)

    assert outcomes(one) == ["awaits_approval", "resumed", "unchanged"]
    assert (records(one)[1].done, records(one)[1].done_before) == (0, 2)


def test_what_a_later_run_finds_changed_in_the_policy_is_recorded(bench):
    one = bench()
    one.epochs(1)
    two = bench(policy=GREEDY.model_copy(update={"approval": PEOPLE}))
    two.epochs(2)

    assert [[change.knob for change in record.policy_changes] for record in records(two)] == [
        [],
        ["approval.most_changes"],
        [],
    ]


def test_an_apply_that_is_stale_when_it_is_resumed_gives_way_to_a_new_plan(bench):
    one = bench()
    live = one.live
    one.live = replace(live, stop=iter([False, True]).__next__)
    one.epochs(1)
    one.live = live
    left = one.around.plans.latest()
    waits = [each.name for each in one.cluster.snapshot().jobs if each.running is None]
    assert len(waits) == 2
    one.cluster.fail("n1")
    one.cluster.fail("n0")
    one.cluster.bring_back("n0")
    one.epochs(2)

    assert outcomes(one)[1] == "stale"
    assert (records(one)[1].done, records(one)[1].done_before, records(one)[1].undone) == (0, 1, 1)
    assert records(one)[1].plan_id == left.plan_id
    assert outcomes(one)[2] == "applied"


def test_the_next_run_has_nothing_to_resume_after_an_apply_that_was_complete(bench):
    one = bench()

    one.epochs(1)
    one.epochs(1)

    assert outcomes(one) == ["applied", "unchanged"]


def test_what_was_applied_but_not_recorded_is_recorded_by_the_next_run(bench):
    """Killed between the apply and the row: the audit log has what the history lacks."""
    one = bench()
    plan = None

    def die(plan_, *, resume):
        nonlocal plan
        plan = plan_
        one.live.apply(plan_, resume=resume)
        raise SystemExit

    one.apply = die
    with pytest.raises(SystemExit):
        one.epochs(1)
    del one.apply
    one.epochs(1)

    resumed, after = records(one)
    assert (resumed.outcome.value, resumed.plan_id) == ("resumed", plan.plan_id)
    assert (resumed.done, resumed.done_before, resumed.undone) == (0, 2, 0)
    assert after.outcome is EpochOutcome.UNCHANGED


def test_a_long_audit_log_is_set_aside_before_the_next_plan_and_a_new_one_begun(bench):
    one = bench()
    one.live = replace(one.live, longest_audit=1)
    one.epochs(1)
    first = verify_log(one.folder / "audit.jsonl")

    one.cluster.submit([job("d", gpus=1)])
    one.cluster.advance(60)
    one.cluster.fail("n0")
    one.cluster.bring_back("n0")
    one.epochs(1)

    (aside,) = one.folder.glob("audit-*.jsonl")
    assert verify_log(aside) == first
    second = verify_log(one.folder / "audit.jsonl")
    assert {record.plan_id for record in second.records} == {records(one)[-1].plan_id}
    assert second.records[0].sequence == 1


def test_a_long_audit_log_is_kept_while_something_in_it_is_to_be_resumed(bench):
    one = bench()
    live = one.live
    one.live = replace(live, stop=iter([False, True]).__next__)
    one.epochs(1)
    one.live = replace(live, longest_audit=1)
    one.epochs(1)

    assert outcomes(one)[1] == "resumed"
    assert list(one.folder.glob("audit-*.jsonl")) == []


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
        with caplog.at_level(logging.ERROR, "planner.running"):
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
    assert [record.number for record in records(one)] == [1, 2, 3]


def test_an_epoch_that_was_not_recorded_leaves_a_gap_in_the_history(bench, monkeypatch):
    one, add, calls = bench(), History.add, []

    def full_once(self, record):
        calls.append(None)
        if len(calls) == 2:
            raise PlannerError("the disk is full.")
        add(self, record)

    monkeypatch.setattr(History, "add", full_once)

    assert one.epochs(3)
    assert [record.number for record in records(one)] == [1, 3]
    numbers = sorted(int(path.name[:6]) for path in one.around.plans.folder.glob("0*"))
    assert numbers == [1, 2, 3]


def test_an_audit_log_that_cannot_be_read_at_the_start_is_no_end(bench, caplog):
    one = bench()
    one.epochs(1)
    (one.folder / "audit.jsonl").write_text("edited\n")
    with caplog.at_level(logging.ERROR, "planner.running"):
        assert one.epochs(1)

    assert "not_resumed" in caplog.text
    assert outcomes(one) == ["applied", "unchanged"]


def test_a_job_whose_node_failed_and_returned_is_started_again_by_a_clock_that_stands_still(bench):
    one = bench(snapshot(nodes=cluster(1), jobs=[job("a", gpus=8)]))
    one.epochs(1)

    one.cluster.fail("n0")
    one.cluster.bring_back("n0")
    one.epochs(1)

    assert outcomes(one) == ["applied", "applied"]
    assert records(one)[1].done == 1
    assert one.cluster.snapshot().job_by_name["a"].running is not None


def test_two_queues_take_nothing_from_each_other_for_ever(bench):
    """Replanned again and again with nothing new, nobody is stopped."""
    jobs = [
        job("x", gpus=8, queue="a", at=[replica("n0", gpus=range(8))]),
        job("y", gpus=8, queue="b"),
        job("z", gpus=8, queue="b", priority=3),
        job("w", gpus=8, queue="a", priority=1),
    ]
    one = bench(snapshot(nodes=cluster(2), jobs=jobs, queues=[queue("a", nominal=8), queue("b", nominal=8)]))

    one.epochs(4)

    assert "applied" in outcomes(one)
    assert set(outcomes(one)[2:]) == {"unchanged"}
