"""Planned again and again: promises are kept while nothing unforeseen happens; else it is told why."""

from __future__ import annotations

import random
from collections import Counter
from datetime import timedelta

import pytest

from gpuplan.models.dependency import Dependency, DependencyKind
from gpuplan.models.plan.actions import Migrate, Preempt, Start
from gpuplan.models.policy.policy import Disruption, Policy
from gpuplan.models.policy.settings import Backfill, HorizonPolicy
from gpuplan.planner.apply.promises import promises_of
from tests.support.builders import build
from tests.support.builders.build import job, node, replica, snapshot
from tests.support.doubles.rolling_cluster import Rolling
from tests.support.seeds import EVERY_SEED, examples
from tests.support.strategies.rolling_worlds import HOUR, world

pytestmark = pytest.mark.slow

EPOCHS = 200 if EVERY_SEED else 45
SECONDS = 3600
CALM = Disruption(preempt=False, resize=False)
FAILING = 4 if EVERY_SEED else 1
"""Worlds of a chunk in which nodes fail."""


def policy(slots=6, *, disruption=CALM, **backfill):
    horizon = HorizonPolicy(slots=slots, length=SECONDS, backfill=Backfill(**backfill))
    return Policy(horizon=horizon, disruption=disruption, solvers=())


# --- while jobs take as long as they say -------------------------------------------------------------------


@pytest.mark.parametrize("seed", range(60) if EVERY_SEED else (0, 4))
def test_every_promise_is_met_exactly_or_earlier_while_nothing_unforeseen_happens(seed):
    """A job that starts in front of a promise is gone in time, and none that comes later takes its place."""
    rolled = world(seed, preempt=bool(seed % 2))
    rolling = rolled.rolling

    for _ in range(EPOCHS):
        rolled.hour(1200 if seed % 3 == 1 else SECONDS)
        assert rolling.late == [], seed

    assert rolling.met > (0 if EVERY_SEED else 20)


@pytest.mark.parametrize("seed", range(100, 160) if EVERY_SEED else (115, 428))
def test_every_promise_is_met_in_worlds_of_all_kinds(seed):
    rolled = world(seed)

    for _ in range(40):
        rolled.hour()
        assert rolled.rolling.late == [], seed


@pytest.mark.parametrize("seed", range(30) if EVERY_SEED else (1, 5))
def test_a_job_that_may_be_delayed_starts_no_later_than_first_promised_and_the_delay(seed):
    """However often it is planned again: delays do not add up."""
    rolled = world(seed, mode="aggressive", max_delay=SECONDS)
    rolling, first, seen = rolled.rolling, {}, Counter()
    for _ in range(40):
        now = rolling.now
        plan = rolled.hour()
        for action in plan.actions:
            if isinstance(action, Start) and action.job in first:
                promised = first.pop(action.job)
                assert now <= promised + HOUR, (seed, action.job)
                seen["late" if now > promised else "in time"] += 1
        waits = {each.name: each for each in rolling.waiting()}
        for name in [name for name in first if name not in waits]:
            del first[name]
        for name, each in waits.items():
            if each.promise:
                first.setdefault(name, each.promise.start)
        assert all(now < start + HOUR for start in first.values()), seed
    assert seen["in time"]


def starts_within(epochs, rules):
    """Epochs until a gang gets 64 GPUs while jobs of one GPU go on arriving; None if it never does."""
    draw = random.Random("stream")

    def small(name, at):
        made = job(name, gpus=1, priority=5, expected_duration=draw.choice((1, 2, 3)) * SECONDS)
        return made.model_copy(update={"submitted_at": at})

    gang = job("gang", gpus=8, replicas=8, expected_duration=2 * SECONDS)
    jobs = [gang, *(small(f"s{number}", build.NOW) for number in range(80))]
    nodes = [node(f"n{number}") for number in range(8)]
    rolling = Rolling(snapshot(nodes=nodes, jobs=jobs), rules)
    for epoch in range(epochs):
        waiting = sum(1 for _ in rolling.waiting())
        more = [small(f"s{epoch}-{number}", rolling.now + HOUR) for number in range(max(0, 80 - waiting))]
        rolling.step(SECONDS, tuple(more))
        if "gang" in rolling.started:
            return epoch
    return None


def test_a_gang_starts_among_endless_small_jobs_once_it_starves_and_never_by_looking_at_this_instant():
    assert starts_within(12, policy(6, starving=4 * SECONDS)) is not None
    assert starts_within(30, policy(1)) is None


# --- planned again with nothing new ------------------------------------------------------------------------


