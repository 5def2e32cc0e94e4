"""A whole replay: what it counts, how it ends, and that it is the same whenever it is made again."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta

import pytest

from gpuplan.models.calendar import Tariff
from gpuplan.models.errors import PlannerError
from gpuplan.models.health.measurement import HealthPolicy, Measurement
from gpuplan.models.policy.policy import Disruption, Policy
from gpuplan.models.policy.settings import Backfill, HorizonPolicy
from gpuplan.models.units import MILLI
from gpuplan.planner.epoch import plan_epoch
from gpuplan.planner.simulate import decide
from gpuplan.planner.simulate.compare_runs import RunCase, run_all_cases
from gpuplan.planner.simulate.decide import SETTLED, apply_plan_to_world
from gpuplan.planner.simulate.replay import ReplayProgress, replay
from gpuplan.planner.simulate.run_options import EpochClock
from gpuplan.planner.simulate.scorecard import ScoreKeeper
from gpuplan.planner.simulate.simulated_job import JobEvent, JobEventKind
from gpuplan.planner.simulate.trace import FutureSubmission, Physics, Trace
from gpuplan.planner.simulate.world import Elapsed, advance_world, initial_world
from gpuplan.planner.sources.traces.arrivals import NodeEvent, Outage
from tests.support.builders.build import NOW, by_value, job, node, pool, replica, snapshot
from tests.support.strategies.random_traces import random_trace

GREEDY = by_value(solvers=(), disruption=Disruption(preempt=False, resize=False))
MINUTE = 60


def comes(name, second, duration, **about):
    """A job that comes at a second and takes so many."""
    asked = job(name, **{"gpus": 8, "expected_duration": duration} | about)
    return FutureSubmission(
        asked.model_copy(update={"submitted_at": NOW + timedelta(seconds=second)}), duration
    )


def trace(*coming, jobs=(), nodes=1, **about):
    start = snapshot(nodes=[node(f"n{index}") for index in range(nodes)], jobs=jobs)
    return Trace(start, coming, **about)


def run(given, policy=GREEDY, *, every=10 * MINUTE, seconds=None, **more):
    return replay(given, policy, EpochClock(every, seconds), seed=0, **more)


def without_seconds(replayed):
    seconds = ("planning_seconds", "planning_seconds_mean", "planning_seconds_max")
    scores = replayed.scores.model_copy(update=dict.fromkeys(seconds, 0))
    return scores, [epoch.model_copy(update={"seconds": 0}) for epoch in replayed.epochs]


def test_jobs_that_follow_each_other_wait_for_the_first_epoch_after_the_one_before():
    found = run(trace(comes("a", 0, 900), comes("b", 60, 600), comes("c", 120, 100)))

    # a runs from 0:00 to 0:15, b from 0:20 to 0:30 and c from then on.
    scores = found.scores
    assert found.stopped == "finished"
    assert (scores.jobs, scores.finished, scores.running, scores.waiting) == (3, 3, 0, 0)
    assert scores.wait.mean.value == pytest.approx((0 + 1140 + 1680) / 3)
    assert scores.wait.p99.value == 1680
    assert scores.completion.p99.value == 1780
    assert scores.slowdown.p99.value == pytest.approx(17.8)
    assert scores.queue_max == 2
    assert not scores.wait.mean.at_least


def test_utilization_is_of_the_time_and_cost_by_the_hour():
    nodes = [node("n0", price_per_hour=10.0)]
    given = Trace(snapshot(nodes=nodes), (comes("a", 0, 1800, gpus=4),))

    scores = run(given, seconds=3600).scores

    assert scores.gpu_utilization == pytest.approx(0.25)
    assert scores.gpu_hours == pytest.approx(2)
    assert scores.cost == pytest.approx(10)


def test_tariffs_cost_the_gpu_hours_under_them():
    peak = Tariff(name="peak", start=NOW + timedelta(minutes=30), duration=3600, price_per_gpu_hour=2.0)
    runs = job("r", gpus=4, at=[replica("n0", gpus=(0, 1, 2, 3))], expected_duration=7200)
    given = Trace(snapshot(nodes=[node("n0")], jobs=[runs], tariffs=(peak,)), (comes("a", 0, 2400, gpus=1),))

    # The running job holds 4 GPUs for another hour, the other one for 40 minutes: 30 and 10 of them count.
    assert run(given, seconds=3600).scores.cost == pytest.approx(2 * (4 * 30 + 10) / 60, abs=0.01)


def test_killed_jobs_are_counted_and_never_completed():
    backfilled = comes("short", 0, 5400, gpus=4, expected_duration=1800)
    runs = job("r", gpus=4, at=[replica("n0", gpus=(0, 1, 2, 3))], expected_duration=5400)
    # Otherwise it would be stopped at last, to go on afterwards.
    policy = Policy(
        solvers=(),
        disruption=Disruption(preempt=False),
        horizon=HorizonPolicy(slots=6, length=1800, backfill=Backfill(kill=True)),
    )

    found = run(trace(backfilled, comes("gang", 0, 600, priority=5), jobs=[runs]), policy, every=10 * MINUTE)

    assert (found.scores.killed, found.scores.finished, found.scores.jobs) == (1, 1, 2)
    assert found.scores.completion.p99.value < 5400


def test_what_is_not_over_at_the_end_is_counted_and_bounds_from_below():
    found = run(trace(comes("a", 0, 90000), comes("b", 600, 600)), seconds=3600)

    scores = found.scores
    assert found.stopped == "time"
    assert (scores.finished, scores.running, scores.waiting) == (0, 1, 1)
    assert (scores.wait.p50.value, scores.wait.p50.at_least) == (0, False)
    assert (scores.wait.p95.value, scores.wait.p95.at_least) == (3000, True)
    assert scores.completion.mean.at_least


def test_jobs_that_come_after_the_end_are_said_not_to_have_come():
    scores = run(trace(comes("a", 0, 60), comes("b", 7000, 60)), seconds=3600).scores

    assert (scores.jobs, scores.not_submitted) == (1, 1)


def test_a_job_that_can_never_start_ends_it_a_quiet_day_later_which_does_not_count():
    found = run(trace(comes("a", 0, 900), comes("huge", 0, 60, gpus=16)), every=30 * MINUTE)

    assert found.stopped == "stuck"
    assert (found.scores.finished, found.scores.waiting) == (1, 1)
    assert found.epochs[-1].at == NOW + timedelta(minutes=30)
    assert found.scores.gpu_utilization == pytest.approx(0.5)


HELD = job("h", gpus=1, held=True)
RUNNING = job("r", gpus=1, at=[replica("n0", gpus=[0])], expected_duration=60)


@pytest.mark.parametrize("jobs", [(), (HELD,), (RUNNING,), (HELD, RUNNING)])
@pytest.mark.parametrize("every", [MINUTE, 86_400])
def test_a_source_without_waiting_jobs_is_planned_once_at_least(jobs, every):
    found = run(trace(jobs=jobs), every=every)

    assert found.stopped == "finished"
    assert found.epochs[0].at == NOW
    assert (found.scores.jobs, found.scores.wait) == (0, None)


def test_where_no_job_can_ever_start_the_first_epoch_counts():
    found = run(trace(jobs=[job("huge", gpus=16)]), every=30 * MINUTE)

    assert found.stopped == "stuck"
    assert [epoch.at for epoch in found.epochs] == [NOW]
    assert (found.scores.waiting, found.scores.queue_max) == (1, 1)


def test_a_start_on_a_node_that_is_still_to_come_up_ends_no_wait_before():
    start = snapshot(nodes=(), jobs=[job("a", gpus=8, priority=50)], pools=(pool(provisioning=300),))
    early, late = (
        run(Trace(start), every=MINUTE, seconds=seconds).scores.wait.mean for seconds in (120, 600)
    )

    assert (early.value - 120, early.at_least) == (late.value - 300, True)
    assert not late.at_least


def test_a_start_that_never_came_to_be_ends_no_wait():
    start = snapshot(nodes=(), jobs=[job("a", gpus=8, priority=50)], pools=(pool(provisioning=300),))
    given = Trace(start)
    before = initial_world(given)
    account = ScoreKeeper(given, before)
    plan = plan_epoch(before.snapshot(), GREEDY, seed=0, created_at=NOW)
    after, began = apply_plan_to_world(before, plan)
    account.record(Elapsed(after, began))
    passed = advance_world(after, NOW + timedelta(seconds=60)).world
    waits, held = passed.tasks["a"].stopped(passed.now, passed.physics)
    passed = replace(passed, tasks={"a": waits})
    account.record(Elapsed(passed, (JobEvent(passed.now, JobEventKind.PREEMPTED, "a", held),)))

    later = advance_world(passed, NOW + timedelta(seconds=600)).world
    wait = account.scorecard(later, run(trace(), seconds=0).epochs).wait

    submitted = start.job_by_name["a"].submitted_at
    assert (wait.mean.value, wait.mean.at_least) == ((later.now - submitted).total_seconds(), True)


def test_work_that_was_done_before_the_simulation_is_not_lost_in_it():
    runs = job(
        "r",
        gpus=8,
        at=[replica("n0", gpus=range(8))],
        waited=timedelta(hours=3),
        expected_duration=6 * 3600,
    )
    outages = (Outage(900, "n0", NodeEvent.FAILS),)

    found = run(trace(jobs=[runs], outages=outages, physics=Physics(checkpoint_every=0)), seconds=1800)

    assert found.scores.lost_gpu_hours == found.scores.gpu_hours == pytest.approx(8 * 0.25)


def test_where_nothing_has_changed_no_other_plan_is_made():
    found = run(trace(comes("a", 0, 3600), comes("b", 0, 3600)), every=10 * MINUTE)

    solvers = [epoch.solver for epoch in found.epochs]
    assert solvers[0] != SETTLED
    assert solvers[1:6] == [SETTLED] * 5
    assert solvers[6] != SETTLED


def test_held_jobs_and_those_that_run_at_the_start_are_not_scored():
    runs = job("r", gpus=4, at=[replica("n0", gpus=(0, 1, 2, 3))], expected_duration=5400)
    held = job("h", gpus=1, held=True, expected_duration=60)

    scores = run(trace(jobs=(runs, held, job("w", gpus=1, expected_duration=60)))).scores

    assert (scores.jobs, scores.finished, scores.held) == (1, 1, 1)
    assert scores.gpu_hours == pytest.approx((4 * 1800 + 60) / 3600, abs=1e-3)


def test_a_preempted_job_loses_what_it_had_not_saved_and_does_it_again():
    policy = Policy(solvers=(), disruption=Disruption(preempt=True, resize=False))
    physics = Physics(checkpoint_every=600, checkpoint=0, restart=60)
    given = trace(comes("a", 0, 3600), comes("vip", 1500, 600, priority=50), physics=physics)

    found = run(given, policy, every=15 * MINUTE)

    # a works for 30 minutes, all of them saved; it comes back 15 minutes later and needs a minute for that.
    assert (found.scores.preemptions, found.scores.lost_gpu_hours) == (1, 0)
    assert found.scores.idle_gpu_hours == pytest.approx(8 / 60, abs=1e-3)
    assert found.scores.completion.p99.value == 3600 + 900 + 60
    # It is the first start that ends a wait: a waited for none, vip for the next epoch.
    assert found.scores.wait.p99.value == 300

    never = run(replace(given, physics=replace(physics, checkpoint_every=0)), policy, every=15 * MINUTE)
    assert never.scores.lost_gpu_hours == pytest.approx(8 / 2, abs=1e-3)
    assert never.scores.completion.p99.value == 1800 + 900 + 60 + 3600


def vip(number):
    """One of those that come every hour, more important than the one before, and take half of it."""
    return comes(f"vip{number}", 3600 * number, 1800, priority=number)


@pytest.mark.slow
def test_a_job_is_preempted_no_more_often_than_the_policy_allows():
    given = trace(comes("a", 0, 6 * 3600, priority=0), *map(vip, range(1, 6)))

    def preempted(**rules):
        policy = Policy(solvers=(), disruption=Disruption(**rules))
        epochs = run(given, policy, every=30 * MINUTE).epochs
        return [(epoch.at - NOW) // timedelta(hours=1) for epoch in epochs for _ in range(epoch.preempted)]

    assert preempted() == [1, 2, 3, 4, 5]
    assert preempted(max_preemptions=2) == [1, 2]
    assert preempted(max_preemptions=0) == []


def test_failing_nodes_interrupt_jobs():
    outages = (Outage(900, "n0", NodeEvent.FAILS), Outage(1500, "n0", NodeEvent.RETURNS))

    physics = Physics(checkpoint_every=600, checkpoint=0, restart=0)
    found = run(trace(comes("a", 0, 1800), outages=outages, physics=physics))

    assert found.scores.interruptions == 1
    assert [epoch.interrupted for epoch in found.epochs[:4]] == [0, 0, 1, 0]
    # 10 of 15 minutes were saved; it goes on at 30 minutes.
    assert found.scores.completion.p99.value == 1800 + 1200


def test_missed_deadlines_are_those_that_passed():
    due = NOW + timedelta(seconds=1000)
    found = run(
        trace(
            comes("in-time", 0, 900, gpus=4, deadline=due),
            comes("late", 0, 1200, gpus=4, deadline=due),
            comes("open", 1300, 60, deadline=NOW + timedelta(days=9)),
        )
    )

    assert (found.scores.deadline_jobs, found.scores.deadline_misses) == (2, 1)


def test_worth_weighs_waiting_by_priority_and_gpus():
    scores = run(trace(comes("a", 0, 1200, priority=9), comes("b", 0, 60, gpus=4))).scores

    assert scores.wait.mean.value == 600
    assert scores.worth_wait.value == pytest.approx(4 * 1200 / (80 + 4), abs=1e-3)


@pytest.mark.slow
def test_made_again_it_is_the_same():
    given, policy = random_trace(5, jobs=12, hours=2)
    clock = EpochClock(1200, 2 * 3600)

    first, second = (replay(given, policy, clock, seed=3) for _ in range(2))

    assert without_seconds(first) == without_seconds(second)


def test_each_epoch_accounts_for_every_job():
    given, policy = random_trace(2, jobs=15, hours=2)
    found = replay(given, policy, EpochClock(1200, 3 * 3600), seed=0)

    present = len(given.start.jobs)
    for epoch in found.epochs:
        present += epoch.submitted - epoch.finished - epoch.killed
        assert epoch.running + epoch.waiting == present
    scores = found.scores
    assert scores.finished + scores.killed + scores.running + scores.waiting == scores.jobs


def test_it_tells_how_far_it_is():
    told = []

    run(trace(comes("a", 0, 900)), seconds=3600, watch=told.append)

    assert [each.part for each in told] == [pytest.approx(part / 6) for part in range(7)]
    assert all(isinstance(each, ReplayProgress) for each in told)


def test_an_epoch_that_cannot_be_planned_is_named(monkeypatch):
    def fails(*_args, **_more):
        raise PlannerError("no plan")

    monkeypatch.setattr(decide, "plan_epoch", fails)

    with pytest.raises(PlannerError, match="epoch 0 at 2026-11-20T12:00:00Z could not be planned: no plan"):
        run(trace(comes("a", 0, 900)))


@pytest.mark.slow
def test_runs_beside_each_other_find_what_each_finds_alone():
    given = trace(comes("a", 0, 900), comes("b", 60, 600, gpus=4), comes("c", 60, 600, gpus=8))
    cases = [RunCase("one", "x", "greedy", GREEDY), RunCase("two", "x", "greedy", GREEDY)]
    told = []

    found = run_all_cases(
        given, cases, EpochClock(600), seed=0, at_a_time=2, watch=lambda number, _: told.append(number)
    )

    alone = run(given)
    assert [without_seconds(each) for each in found] == [without_seconds(alone)] * 2
    assert set(told) == {0, 1}


@pytest.mark.slow
def test_a_run_that_fails_is_named(monkeypatch):
    impossible = replace(trace(comes("a", 0, 900)), coming=("no job",))

    with pytest.raises(PlannerError, match="run one: "):
        run_all_cases(
            impossible, [RunCase("one", "x", "greedy", GREEDY)], EpochClock(600), seed=0, at_a_time=1
        )


def test_work_is_the_same_whatever_the_epochs():
    """Longer epochs make jobs wait, and change nothing about the work."""
    for every in (MINUTE, 7 * MINUTE, 31 * MINUTE):
        scores = run(trace(comes("a", 0, 900), comes("b", 0, 700)), every=every).scores
        assert scores.gpu_hours * 3600 == pytest.approx(8 * 1600, abs=4)
        assert MILLI * scores.lost_gpu_hours == 0


@pytest.mark.parametrize("baseline", [None, "fifo"])
def test_gpus_that_the_rules_of_health_exclude_at_the_start_take_no_job(baseline):
    ran = job("ran", gpus=2, at=[replica("n0", gpus=(0, 1))], expected_duration=10_000)
    hot = Measurement(node="n0", index=0, period=600, hot={90: 600})
    start = snapshot(nodes=[node("n0", gpus=4)], jobs=[ran, job("full", gpus=4, expected_duration=600)])
    start = start.model_copy(update={"measured": (hot,)})
    excluding = GREEDY.model_copy(update={"health": HealthPolicy(heat={"action": "exclude"})})

    found = run(Trace(start), excluding, seconds=3600, baseline=baseline)
    ignoring = run(Trace(start), GREEDY, seconds=3600, baseline=baseline)

    assert (found.scores.restarts, ignoring.scores.restarts) == (1, 0)
    assert found.scores.waiting == 1
    assert found.scores.gpu_utilization == pytest.approx(2 / 3, abs=0.01)
