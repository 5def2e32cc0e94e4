"""Promises of a plan: made by apply after all else, once, all together, and kept until the job starts."""

from __future__ import annotations

from datetime import timedelta

import pytest

from gpuplan.models.errors import PartlyAppliedError, PlannerError, StalePlanError
from gpuplan.models.plan.actions import Preempt
from gpuplan.models.plan.reason import Reason, ReasonCode
from gpuplan.models.policy.policy import Drift, Policy
from gpuplan.planner.apply.outcome import ApplyOutcome
from gpuplan.planner.apply.promises import carry_over_promises, promise_step
from gpuplan.planner.diff.drift import drift
from gpuplan.planner.executors.simulated import SimulatedCluster
from gpuplan.planner.plan_file.plan_file import uid_of
from tests.support.builders.build import NOW, job, placement, replica, snapshot
from tests.support.builders.plan_builders import start
from tests.support.doubles.wrapped_cluster import Wrapped
from tests.support.samples import apply_world
from tests.support.samples.apply_world import stop_after
from tests.support.samples.promise_plans import (
    A_NOW,
    B_LATER,
    C_LATER,
    HOUR,
    LOST,
    PLAN,
    PROMISES_ONLY,
    WORLD,
    promise,
    promises_in,
    promising,
)


@pytest.fixture
def live(tmp_path):
    with SimulatedCluster.create(tmp_path / "cluster.db", WORLD) as cluster:
        yield cluster


def carry_out(live, log, plan=PLAN, **more):
    return apply_world.carry_out(live, log, plan=plan, **more)


def told(log):
    return [(record.kind.value, record.action, record.type, record.subject) for record in log.records()]


def test_waiting_jobs_hold_what_the_plan_promised_and_others_nothing(live, log):
    assert promises_in(live) == {"d": LOST}

    outcome = carry_out(live, log)

    assert promises_in(live) == {"b": B_LATER, "c": C_LATER}
    assert outcome.done == ("a1", "promises")


def test_the_promises_come_last_and_are_recorded_as_steps_are(live, log):
    carry_out(live, log)

    assert told(log) == [
        ("begin", "", "", ""),
        ("intent", "a1", "start", "job a"),
        ("outcome", "a1", "start", "job a"),
        ("intent", "promises", "promise", "waiting jobs"),
        ("outcome", "promises", "promise", "waiting jobs"),
        ("end", "", "", ""),
    ]
    assert [record.detail for record in log.records()][3:] == [
        "record 2 promises",
        "",
        "complete: 2 of 2 done",
    ]
    assert live.operations() == (
        (f"{uid_of(PLAN)}:a1", "job a"),
        (f"{uid_of(PLAN)}:promises", "waiting jobs"),
    )


def test_a_plan_without_changes_makes_its_promises_all_the_same(live, log):
    assert not PROMISES_ONLY.has_changes

    assert carry_out(live, log, PROMISES_ONLY).done == ("promises",)

    assert promises_in(live) == {"b": B_LATER, "c": C_LATER}


def test_a_plan_applied_again_makes_no_promise_anew(live, log):
    carry_out(live, log)
    carry_out(
        live, log, promising(live.snapshot(), promised={"b": B_LATER, "c": promise(1, *C_LATER.replicas)})
    )
    before, records = live.snapshot(), log.records()

    outcome = carry_out(live, log)

    assert outcome.skipped == ("a1", "promises")
    assert (live.snapshot(), log.records()) == (before, records)


def test_a_plan_stopped_before_its_promises_is_gone_on_with(live, log):
    with pytest.raises(PartlyAppliedError) as caught:
        carry_out(live, log, stop=stop_after(1))
    assert caught.value.outcome == ApplyOutcome(done=("a1",), remaining=("promises",))
    assert promises_in(live) == {"d": LOST}
    with pytest.raises(PartlyAppliedError):
        carry_out(live, log)

    carry_out(live, log, resume=True)

    assert promises_in(live) == {"b": B_LATER, "c": C_LATER}


