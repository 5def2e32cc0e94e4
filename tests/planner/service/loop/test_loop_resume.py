"""The end of a run, and the next one: what was begun is resumed or given up, and all of it recorded."""

from __future__ import annotations

from dataclasses import replace

import pytest

from gpuplan.models.errors import PlannerError
from gpuplan.models.policy.approval import Approval
from gpuplan.models.policy.policy import Disruption, SolverName
from gpuplan.planner.apply.audit_log import verify_log
from gpuplan.planner.service.history import EpochOutcome
from tests.support.builders.build import job
from tests.support.doubles.periodic_service import GREEDY

PEOPLE = Approval(most_changes=0)
"""Leaves every change to people."""


def left_half_done(bench_):
    """An epoch that is told to stop after the first of two actions."""
    live = bench_.live
    bench_.live = replace(live, stop=iter([False, True]).__next__)
    bench_.epochs(1)
    bench_.live = live


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

    stopped, resumed, after = one.records()
    assert (stopped.outcome.value, stopped.done, stopped.undone) == ("stopped", 1, 1)
    assert (resumed.outcome.value, resumed.done, resumed.done_before) == ("resumed", 1, 1)
    assert resumed.plan_id == stopped.plan_id
    assert after.outcome is EpochOutcome.UNCHANGED
    assert one.plans_of_steps() == [stopped.plan_id] * 2


def test_told_to_stop_before_the_apply_it_keeps_the_plan_and_applies_nothing(bench):
    one = bench()
    save = one.context.plans.save

    def save_and_stop(plan, number):
        one.stop.requested = True
        return save(plan, number)

    one.context.plans.save = save_and_stop
    one.epochs(3)
    one.context.plans.save, one.stop.requested = save, False
    one.epochs(1)

    assert one.outcomes() == ["stopped", "applied"]
    assert one.records()[0].undone == 2


def test_told_to_stop_while_it_searches_it_keeps_the_best_plan_so_far(bench):
    one = bench(policy=GREEDY.model_copy(update={"solvers": (SolverName.MILP,)}))
    end_search = one.stop.end_search

    def hear(now):
        one.stop.requested |= now.objective is not None
        end_search(now)

    one.stop.end_search = hear
    one.epochs(3)

    assert one.outcomes() == ["stopped"]
    # The bound that it still computes may show that there is no better one.
    assert one.context.plans.latest().solution.ended in {"interrupted", "proven"}


@pytest.mark.parametrize(
    ("rules", "then"),
    [
        ({"disruption": Disruption(preempt=False)}, "applied"),
        ({"approval": PEOPLE}, "awaits_approval"),
    ],
)
def test_under_another_policy_a_plan_is_made_anew_and_not_resumed(bench, rules, then):
    one = bench()
    left_half_done(one)
    one.policy = GREEDY.model_copy(update=rules)
    one.context.policy.reread()
    one.epochs(1)

    stopped, given_up, after = one.records()
    assert given_up.plan_id == stopped.plan_id
    assert (given_up.outcome, given_up.done) == (EpochOutcome.PARTLY_APPLIED, 0)
    assert (given_up.done_before, given_up.undone) == (1, 1)
    assert "the policy has other rules" in given_up.error
    assert after.outcome.value == then


def test_with_other_solvers_a_plan_is_resumed_all_the_same(bench):
    one = bench()
    left_half_done(one)
    one.policy = GREEDY.model_copy(update={"solvers": (SolverName.MILP,)})
    one.context.policy.reread()
    one.epochs(1)

    stopped, resumed, _ = one.records()
    assert (resumed.plan_id, resumed.outcome) == (stopped.plan_id, EpochOutcome.RESUMED)


def test_what_people_left_undone_of_a_plan_that_awaits_approval_is_left_to_them(bench):
    one = bench(policy=GREEDY.model_copy(update={"approval": PEOPLE}))
    one.epochs(1)
    plan = one.context.plans.latest()
    with pytest.raises(PlannerError):
        replace(one.live, stop=iter([False, True]).__next__).apply(plan, resume=False)
    one.epochs(1)

    first, left, after = one.records()
    assert first.outcome is after.outcome is EpochOutcome.AWAITS_APPROVAL
    assert (left.plan_id, left.done_before, left.undone) == (plan.plan_id, 1, 1)
    assert "needs an operator's approval" in left.error
    assert len(one.plans_of_steps()) == 1


def test_what_people_did_of_a_plan_as_a_whole_is_written_down(bench):
    one = bench(policy=GREEDY.model_copy(update={"approval": PEOPLE}))
    one.epochs(1)
    one.live.apply(one.context.plans.latest(), resume=False)
    one.epochs(1)

    assert one.outcomes() == ["awaits_approval", "resumed", "unchanged"]
    assert (one.records()[1].done, one.records()[1].done_before) == (0, 2)


def test_what_a_later_run_finds_changed_in_the_policy_is_recorded(bench):
    one = bench()
    one.epochs(1)
    two = bench(policy=GREEDY.model_copy(update={"approval": PEOPLE}))
    two.epochs(2)

    assert [[change.knob for change in record.policy_changes] for record in two.records()] == [
        [],
        ["approval.most_changes"],
        [],
    ]


def test_an_apply_that_is_stale_when_it_is_resumed_gives_way_to_a_new_plan(bench):
    one = bench()
    left_half_done(one)
    left = one.context.plans.latest()
    waits = [each.name for each in one.cluster.snapshot().jobs if each.running is None]
    assert len(waits) == 2
    one.cluster.fail_node("n1")
    one.cluster.fail_node("n0")
    one.cluster.return_node("n0")
    one.epochs(2)

    assert one.outcomes()[1] == "stale"
    assert (one.records()[1].done, one.records()[1].done_before, one.records()[1].undone) == (0, 1, 1)
    assert one.records()[1].plan_id == left.plan_id
    assert one.outcomes()[2] == "applied"


def test_the_next_run_has_nothing_to_resume_after_an_apply_that_was_complete(bench):
    one = bench()

    one.epochs(1)
    one.epochs(1)

    assert one.outcomes() == ["applied", "unchanged"]


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

    resumed, after = one.records()
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
    one.cluster.fail_node("n0")
    one.cluster.return_node("n0")
    one.epochs(1)

    (aside,) = one.folder.glob("audit-*.jsonl")
    assert verify_log(aside) == first
    second = verify_log(one.folder / "audit.jsonl")
    assert {record.plan_id for record in second.records} == {one.records()[-1].plan_id}
    assert second.records[0].sequence == 1


def test_a_long_audit_log_is_kept_while_something_in_it_is_to_be_resumed(bench):
    one = bench()
    left_half_done(one)
    one.live = replace(one.live, longest_audit=1)
    one.epochs(1)

    assert one.outcomes()[1] == "resumed"
    assert list(one.folder.glob("audit-*.jsonl")) == []
