"""Actions that last: several at a time, in order, each with a time limit, tried again where that may help."""

from __future__ import annotations

from dataclasses import replace

import pytest

from gpuplan.models.errors import PartlyAppliedError, PlannerError
from gpuplan.planner.apply.outcome import UnappliedError
from gpuplan.planner.executors.interface import (
    ActionPhase,
    ActionProgress,
    ExecutionError,
    UnreachableError,
)
from tests.support.builders.build import placement, replica
from tests.support.doubles.interrupted_apply import preempting
from tests.support.doubles.lasting_cluster import LastingCluster, VirtualClock, failing, losing
from tests.support.samples import promise_plans
from tests.support.samples.apply_world import (
    GRACE,
    PLAN,
    A,
    carry_out,
    grace,
    recorded,
    running,
    steal,
    swaps,
    under,
)


@pytest.mark.slow
def test_thirty_preemptions_with_a_minute_of_grace_end_within_ninety_seconds(on, log):
    plan = under(swaps(30), parallel=30)
    cluster = on(plan, lasts=grace)

    outcome = carry_out(cluster, log, plan=plan, clock=cluster.clock)

    assert len(outcome.done) == 60
    assert GRACE < cluster.clock.now() <= 90


@pytest.mark.slow
@pytest.mark.parametrize("parallel", [1, 4, 10])
def test_no_more_actions_are_under_way_than_the_policy_allows(on, log, parallel):
    plan = under(swaps(12), parallel=parallel)
    cluster = on(plan, lasts=grace)

    carry_out(cluster, log, plan=plan, clock=cluster.clock)

    assert cluster.most_at_once == parallel


def test_an_action_begins_once_all_that_it_comes_after_have_landed(on, log):
    plan = swaps(2)
    cluster = on(plan, lasts=grace)

    carry_out(cluster, log, plan=plan, clock=cluster.clock)

    stops, starts = plan.actions[:2], plan.actions[2:]
    ends = {request.action.id: request.ends for request in cluster.requests.values()}
    assert all(ends[start.id] - 5.0 >= ends[stop.id] for stop, start in zip(stops, starts, strict=True))


def test_what_may_pass_is_tried_again_with_growing_pauses(on, log):
    plan = under(swaps(1), attempts=4, backoff=10)
    failures = iter(["no node answers"] * 3)
    cluster = on(plan, trouble=lambda call, _: next(failures, "") if call == "begin" else "")

    outcome = carry_out(cluster, log, plan=plan, clock=cluster.clock)

    assert len(outcome.done) == 2
    assert 10 + 20 + 40 <= cluster.clock.now() < 10 + 20 + 40 + 5
    intents = [record.detail for record in log.records() if record.kind.value == "intent"]
    assert [detail.rpartition(" (")[2] for detail in intents[1:4]] == [
        f"attempt {n} of 4)" for n in (2, 3, 4)
    ]


def test_what_fails_each_time_is_given_up(on, log):
    plan = under(swaps(1), attempts=2)
    cluster = on(plan, trouble=lambda call, _: "no node answers" if call == "begin" else "")

    with pytest.raises(UnappliedError, match="no node answers") as caught:
        carry_out(cluster, log, plan=plan, clock=cluster.clock)

    assert [each.action for each in caught.value.outcome.failures] == [plan.actions[0].id]
    assert caught.value.outcome.remaining == (plan.actions[1].id,)
    assert [kind for kind, _ in recorded(log)] == ["begin", "intent", "intent", "outcome", "end"]


def test_what_lasts_too_long_is_withdrawn(on, log):
    plan = under(swaps(1), timeouts={"preempt": 30})
    cluster = on(plan, lasts=grace)

    with pytest.raises(UnappliedError, match="under way after 30s: it lasts"):
        carry_out(cluster, log, plan=plan, clock=cluster.clock)

    assert cluster.requests == {}
    assert 30 <= cluster.clock.now() < 33
    assert "old000" in running(cluster)


def test_after_a_failure_those_under_way_end_and_no_other_begins(on, log):
    plan = under(swaps(4), parallel=2)
    first = plan.actions[0].id
    cluster = on(plan, lasts=grace, trouble=failing("begin", first, "dead"))

    with pytest.raises(PartlyAppliedError) as caught:
        carry_out(cluster, log, plan=under(plan, parallel=2, attempts=1), clock=cluster.clock)

    outcome = caught.value.outcome
    assert outcome.done == (plan.actions[1].id,)
    assert [each.action for each in outcome.failures] == [first]
    assert len(outcome.remaining) == 6


def test_with_continue_only_what_depends_on_a_failure_is_left_out(on, log):
    plan = under(swaps(4), parallel=2, attempts=1, on_failure="continue")
    first = plan.actions[0].id
    cluster = on(plan, trouble=failing("begin", first, "dead"))

    with pytest.raises(PartlyAppliedError) as caught:
        carry_out(cluster, log, plan=plan, clock=cluster.clock)

    assert len(caught.value.outcome.done) == 6
    assert caught.value.outcome.remaining == (plan.actions[4].id,)


