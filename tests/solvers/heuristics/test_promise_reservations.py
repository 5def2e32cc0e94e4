"""Promises are held first: on their own places if these are there, then elsewhere, then later."""

from __future__ import annotations

import random
from collections import Counter
from dataclasses import replace
from datetime import timedelta

import pytest

from gpuplan.models.dependency import FinishedJob
from gpuplan.models.placement import Promise, Running
from gpuplan.models.policy.policy import Disruption
from gpuplan.models.policy.settings import Backfill, HorizonPolicy
from gpuplan.models.problem.jobs import HeldResources, Incumbent, Predecessor, Shape
from gpuplan.models.problem.problem import ReplicaRelease
from gpuplan.models.timing.durations import Durations
from gpuplan.models.verifier.verify import verify
from gpuplan.planner.problem_builder import build_problem
from gpuplan.solvers.heuristics import future_reservations, vacate
from gpuplan.solvers.heuristics.greedy import greedy
from gpuplan.solvers.heuristics.promise_reservations import reserve_promised_starts
from gpuplan.solvers.state.ledger import Ledger
from gpuplan.solvers.targets.to_target import target_of
from tests.support.builders import slot_problems
from tests.support.builders.slot_problems import promised, waiting
from tests.support.strategies import instances

SLOTS = 6


def held(question):
    """(slot, nodes) of each booking by job."""
    return {
        question.classes[each.job_class].jobs[0]: (each.slot, sorted(place.node for place in each.holds))
        for each in reserve_promised_starts(question).firm_reservations
    }


def ask(nodes, *classes, **more):
    return slot_problems.problem(nodes, classes, slots=SLOTS, **more)


def a(promise, **more):
    return waiting("a", slots=SLOTS, hours=2, gpus=more.pop("gpus", 2), promise=promise, **more)


def test_a_question_without_promises_stays_as_it_is():
    question = ask([slot_problems.node("n0", 4)], waiting("a", slots=SLOTS))

    assert reserve_promised_starts(question) is question


def test_a_promise_keeps_its_places_until_it_is_due():
    nodes = [slot_problems.node("n0", 4), slot_problems.node("n1", 2)]

    assert held(ask(nodes, a(promised(3, 0)))) == {"a": (3, [0])}
    assert held(ask(nodes, a(promised(3, 1)))) == {"a": (3, [1])}


def test_a_promise_that_is_due_starts_now():
    assert held(ask([slot_problems.node("n0", 4), slot_problems.node("n1", 2)], a(promised(0, 0)))) == {
        "a": (0, [0])
    }


def test_a_promise_that_may_be_delayed_is_held_for_its_last_slot():
    assert held(ask([slot_problems.node("n0", 4)], a(promised(1, 0, latest=3)))) == {"a": (3, [0])}


def test_a_job_that_lost_its_places_starts_elsewhere_as_early_as_it_can():
    nodes = [
        slot_problems.node("n0", 0, of=4),
        slot_problems.node("n1", 0, of=2, returns=[slot_problems.back(1, 0, 1)]),
    ]

    assert held(ask(nodes, a(promised(3, 0)))) == {"a": (1, [1])}


def test_a_promise_slips_no_further_than_it_must():
    nodes = [slot_problems.node("n0", 0, of=2, returns=[slot_problems.back(4, 0, 1)])]

    assert held(ask(nodes, a(promised(2, 0)))) == {"a": (4, [0])}


def test_a_job_that_lost_its_places_takes_none_from_others():
    nodes = [slot_problems.node("n0", 0, of=2), slot_problems.node("n1", 2)]
    jobs = a(promised(1, 0)), waiting("b", slots=SLOTS, hours=2, gpus=2, promise=promised(2, 1))

    found = held(ask(nodes, *jobs))

    assert found["b"] == (2, [1])
    assert found["a"] == (0, [1])


def test_a_promised_share_is_not_taken_by_whole_gpus_that_could_be_others():
    nodes = [slot_problems.node("n0", 3)]
    whole = waiting("a", slots=SLOTS, hours=6, gpus=2, promise=promised(0, 0, gpus=(1, 2)))
    share = waiting("b", slots=SLOTS, hours=6, gpus=0, milli=500, promise=promised(0, 0, gpus=(0,)))

    assert held(ask(nodes, whole, share)) == {"a": (0, [0]), "b": (0, [0])}