def test_promises_are_not_made_after_a_failed_action(live, log):
    class Failing(Wrapped):
        def begin(self, *_):
            raise PlannerError("the cluster says no.")

    with pytest.raises(PlannerError, match="the cluster says no"):
        carry_out(Failing(live), log)

    assert promises_in(live) == {"d": LOST}


def test_a_promise_is_kept_by_the_cluster_until_its_job_starts(live, log, tmp_path):
    carry_out(live, log)
    live.advance(3600)
    with SimulatedCluster(live.path) as again:
        assert promises_in(again) == {"b": B_LATER, "c": C_LATER}
    now = live.snapshot()
    plan = promising(now, placement("b", *B_LATER.replicas), promised={"c": C_LATER})

    carry_out(live, log, plan)

    assert live.snapshot().job_by_name["b"].running.replicas == B_LATER.replicas
    assert promises_in(live) == {"c": C_LATER}


def test_a_job_loses_its_promise_when_it_starts_and_holds_none_when_it_is_preempted(live, log):
    carry_out(live, log)
    live.advance(1800)
    live.begin(start("s", placement("b", *B_LATER.replicas)), "x:s")
    assert promises_in(live) == {"c": C_LATER}

    before = live.snapshot().job_by_name["b"].placement
    because = Reason(code=ReasonCode.MAKES_ROOM, text="a test wants it")
    live.begin(Preempt(id="p", reason=because, job="b", before=before), "x:p")

    assert promises_in(live) == {"c": C_LATER}


def test_a_cluster_passes_over_jobs_that_do_not_wait(live):
    live.keep_promises({"runs": B_LATER, "unknown": B_LATER, "held": B_LATER}, "k")

    assert promises_in(live) == {"held": B_LATER}


def test_promises_are_made_once_for_their_key(live):
    live.keep_promises({"b": B_LATER}, "k")
    live.keep_promises({"c": C_LATER}, "k")
    assert promises_in(live) == {"b": B_LATER}

    live.keep_promises({}, "other")

    assert promises_in(live) == {}


def test_a_plan_of_this_instant_for_a_cluster_without_promises_has_no_such_step(tmp_path, log):
    world = snapshot(jobs=[job("a", gpus=1)])
    plan = promising(world, placement("a", replica("n0", gpus=[0])), policy=Policy())
    with SimulatedCluster.create(tmp_path / "c.db", world) as live:
        assert carry_out(live, log, plan).done == ("a1",)
    assert "promises" not in {record.action for record in log.records()}


def test_a_plan_of_this_instant_clears_what_was_promised(live, log):
    carry_out(live, log, promising(WORLD, A_NOW, policy=Policy()))

    assert promises_in(live) == {}


def test_a_plan_with_nothing_to_do_and_nothing_to_promise_has_no_steps():
    assert promise_step(promising(snapshot(jobs=[job("a")]))) is None


def test_what_was_promised_already_is_no_drift(live, log):
    carry_out(live, log)
    now = live.snapshot()
    again = promising(now, promised={"b": B_LATER, "c": C_LATER})

    assert drift(again, now, done=(), mode=Drift.STRICT) == ()
    carry_out(live, log, again)

    assert live.snapshot() == now


def _without(name):
    return WORLD.model_copy(update={"jobs": tuple(each for each in WORLD.jobs if each.name != name)})


def _changed(name, **fields):
    jobs = (each.model_copy(update=fields) if each.name == name else each for each in WORLD.jobs)
    return WORLD.model_copy(update={"jobs": tuple(jobs)})


@pytest.mark.parametrize(
    ("world", "expected"),
    [
        (_without("b"), "job b is gone: expected a waiting job, found no such job"),
        (_changed("c", priority=3), "job c changed in priority: expected the default, found 3"),
        (
            _changed("b", promise=C_LATER),
            "job b was promised another start: expected none, found 2026-11-20T14:00:00Z on n1",
        ),
    ],
)
@pytest.mark.parametrize("plan", [PLAN, PROMISES_ONLY])
def test_a_promised_job_must_be_as_it_was(tmp_path, log, world, expected, plan):
    with SimulatedCluster.create(tmp_path / "c.db", world) as live:
        with pytest.raises(StalePlanError) as caught:
            carry_out(live, log, plan)

        assert expected in " ".join(str(caught.value).split())
        before = promises_in(live)
        carry_out(live, log, plan, drift_mode=Drift.PRECONDITIONS)
        promises_after = promises_in(live).keys()

    assert "d" in before
    assert promises_after == {"b", "c"} & {each.name for each in world.jobs}