def test_too_many_failures_end_the_apply(on, log):
    plan = under(swaps(8), attempts=1, on_failure="continue", most_failures=3)
    cluster = on(plan, trouble=lambda call, _: "dead" if call == "begin" else "")

    with pytest.raises(UnappliedError) as caught:
        carry_out(cluster, log, plan=plan, clock=cluster.clock)

    assert len(caught.value.outcome.failures) == 3


def test_what_was_done_without_an_answer_is_not_done_again(on, log):
    plan = swaps(3)
    cluster = on(plan, lasts=grace, trouble=losing("begin", 2))

    assert len(carry_out(cluster, log, plan=plan, clock=cluster.clock).done) == 6
    assert [kind for kind, _ in recorded(log)].count("intent") == 6


def test_what_never_reached_the_cluster_is_tried_again(on, log):
    plan = swaps(1)
    cluster = on(plan, lasts=grace)
    once = iter([True])

    def forget(call, _):
        if call == "observe" and next(once, False):
            cluster.requests.clear()
        return ""

    cluster.trouble = forget

    assert len(carry_out(cluster, log, plan=plan, clock=cluster.clock).done) == 2


def test_a_cluster_that_does_not_answer_for_a_while_is_waited_for(on, log):
    plan = swaps(1)
    cluster = on(plan, lasts=grace)
    # It answers while the apply finds out what is left.
    answers, silent = iter([1, 1]), losing("observe", 12)
    cluster.trouble = lambda call, name: "" if call == "observe" and next(answers, 0) else silent(call, name)

    assert len(carry_out(cluster, log, plan=plan, clock=cluster.clock).done) == 2
    assert 30 <= cluster.clock.now() < 70


@pytest.mark.parametrize("call", ["observe", "undo"])
def test_an_error_of_the_cluster_ends_no_other_action(on, log, call):
    plan = under(swaps(2), timeouts={"preempt": 30}, on_failure="continue")
    first = plan.actions[0].id
    cluster = on(plan, lasts=lambda action: GRACE if action.id == first else 5.0)
    answers = iter(range(3))

    def unreadable(here, _):
        # It can be read while the apply finds out what is left.
        if here == call and (call == "undo" or next(answers, None) == 1):
            raise ExecutionError("the answer cannot be read.")
        return ""

    cluster.trouble = unreadable
    with pytest.raises(PartlyAppliedError) as caught:
        carry_out(cluster, log, plan=plan, clock=cluster.clock)

    assert [each.action for each in caught.value.outcome.failures] == [first]
    assert caught.value.outcome.done == (plan.actions[1].id, plan.actions[3].id)


def test_outcomes_are_in_the_order_of_the_plan(on, log):
    plan = swaps(3)
    last = plan.actions[2].id
    cluster = on(plan, lasts=lambda action: 1.0 if action.id == last else GRACE)

    outcome = carry_out(cluster, log, plan=plan, clock=cluster.clock)

    assert outcome.done == tuple(action.id for action in plan.actions)


def test_an_outcome_is_in_the_log_while_others_are_waited_for(on, log):
    plan = preempting(2, 0)
    last = plan.actions[1].id
    cluster = on(plan, lasts=lambda action: 5.0 if action.id == last else GRACE)
    found = {}

    def look(seconds):
        found[cluster.clock.now()] = recorded(log)
        VirtualClock.sleep(cluster.clock, seconds)

    cluster.clock.sleep = look
    carry_out(cluster, log, plan=plan, clock=cluster.clock)

    assert ("outcome", last) in found[min(at for at in found if at > 10)]


def test_many_failures_are_listed_by_line(on, log):
    plan = under(swaps(30), attempts=1, on_failure="continue", most_failures=100)
    cluster = on(plan, trouble=lambda call, _: "no node answers." if call == "begin" else "")

    with pytest.raises(UnappliedError) as caught:
        carry_out(cluster, log, plan=plan, clock=cluster.clock)

    lines = str(caught.value).splitlines()
    assert lines[0] == f"Plan {plan.plan_id} was not applied: 30 actions failed."
    assert lines[1] == f"  {plan.actions[0].id}: no node answers."
    assert lines[21] == "  and 10 more"
    assert len(lines) < 30
    assert max(map(len, lines)) < 80


def test_promises_recorded_without_an_answer_are_not_recorded_again(on, log):
    plan = under(promise_plans.PLAN, attempts=1)
    cluster = on(plan, trouble=losing("promises", 1))

    assert carry_out(cluster, log, plan=plan, clock=cluster.clock).done == ("a1", "promises")
    assert [kind for kind, _ in recorded(log)].count("intent") == 2


