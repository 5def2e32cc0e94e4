"""Applies that end early: killed, stopped or cut off from their log, and what is left to the next."""

from __future__ import annotations

from datetime import timedelta

import pytest

from gpuplan.models.errors import PartlyAppliedError, PlannerError
from gpuplan.models.policy.policy import Drift
from gpuplan.planner.apply.apply import apply_plan
from gpuplan.planner.apply.journal import ApplyJournal
from gpuplan.planner.apply.outcome import ApplyHooks, UnappliedError
from gpuplan.planner.apply.promises import steps_of
from gpuplan.planner.apply.standing import key_of
from gpuplan.planner.executors.interface import (
    GONE,
)
from tests.support.builders.build import NOW, job, placement, replica, snapshot
from tests.support.doubles.lasting_cluster import VirtualClock, failing, losing
from tests.support.doubles.wrapped_cluster import Wrapped
from tests.support.samples import all_actions
from tests.support.samples.all_actions import begin, cordon, plan_with
from tests.support.samples.apply_world import (
    GRACE,
    carry_out,
    grace,
    swaps,
    under,
)


class KilledError(Exception):
    """The apply ends without a word."""


def killed_after(seconds, cluster):
    """A sleep in which an apply is killed once so many seconds have passed."""

    def sleep(pause):
        if cluster.clock.now() > seconds:
            raise KilledError
        VirtualClock.sleep(cluster.clock, pause)

    return sleep


def kill_after(seconds, cluster, log, plan):
    """Apply a plan up to this time; its actions stay under way."""
    cluster.clock.sleep = killed_after(seconds, cluster)
    with pytest.raises(KilledError):
        carry_out(cluster, log, plan=plan, clock=cluster.clock)
    del cluster.clock.sleep


@pytest.mark.slow
@pytest.mark.parametrize("shows_early", [False, True])
@pytest.mark.parametrize("drift_mode", Drift)
@pytest.mark.parametrize("plan", [swaps(2), all_actions.PLAN], ids=["swaps", "all kinds"])
def test_an_interrupted_apply_resumes_what_is_under_way(on, log, plan, drift_mode, shows_early):
    cluster = on(plan, lasts=grace, shows_early=shows_early)
    kill_after(3, cluster, log, plan)
    begun = {key: request.ends for key, request in cluster.requests.items()}
    assert begun

    outcome = carry_out(cluster, log, plan=plan, clock=cluster.clock, resume=True, drift_mode=drift_mode)

    assert len(outcome.done) == len(steps_of(plan))
    assert begun.items() <= {key: request.ends for key, request in cluster.requests.items()}.items()


def test_what_lands_while_the_cluster_is_read_to_resume_has_landed(on, log):
    plan = swaps(2)
    cluster = on(plan, lasts=grace, shows_early=True)
    kill_after(10, cluster, log, plan)
    read = cluster.inner.snapshot

    def read_slowly():
        VirtualClock.sleep(cluster.clock, GRACE)
        return read()

    cluster.snapshot = read_slowly

    assert len(carry_out(cluster, log, plan=plan, clock=cluster.clock, resume=True).done) == 4


def test_a_stop_waits_for_what_is_under_way(on, log):
    plan = under(swaps(2), parallel=2)
    cluster = on(plan, lasts=grace)

    with pytest.raises(PartlyAppliedError, match="told to stop") as caught:
        carry_out(cluster, log, plan=plan, clock=cluster.clock, stop=lambda: cluster.clock.now() > 5)

    assert caught.value.outcome.done == tuple(action.id for action in plan.actions[:2])


def test_a_stop_ends_the_wait_for_another_attempt(on, log):
    plan = under(swaps(1), attempts=5, backoff=3600)
    cluster = on(plan, trouble=lambda call, _: "no node answers" if call == "begin" else "")

    with pytest.raises(UnappliedError, match="told to stop"):
        carry_out(cluster, log, plan=plan, clock=cluster.clock, stop=lambda: cluster.clock.now() > 10)

    assert cluster.clock.now() < 15