@pytest.mark.parametrize("chunk", range(10) if EVERY_SEED else range(1))
def test_planned_again_at_once_nothing_changes_and_all_is_promised_as_before(chunk):
    promised = 0
    for seed in range(300 + 6 * chunk, 300 + 6 * chunk + examples(6)):
        rolled = world(seed, preempt=False)
        for _ in range(8):
            rolling = rolled.rolling
            plan = rolling.plan()
            rolling.apply(plan)
            again = rolling.plan()
            rolling.advance(SECONDS, rolled.arrivals(SECONDS))
            if any(isinstance(action, Preempt | Migrate) for action in (*plan.actions, *again.actions)):
                continue  # a job that had to leave for a window is planned anew
            assert starts(promises_of(again)) == starts(promises_of(plan)), seed
            assert not again.has_changes, seed
            promised += len(promises_of(plan))
    assert promised > 10


@pytest.mark.parametrize("chunk", range(10) if EVERY_SEED else range(1))
def test_a_third_of_a_slot_later_the_same_starts_are_promised(chunk):
    compared = 0
    for seed in range(300 + 6 * chunk, 300 + 6 * chunk + examples(6)):
        rolled = world(seed, preempt=False)
        rolling = rolled.rolling
        for _ in range(8):
            rolling.apply(rolling.plan())
            before, later = rolling.snapshot, rolling.now + HOUR / 3
            told = {each.name: each.promise for each in rolling.waiting() if each.promise}
            if all(end > later for end in rolling.ends.values()):
                rolling.snapshot = before.model_copy(update={"taken_at": later})
                plan = rolling.plan()
                begun = {action.job for action in plan.actions if isinstance(action, Start)}
                kept = {name: each for name, each in told.items() if name not in begun}
                again = {name: each for name, each in promises_of(plan).items() if name in told}
                assert starts(again) == starts(kept), seed
                rolling.snapshot = before
                compared += len(kept)
            rolling.advance(SECONDS, rolled.arrivals(SECONDS))
    assert compared > 10


def starts(promises):
    return {name: promise.start for name, promise in promises.items()}


# --- when something unforeseen happens ---------------------------------------------------------------------


def surprised(seed):
    """Some jobs take up to three times as long as they say."""
    return lambda each: random.Random(f"{seed} {each.name}").choice((1, 1, 1.5, 2, 3))


def told_why(before, plan):
    """(job, whether it slips, why) of each that was promised a start; a slip is told, and nothing else is."""
    for each in plan.waiting:
        promise = before.job_by_name[each.job].promise
        if promise is None:
            continue
        kept = each.promised and each.projected_start <= promise.start
        assert each.earlier_promise == promise.start
        assert bool(each.promise_changed) == (not kept), each
        yield each.job, not kept, each.promise_changed
    for action in plan.actions:
        if isinstance(action, Start) and (promise := before.job_by_name[action.job].promise):
            assert "promised" in action.reason.text, action.reason


@pytest.mark.parametrize("chunk", range(10) if EVERY_SEED else range(1))
def test_promises_that_jobs_which_overrun_put_off_are_told_with_those_jobs(chunk):
    seen = Counter()
    for seed in range(500 + 5 * chunk, 505 + 5 * chunk):
        rolled = world(seed, factor=surprised(seed))
        for _ in range(30):
            before, plan = rolled.rolling.snapshot, rolled.hour()
            overran = [
                each.name
                for each in before.jobs
                if each.running
                and each.running.started_at + timedelta(seconds=each.expected_duration) <= before.taken_at
            ]
            for _, slips, why in told_why(before, plan):
                seen["slips" if slips else "kept"] += 1
                seen["named"] += slips and any(name in why for name in overran)
                seen["unclear"] += why == "other promises"
    assert min(seen["kept"], seen["slips"]) >= 10, seen
    assert seen["named"] >= seen["slips"] * 6 // 10, seen
    assert not seen["unclear"], seen


@pytest.mark.parametrize("chunk", range(10) if EVERY_SEED else range(1))
def test_plans_stay_legal_and_slips_are_told_when_nodes_fail_and_come_back(chunk):
    seen = Counter()
    for seed in range(600 + FAILING * chunk, 600 + FAILING * (chunk + 1)):
        rolled = world(seed, factor=surprised(seed), kill=bool(seed % 2))
        rolling, away = rolled.rolling, None
        rolling.change_cluster(reservations=())
        for hour in range(28):
            nodes = rolling.snapshot.cluster.nodes
            if hour % 7 == 5 and len(nodes) > 1:
                away = rolling.fail_node(rolled.draw.choice(nodes).name, gone=bool(seed % 2))
            elif hour % 7 == 1 and away:
                away = rolling.repair(away)
            before, plan = rolling.snapshot, rolled.hour()
            for _, slips, why in told_why(before, plan):
                seen["slips" if slips else "kept"] += 1
                seen["node"] += "is gone" in why or "is not ready" in why
    assert seen["kept"] > 10
    assert seen["node"], seen