def test_the_starving_come_after_promises_and_by_how_long_they_wait():
    nodes = [slot_problems.node("n0", 0, of=1, returns=[slot_problems.back(1, 0)])]
    jobs = [
        waiting("young", slots=SLOTS, points=9000, starving=1),
        waiting("old", slots=SLOTS, points=1, starving=0),
        waiting("sure", slots=SLOTS, points=1, promise=promised(2, 0)),
    ]

    assert held(ask(nodes, *jobs)) == {"sure": (2, [0]), "old": (1, [0]), "young": (3, [0])}


def test_companions_keep_their_promises_together_or_move_together():
    pair = [waiting(name, slots=SLOTS, gpus=2, co_start=0, promise=promised(2, 0)) for name in "ab"]

    assert held(ask([slot_problems.node("n0", 4)], *pair)) == {"a": (2, [0]), "b": (2, [0])}
    slots = {
        slot
        for slot, _ in held(ask([slot_problems.node("n0", 2), slot_problems.node("n1", 2)], *pair)).values()
    }
    assert slots == {0}


def test_a_promise_holds_though_it_waits_for_another_one():
    jobs = [
        waiting("z", slots=SLOTS, promise=promised(3, 0), needed=1, predecessors=(Predecessor(job_class=1),)),
        waiting("y", slots=SLOTS, hours=2, promise=promised(1, 0)),
    ]

    assert held(ask([slot_problems.node("n0", 1)], *jobs)) == {"y": (1, [0]), "z": (3, [0])}


def test_a_promise_that_waits_for_a_job_without_one_is_planned_with_the_others():
    jobs = [
        waiting("z", slots=SLOTS, promise=promised(3, 0), needed=1, predecessors=(Predecessor(job_class=1),)),
        waiting("y", slots=SLOTS, hours=2),
    ]
    question = ask([slot_problems.node("n0", 1)], *jobs)

    assert held(question) == {}
    assert slot_problems.starts(greedy(reserve_promised_starts(question))) == {"y": 0, "z": 2}


def test_no_job_gets_in_the_way_of_a_booking():
    nodes = [slot_problems.node("n0", 1, of=2, returns=[slot_problems.back(2, 0)])]
    others = [waiting(f"b{hours}", slots=SLOTS, hours=hours, gpus=1, points=90_000) for hours in (2, 3)]
    question = reserve_promised_starts(ask(nodes, a(promised(2, 0)), *others))

    assert slot_problems.starts(greedy(question)) == {"a": 2, "b2": 0, "b3": 4}


def test_a_promise_starts_earlier_where_that_pays():
    question = reserve_promised_starts(ask([slot_problems.node("n0", 4)], a(promised(3, 0))))

    assert slot_problems.starts(Ledger(question)) == {"a": 3}
    assert slot_problems.starts(greedy(question)) == {"a": 0}


def test_a_later_start_does_not_count_on_the_places_of_a_preempted_job():
    shape = Shape(2, 0, (0, 0, 0))
    runs = Incumbent(
        "r", shape, (HeldResources(0, (0, 1)),), 0, slot_problems.MODEL, 1, -5, 0, 0, 0, 1, until=4
    )
    back = ReplicaRelease(4, ((0, 1000), (1, 1000)), (), (0, 0, 0), 0)
    nodes = [slot_problems.node("n0", 0, of=2, returns=[back])]
    ledger = Ledger(ask(nodes, a(None), incumbents=(runs,)))

    assert future_reservations.reserve_start(ledger, 0, 0, 2) is None
    assert vacate.stop_incumbent(ledger, 0)
    assert future_reservations.reserve_start(ledger, 0, 0, 2) is None
    assert future_reservations.reserve_start(ledger, 0, 0, 4) is not None
    assert vacate.restore_incumbent(ledger, 0)


