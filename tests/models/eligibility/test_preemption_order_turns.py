"""Which running jobs are stopped for equals: rows, verifier and plans agree."""

from __future__ import annotations

from collections import Counter
from datetime import timedelta

import pytest

from gpuplan.models.job import Progress
from gpuplan.models.placement import Running
from gpuplan.models.policy.policy import Policy
from gpuplan.models.timing.progress import unserved_seconds
from gpuplan.models.verifier.verify import verify
from gpuplan.planner.epoch import plan_epoch
from gpuplan.planner.simulate.decide import PlannerDecider
from gpuplan.planner.simulate.simulated_job import JobEventKind
from gpuplan.planner.simulate.trace import make_trace
from gpuplan.planner.simulate.world import advance_world, initial_world
from tests.support.builders import build
from tests.support.builders.build import NOW

HOUR = timedelta(hours=1)
DAY = 24 * HOUR
TURNS = {"priority_gap": 0}
PLACE = (build.replica("n0", gpus=range(8)),)


def policy(*solvers, **more):
    return Policy.model_validate({"solvers": list(solvers), "disruption": TURNS} | more)


def runs(ran, *, waited=timedelta(0), **more):
    """A job of a week that has run for some time, after it waited."""
    running = Running(started_at=NOW - ran, last_checkpoint_at=NOW, replicas=PLACE)
    return build.job(
        "long", gpus=8, waited=ran + waited, expected_duration=7 * 24 * 3600, running=running, **more
    )


def snapshot_of(job, queues=None, **rival):
    """A job beside a job of five minutes that waits."""
    short = build.job("short", gpus=8, expected_duration=300, **rival)
    more = {} if queues is None else {"queues": queues}
    return build.snapshot(nodes=build.cluster(1), jobs=[job, short], **more)


def outcome(job, rules, queues=None, **rival):
    """(the plan stops the job, the verifier allows it) for a job of five minutes."""
    snapshot = snapshot_of(job, queues, **rival)
    plan = plan_epoch(snapshot, rules, seed=0, created_at=NOW)
    swapped = verify(snapshot, rules, (build.placement("short", *PLACE),))
    assert {each.rule for each in swapped.violations} <= {"preemption"}
    return {each.job for each in plan.placements} == {"short"}, not swapped.violations


@pytest.mark.slow
@pytest.mark.parametrize("solvers", [(), ("milp",)], ids=["greedy", "exact"])
@pytest.mark.parametrize(("preemptions", "minutes"), [(0, 0), (1, 6), (2, 18), (5, 186)])
def test_a_job_that_was_stopped_runs_twice_as_long_before_it_is_stopped_for_an_equal_again(
    preemptions, minutes, solvers
):
    """Its recovery takes six minutes."""
    ran = timedelta(minutes=minutes)
    rules = policy(*solvers)

    assert outcome(runs(ran, preemptions=preemptions), rules) == (True, True)
    if preemptions:
        early = runs(ran - timedelta(seconds=1), preemptions=preemptions)
        assert outcome(early, rules) == (False, False)
        assert outcome(early, rules, priority=1) == (True, True)


def test_a_recovery_of_its_own_makes_the_turn_of_a_job_longer_or_shorter():
    own = {"checkpoint_duration": 0, "restart_duration": 1800}
    none = {"checkpoint_duration": 0, "restart_duration": 0}

    assert outcome(runs(HOUR / 2, preemptions=1, **own), policy()) == (True, True)
    assert outcome(runs(HOUR / 2 - timedelta(seconds=1), preemptions=1, **own), policy())[1] is False
    assert outcome(runs(timedelta(minutes=1), preemptions=1, **none), policy())[1] is True
    assert outcome(runs(timedelta(seconds=59), preemptions=1, **none), policy())[1] is False


def test_a_job_that_has_starved_is_not_stopped_for_an_equal():
    never = policy(horizon={"backfill": {"starving": None}})

    assert outcome(runs(HOUR, waited=7 * DAY), policy()) == (False, False)
    assert outcome(runs(HOUR, waited=7 * DAY), policy(), priority=1) == (True, True)
    assert outcome(runs(30 * DAY, waited=6 * DAY), policy())[1] is True
    assert outcome(runs(HOUR, waited=7 * DAY), never)[1] is True