def test_a_slip_names_the_job_that_overran_and_once_more_where_it_holds_power_or_quota_only():
    place = replica("n0", gpus=range(4), cpus=0)
    long = job("long", gpus=4, expected_duration="90m", at=[place])
    worlds = {
        "room": {"nodes": [node("n0", gpus=4)]},
        "power": {"nodes": [node("n0", gpus=8, watts=700, power_cap_watts=2800)]},
        "quota": {"nodes": [node("n0", gpus=8)], "queues": [build.queue(nominal=4)]},
        "cores": {"nodes": [node("n0", gpus=8, cpus=4)]},
    }
    for name, about in worlds.items():
        core = {"cpus": 4} if name == "cores" else {}
        here = replica("n0", gpus=range(4), **core)
        first = job("long", gpus=4, expected_duration="90m", at=[here], **core) if core else long
        second = job("a", gpus=4, expected_duration="1h", **core)
        rolling = Rolling(snapshot(jobs=[first, second], **about), policy(6), factor=lambda _: 3.0)

        plan = rolling.step(SECONDS)
        assert starts(promises_of(plan)) == {"a": build.NOW + HOUR}, name
        (found,) = [each for each in rolling.plan().waiting if each.job == "a"]

        assert found.promised, name
        assert found.projected_start > found.earlier_promise, name
        assert "long on n0" in found.promise_changed, (name, found)


def test_a_promise_delayed_by_another_promise_names_that_one():
    jobs = [
        job("long", gpus=4, expected_duration="90m", at=[replica("n0", gpus=range(4))]),
        job("a", gpus=4, expected_duration="1h", priority=1),
        job("b", gpus=4, expected_duration="1h"),
    ]
    rolling = Rolling(snapshot(nodes=[node("n0", gpus=4)], jobs=jobs), policy(8), factor=lambda _: 3.0)

    rolling.step(2 * SECONDS)
    told = {each.job: each.promise_changed for each in rolling.plan().waiting}

    assert "long on n0" in told["a"]
    assert "long on n0" in told["b"] or told["b"].startswith("a starts on n0")


# --- what once went wrong ----------------------------------------------------------------------------------


def test_a_promise_that_rests_on_a_job_promised_to_start_now_is_kept():
    """Though it is worth nothing, and a job that is worth much needs its place."""
    jobs = [
        job("a", gpus=2, expected_duration="90m"),
        job(
            "b",
            gpus=4,
            expected_duration="90m",
            weight=0,
            depends_on=[{"job": "a"}],
        ),
        job("blocks", gpus=4, expected_duration="2h", at=[replica("n0", gpus=range(4))]),
    ]
    rolling = Rolling(snapshot(nodes=[node("n0", gpus=4)], jobs=jobs), policy(8))
    rolling.step(SECONDS)
    assert {"a", "b"} <= {each.name for each in rolling.waiting() if each.promise}

    dear = job("dear", gpus=4, expected_duration="9h", priority=9, depends_on=[{"job": "a"}])
    rolling.advance(0, (dear,))
    for _ in range(6):
        rolling.step(SECONDS)

    assert rolling.late == []
    assert "b" in rolling.started


def test_a_running_job_is_not_stopped_while_a_promise_rests_on_that():
    jobs = [
        job("low", gpus=4, expected_duration="9h", at=[replica("n0", gpus=range(4))]),
        job("busy", gpus=4, expected_duration="2h", at=[replica("n1", gpus=range(4))], preemptible=False),
        job(
            "a",
            gpus=4,
            expected_duration="1h",
            node_selector={"x": "y"},
            depends_on=[Dependency(job="low", kind=DependencyKind.STARTED)],
        ),
        job("high", gpus=4, expected_duration="3h", priority=9, node_selector={"x": "z"}),
    ]
    nodes = [node("n0", gpus=4, labels={"x": "z"}), node("n1", gpus=4, labels={"x": "y"})]
    rolling = Rolling(snapshot(nodes=nodes, jobs=jobs), policy(6, disruption=Disruption(resize=False)))

    for _ in range(4):
        rolling.step(SECONDS)
        assert rolling.late == []

    assert rolling.started["a"] == build.NOW + HOUR