def test_another_attempt_that_may_not_begin_any_more_ends_the_apply(on, log):
    world = snapshot(jobs=[job("late", gpus=1)])
    place = replica("n0", gpus=[0])
    plan = plan_with(world, begin(world, "late", place), cordon("n0"), placements=[placement("late", place)])
    plan = under(plan, on_failure="continue")
    cluster = on(plan, trouble=failing("begin", "start/late", "no node answers"))

    with pytest.raises(PartlyAppliedError, match="n0 was cordoned") as caught:
        carry_out(cluster, log, plan=plan, clock=cluster.clock, stop=lambda: cluster.clock.now() > 20)

    assert caught.value.outcome.done == ("cordon/n0",)
    assert cluster.clock.now() < 20


def test_once_an_intent_cannot_be_recorded_no_other_begins_whatever_fails_then(on, log, monkeypatch):
    plan = under(swaps(4), parallel=2, attempts=1, on_failure="continue")
    cluster = on(plan, lasts=grace, trouble=failing("begin", plan.actions[0].id, "dead"))
    write, calls = ApplyJournal.write, iter(range(1000))

    def write_but_once(journal):
        if next(calls) == 1:
            raise PlannerError("the disk is full.")
        write(journal)

    monkeypatch.setattr(ApplyJournal, "write", write_but_once)
    with pytest.raises(UnappliedError) as caught:
        carry_out(cluster, log, plan=plan, clock=cluster.clock)

    assert [each.action for each in caught.value.outcome.failures] == [
        plan.actions[1].id,
        plan.actions[0].id,
    ]
    assert len(cluster.requests) == 1


def test_what_lasts_too_long_and_cannot_be_withdrawn_may_land_later(on, log):
    plan = under(swaps(1), timeouts={"preempt": 30})
    cluster = on(plan, lasts=grace, trouble=losing("undo", 1))

    with pytest.raises(UnappliedError, match="may still land"):
        carry_out(cluster, log, plan=plan, clock=cluster.clock)

    cluster.clock.sleep(GRACE)
    outcome = carry_out(cluster, log, plan=plan, clock=cluster.clock, resume=True)
    assert outcome.skipped == (plan.actions[0].id,)
    assert outcome.done == (plan.actions[1].id,)


class Forgetful(Wrapped):
    """A cluster that finished jobs leave, with their marks."""

    gone = frozenset()

    def observe(self, keys):
        found = self.inner.observe(keys)
        return {key: GONE if key in self.gone else progress for key, progress in found.items()}


def test_an_action_of_a_job_that_has_left_the_cluster_is_done_if_it_is_recorded(on, log):
    plan = swaps(2)
    cluster = Forgetful(on(plan))
    carry_out(cluster, log, plan=plan, clock=cluster.inner.clock)
    cluster.gone = frozenset({key_of(plan, plan.actions[0])})
    again = carry_out(cluster, log, plan=plan, resume=True, clock=cluster.inner.clock)
    assert again.done == ()
    assert len(again.skipped) == len(plan.actions)


def test_an_action_whose_job_leaves_while_it_is_under_way_fails(on, log):
    plan = under(swaps(1), attempts=3)
    cluster = Forgetful(on(plan, lasts=grace))
    cluster.gone = frozenset({key_of(plan, plan.actions[0])})
    with pytest.raises(UnappliedError) as failed:
        carry_out(cluster, log, plan=plan, clock=cluster.inner.clock)
    assert [each.action for each in failed.value.outcome.failures] == [plan.actions[0].id]


def test_a_resumed_action_has_only_the_time_that_is_left(on, log):
    plan = under(swaps(1), timeouts={"preempt": 30})
    cluster = on(plan, lasts=lambda _: 1_000.0)
    began = cluster.clock.now()

    def now():
        return NOW + timedelta(seconds=cluster.clock.now() - began)

    hooks = ApplyHooks(clock=cluster.clock)
    told = {"actor": "ann@login1", "now": now, "hooks": hooks}
    cluster.clock.sleep = killed_after(20, cluster)
    with pytest.raises(KilledError):
        apply_plan(plan, cluster, log, **told)
    del cluster.clock.sleep

    with pytest.raises(PlannerError, match="under way after 30s"):
        apply_plan(plan, cluster, log, resume=True, **told)

    assert 29.9 <= cluster.clock.now() < 33