def test_a_starving_job_is_not_started_at_a_loss():
    job = waiting("a", slots=SLOTS, starving=0)
    dear = replace(job.options[0], points=-5, later=(None, -5, -1, 0, 7, 7))

    assert held(ask([slot_problems.node("n0", 1)], replace(job, options=(dear,)))) == {"a": (3, [0])}


HOURS_LONG = (600, 3600, 5400, 7200, 3 * 3600, 9 * 3600)
CALM = Disruption(preempt=False, resize=False)
HOUR = timedelta(hours=1)


def lengthened(snapshot, draw):
    """The same jobs with lengths of their own; those that run go on for at least some minutes."""
    jobs = []
    for job in snapshot.jobs:
        ran = int((snapshot.taken_at - job.running.started_at).total_seconds()) if job.running else 0
        jobs.append(job.model_copy(update={"expected_duration": ran + draw.choice(HOURS_LONG)}))
    return snapshot.model_copy(update={"jobs": tuple(jobs)})


def an_hour_later(snapshot, policy, target, edges):
    """What a cluster looks like in which a plan was carried out and its promises are kept in mind."""
    durations, now = Durations(snapshot, policy), snapshot.taken_at + HOUR
    placements = {each.job: each for each in target.placements}
    promises = {
        each.job: Promise(
            start=snapshot.taken_at + timedelta(seconds=edges[each.slot]), replicas=each.replicas
        )
        for each in target.planned
        if each.promised
    }
    jobs, finished = [], list(snapshot.finished)
    for job in snapshot.jobs:
        placement = placements.get(job.name)
        if placement is None:
            jobs.append(job.model_copy(update={"promise": promises.get(job.name)}))
            continue
        begun = job.running.started_at if job.running else snapshot.taken_at
        running = Running(started_at=begun, replicas=placement.replicas)
        runs = job.model_copy(update={"running": running, "promise": None})
        end = begun + timedelta(seconds=durations.seconds(job, durations.gpu_model(runs)))
        if end > now:
            jobs.append(runs)
        else:
            times = {"started_at": begun, "ended_at": end}
            finished.append(FinishedJob(name=job.name, queue=job.queue, user=job.user, **times))
    nodes = [node for node in (*snapshot.cluster.nodes, *target.added) if node.name not in target.removed]
    cluster = snapshot.cluster.model_copy(update={"nodes": tuple(nodes)})
    changes = {"jobs": tuple(jobs), "finished": tuple(finished), "taken_at": now, "cluster": cluster}
    return snapshot.model_copy(update=changes).canonical()


@pytest.mark.slow
def test_every_promise_is_kept_while_nothing_unforeseen_happens():
    """Hour after hour the plan is carried out; no job starts later than promised, and no rule is broken."""
    done = Counter()
    kinds = sorted(set(instances.FEATURES) - {"drain", "mig", "pools"})
    for seed in range(60):
        draw, instance = random.Random(seed), instances.everything_mixed(seed, features=kinds)
        snapshot = lengthened(instance.snapshot, draw)
        backfill = Backfill(depth=draw.choice((None, 2)), starving=draw.choice((None, 1800)))
        horizon = HorizonPolicy(slots=draw.choice((3, 6)), backfill=backfill)
        policy = instance.policy.model_copy(update={"horizon": horizon, "disruption": CALM})
        for _ in range(4):
            question = reserve_promised_starts(build_problem(snapshot, policy))
            ledger = greedy(question)
            target = target_of(ledger, snapshot.running_placements)
            about = {"added": target.added, "removed": target.removed, "planned": target.planned}
            verification = verify(snapshot, policy, target.placements, **about)
            before = verify(snapshot, policy, snapshot.running_placements)
            assert verification.violations == (), seed
            assert verification.objective - before.objective == ledger.objective, seed
            starts = {each.job: question.edges[each.slot] for each in target.planned}
            starts |= dict.fromkeys((each.job for each in target.placements), 0)
            for job in snapshot.jobs:
                if job.promise is not None:
                    assert starts[job.name] <= (job.promise.start - snapshot.taken_at).total_seconds(), seed
                    done["promised"] += 1
                    done["now"] += starts[job.name] == 0
            snapshot = an_hour_later(snapshot, policy, target, question.edges)
    assert min(done["promised"], done["now"]) > 20