def test_promises_that_never_reached_the_cluster_are_tried_again_after_the_pause(on, log):
    plan = under(promise_plans.PLAN, attempts=3, backoff=30)
    trouble = iter(["unreached"] * 2)
    cluster = on(plan, trouble=lambda call, _: next(trouble, "") if call == "promises" else "")

    assert carry_out(cluster, log, plan=plan, clock=cluster.clock).done == ("a1", "promises")
    assert 30 + 60 <= cluster.clock.now() < 30 + 60 + 3


def test_nothing_begins_while_the_cluster_cannot_tell_how_far_a_step_went(on, log):
    plan = swaps(1)
    cluster = on(plan)
    cluster.observe = lambda keys: dict.fromkeys(keys, ActionProgress(ActionPhase.UNKNOWN))

    with pytest.raises(UnreachableError, match=plan.actions[0].id):
        carry_out(cluster, log, plan=plan, clock=cluster.clock)

    assert cluster.requests == {}


def test_another_attempt_is_checked_on_the_cluster_as_it_is_by_then(on, log):
    """While a start waits for its second attempt, another job takes its place."""
    plan = under(PLAN, attempts=3, backoff=10)
    cluster = on(plan, trouble=failing("begin", "a1", "no node answers"))
    steal_at = iter([A])

    def sleep(seconds):
        for taken in steal_at:
            steal(cluster.inner, taken)
        VirtualClock.sleep(cluster.clock, seconds)

    cluster.clock.sleep = sleep

    with pytest.raises(PlannerError) as caught:
        carry_out(cluster, log, plan=plan, clock=cluster.clock)

    (failure,) = caught.value.outcome.failures
    assert failure.action == "a1"
    assert failure.reason.startswith("a precondition does not hold: node n0 has too little free")
    assert sum(kind == "intent" and action == "a1" for kind, action in recorded(log)) == 1


def test_what_may_still_land_keeps_its_turn_and_its_places(on, log):
    plan = under(swaps(3), parallel=1, timeouts={"preempt": 30}, on_failure="continue")
    cluster = on(plan, lasts=grace, trouble=losing("undo", 9))

    with pytest.raises(UnappliedError) as caught:
        carry_out(cluster, log, plan=plan, clock=cluster.clock)

    assert [each.action for each in caught.value.outcome.failures] == [plan.actions[0].id]
    assert cluster.most_at_once == 1


def test_what_lasts_too_long_and_lands_after_all_has_landed(on, log):
    plan = under(swaps(2), timeouts={"preempt": 30}, on_failure="continue")
    first, second = plan.actions[0].id, plan.actions[1].id
    cluster = on(
        plan,
        lasts=lambda action: {first: 40.0, second: 29.0}.get(action.id, 20.0),
        trouble=losing("undo", 1),
    )

    outcome = carry_out(cluster, log, plan=plan, clock=cluster.clock)

    assert outcome.done == tuple(action.id for action in plan.actions)
    assert outcome.failures == ()
    ends = [record.outcome.value for record in log.records() if record.action == first and record.outcome]
    assert ends == ["failed", "done"]


def test_a_job_that_landed_on_another_node_holds_its_place_there(on, log):
    """Job a landed where b is to start; the log says so, and b finds too little free."""
    plan = under(PLAN, parallel=1)
    other = placement("a", replica("n1", gpus=[0, 1]))

    class Elsewhere(LastingCluster):
        def begin(self, action, key):
            progress = super().begin(action, key)
            return replace(progress, placement=other) if action.id == "a1" else progress

    inner = on(plan).inner
    cluster = Elsewhere(inner, VirtualClock())

    with pytest.raises(PartlyAppliedError) as caught:
        carry_out(cluster, log, plan=plan, clock=cluster.clock)

    assert [each.action for each in caught.value.outcome.failures] == ["a2"]
    (landed,) = [each for each in log.records() if each.action == "a1" and each.outcome]
    assert landed.detail == "runs on n1"


def test_another_attempt_is_not_hindered_by_the_traces_of_the_first(on, log):
    """A failed attempt has changed the description of the job, as a cluster that writes its nodes there."""
    plan = under(PLAN, attempts=3, backoff=10)
    failures = iter(["no node answers"])
    cluster = on(plan, trouble=lambda call, id_: next(failures, "") if (call, id_) == ("begin", "a1") else "")
    read = cluster.inner.snapshot

    def traced():
        live = read()
        jobs = tuple(
            each.model_copy(update={"priority": 7}) if each.name == "a" and cluster.requests else each
            for each in live.jobs
        )
        return live.model_copy(update={"jobs": jobs})

    cluster.snapshot = traced

    assert len(carry_out(cluster, log, plan=plan, clock=cluster.clock).done) == 3