def test_a_plan_that_breaks_a_promise_made_meanwhile_is_stale(tmp_path, log):
    """Another job was promised the places that the plan needs now for longer than until then."""
    given = snapshot(jobs=[job("long", gpus=8, expected_duration="9h"), job("b", gpus=8), job("c", gpus=8)])
    plan = promising(given, placement("long", replica("n0", gpus=range(8))))
    with SimulatedCluster.create(tmp_path / "c.db", given) as live:
        live.keep_promises({"b": B_LATER}, "theirs")

        with pytest.raises(StalePlanError, match=r"promises: job b: found .*, allowed starts by"):
            carry_out(live, log, plan, drift_mode=Drift.PRECONDITIONS)

        assert promises_in(live) == {"b": B_LATER}
        assert live.snapshot().running_placements == ()


@pytest.mark.parametrize("minutes", [0, 30, 59])
def test_time_may_pass_between_plan_and_apply(live, log, minutes):
    """As far as its slot counts from the hour on, a promise stays where it was."""
    live.advance(60 * minutes)

    carry_out(live, log)

    assert promises_in(live) == {"b": B_LATER, "c": C_LATER}


def test_a_plan_is_stale_once_a_start_that_it_promises_is_past(live, log):
    live.advance(60 * 60)

    with pytest.raises(StalePlanError, match="it promises b a start that is past"):
        carry_out(live, log)

    assert promises_in(live).keys() == {"d"}


def test_a_kill_time_is_kept_and_ends_the_job_which_then_has_failed(live, log):
    plan = promising(WORLD, A_NOW, promised={"b": B_LATER}, kill_at=NOW + timedelta(minutes=20))

    carry_out(live, log, plan)

    assert live.snapshot().job_by_name["a"].running.kill_at == NOW + timedelta(minutes=20)
    live.advance(int(HOUR.total_seconds()))
    ended, _ = live.snapshot().finished
    assert (ended.name, ended.outcome, ended.ended_at) == ("a", "failed", NOW + timedelta(minutes=20))


def test_a_promise_that_a_plan_keeps_is_kept_in_the_slot_it_is_in_by_now(live, log):
    live.keep_promises({"c": C_LATER}, "earlier")
    plan = promising(live.snapshot(), A_NOW, promised={"c": C_LATER})
    live.advance(70 * 60)

    carry_out(live, log, plan)

    assert promises_in(live) == {"c": C_LATER}


def test_a_promise_that_has_come_due_meanwhile_makes_the_plan_stale(live, log):
    live.keep_promises({"c": C_LATER}, "earlier")
    plan = promising(live.snapshot(), A_NOW, promised={"c": C_LATER})
    live.advance(130 * 60)

    with pytest.raises(
        StalePlanError, match="it promises c a start that is past, as it is 2026-11-20T14:10:00Z"
    ):
        carry_out(live, log, plan)


def test_a_plan_made_after_another_is_no_stale_one_where_the_cluster_does_not_remember(tmp_path, log):
    given = snapshot(jobs=[job("a", gpus=4, expected_duration="30m"), job("b", gpus=8)])
    earlier = promising(given, promised={"a": promise(1, *A_NOW.replicas), "b": B_LATER})
    plan = promising(carry_over_promises(given, earlier), A_NOW, promised={"b": B_LATER})

    with SimulatedCluster.create(tmp_path / "c.db", given) as live:
        carry_out(live, log, plan)

        assert live.snapshot().job_by_name["a"].running
        assert promises_in(live) == {"b": B_LATER}