@pytest.mark.slow
@pytest.mark.parametrize("solvers", [(), ("milp",)], ids=["greedy", "exact"])
@pytest.mark.parametrize(
    ("queue", "nominal", "stopped"), [("b", 8, False), ("a", 8, True), ("b", None, True)]
)
def test_a_job_of_a_queue_that_may_reclaim_is_not_stopped_in_its_turn_for_a_priority_outside(
    queue, nominal, stopped, solvers
):
    """With any gap; jobs of its own queue do not wait, nor does any where nothing can be reclaimed."""
    queues = [build.queue("a", nominal=nominal), build.queue("b")]
    for gap, priority in ((0, 1), (1, 5)):
        rules = policy(*solvers, disruption={"priority_gap": gap})
        for ran, expected in ((HOUR / 10 * 7 - timedelta(seconds=1), stopped), (HOUR / 10 * 7, True)):
            job = runs(ran, preemptions=3, queue="a")
            assert outcome(job, rules, queues=queues, priority=priority, queue=queue) == (expected, expected)


def test_the_reason_of_a_job_that_waits_for_a_turn_says_whose_and_until_when():
    queues = [build.queue("a", nominal=8), build.queue("b")]
    world = snapshot_of(runs(HOUR / 10, preemptions=2, queue="a"), queues, priority=5, queue="b")
    (waiting,) = plan_epoch(world, policy(), seed=0, created_at=NOW).waiting

    assert " long " in waiting.reason.text
    assert "12:12" in waiting.reason.text


def test_with_a_gap_the_rule_is_about_priority_alone():
    job = runs(HOUR, waited=7 * DAY, preemptions=9)

    assert outcome(job, Policy(solvers=()), priority=1) == (True, True)
    assert outcome(job, Policy(solvers=())) == (False, False)


def test_a_job_has_waited_while_it_had_no_places():
    """It had eight GPUs for a day; at full size a gang has sixteen, and is taken to have had all of them."""
    had = Progress(completed="0s", served="192h")
    gang = {"gpus": 8, "replicas": (1, 2)}

    assert unserved_seconds(build.job(waited=DAY, gpus=8), NOW) == 86_400
    assert unserved_seconds(build.job(waited=3 * DAY, gpus=8, progress=had), NOW) == 2 * 86_400
    assert unserved_seconds(build.job(waited=3 * DAY, **gang, progress=had), NOW) == 2.5 * 86_400
    assert unserved_seconds(runs(HOUR, waited=3 * DAY, progress=had), NOW) == 2 * 86_400
    assert (
        unserved_seconds(build.job(waited=DAY, cpus=4, progress=Progress(completed="1h")), NOW) == 23 * 3600
    )


def test_a_resize_does_not_change_how_long_a_running_job_has_waited():
    running = Running(started_at=NOW - 3 * HOUR, resized_at=NOW - HOUR, replicas=PLACE)
    resized = build.job(
        gpus=8,
        replicas=(1, 2),
        waited=10 * HOUR,
        running=running,
        progress=Progress(completed="0s", served="32h"),
    )

    assert unserved_seconds(resized, NOW) == 7 * 3600


@pytest.mark.slow
def test_jobs_of_which_each_becomes_worth_more_while_it_waits_stop_each_other_a_few_times_only():
    """Whichever waits is on the critical path, and a stop costs nothing: each epoch could have one."""
    rules = Policy.model_validate(
        {
            "solvers": [],
            "objective": {"goal": "critical-path"},
            "disruption": {**TURNS, "checkpoint": 0, "restart": 0},
        }
    )
    wide = build.job("wide", gpus=4, expected_duration=108_000, at=[build.replica("n0", gpus=range(4))])
    narrow = build.job("narrow", gpus=1, expected_duration=108_000)
    world = initial_world(make_trace(build.snapshot(nodes=[build.node("n0", gpus=4)], jobs=[wide, narrow])))
    decider, stops = PlannerDecider(rules, 0), Counter()
    for epoch in range(80):
        decided = decider.decide(world, epoch)
        stops.update(each.job for each in decided.happened if each.kind is JobEventKind.PREEMPTED)
        world = advance_world(decided.world, decided.world.now + timedelta(minutes=15)).world

    # Each stop comes after a run of (2^k − 1) minutes or more, and 80 epochs are 1,200 minutes.
    assert stops.keys() == {"wide", "narrow"}
    assert max(stops.values()) <= 10
