"""Without arrivals and ends, stops end: no two jobs take the same places from each other again and again."""

from __future__ import annotations

from datetime import timedelta
from math import log2

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gpuplan.models.placement import Running
from gpuplan.models.policy.policy import Policy
from gpuplan.models.policy.settings import Goal
from gpuplan.planner.simulate.decide import PlannerDecider
from gpuplan.planner.simulate.simulated_job import JobEventKind
from gpuplan.planner.simulate.trace import Physics, make_trace
from gpuplan.planner.simulate.world import advance_world, initial_world
from tests.support.builders import build
from tests.support.builders.build import NOW
from tests.support.seeds import examples

HOUR = 3600

RECOVERY = 6
"""Minutes of a checkpoint and a restart by default."""


def stops(snapshot, policy, *, minutes, epochs, checkpoint_every=0):
    """Names of the jobs that each plan preempts, the clock standing still or running."""
    trace = make_trace(snapshot, [], physics=Physics(checkpoint_every=checkpoint_every))
    world, decider, found = initial_world(trace), PlannerDecider(policy, 0), []
    for epoch in range(epochs):
        decided = decider.decide(world, epoch)
        found.append([each.job for each in decided.happened if each.kind is JobEventKind.PREEMPTED])
        world = advance_world(decided.world, decided.world.now + timedelta(minutes=minutes)).world
    return found


def policy(gap, goal=Goal.COMPLETION, **disruption):
    return Policy.model_validate(
        {"solvers": [], "objective": {"goal": goal}, "disruption": {"priority_gap": gap, **disruption}}
    )


# An owner within its queue's nominal quota, and a job of a queue without quota that is worth more.

COHORT = (build.queue("all"), build.queue("own", nominal=8, parent="all"), build.queue("none", parent="all"))


def pair(running, priority):
    at = [build.replica("n0", gpus=range(8))]
    owner = {"queue": "own", "expected_duration": 20 * HOUR}
    rival = {"queue": "none", "expected_duration": 5 * HOUR, "priority": priority}
    jobs = [
        build.job(name, gpus=8, at=at if name == running else None, **about)
        for name, about in (("owner", owner), ("rival", rival))
    ]
    return build.snapshot(nodes=build.cluster(1), jobs=jobs, queues=COHORT)


@pytest.mark.slow
@pytest.mark.parametrize("minutes", [0, 5])
def test_equals_stop_an_owner_within_its_quota_no_more_often_than_the_bound_says(minutes):
    """The owner reclaims its places each time, and keeps them twice as long before the next stop."""
    back = stops(pair("rival", 0), policy(0), minutes=minutes, epochs=60)

    assert stops(pair("owner", 0), policy(0), minutes=minutes, epochs=6) == [[]] * 6
    bound = 1 + log2(60 * minutes / RECOVERY + 1)
    assert 1 <= back.count(["owner"]) <= bound
    assert back.count(["rival"]) <= back.count(["owner"]) + 1


@pytest.mark.slow
@pytest.mark.parametrize("minutes", [0, 5])
def test_a_higher_priority_stops_an_owner_within_its_quota_no_more_often_than_the_bound_says(minutes):
    """It may once, as before; the owner reclaims its places each time, and keeps them for longer."""
    found = stops(pair("owner", 5), policy(1), minutes=minutes, epochs=60)

    bound = 1 + log2(60 * minutes / RECOVERY + 1)
    assert 1 <= found.count(["owner"]) <= bound
    assert found.count(["rival"]) == found.count(["owner"])
    assert sum(map(len, found)) == 2 * found.count(["owner"])


def test_an_owner_beyond_its_quota_is_stopped_no_more_often_than_that():
    """Its queue has a smaller job, which reclaims from the borrower and is outranked in its own queue."""
    own, place = {"queue": "own"}, [build.replica("n0", gpus=range(8))]
    jobs = [
        build.job("rival", gpus=8, queue="none", priority=7),
        build.job("large", gpus=8, priority=5, at=place, **own),
        build.job("small", gpus=4, **own),
    ]
    queues = (build.queue("own", nominal=4), build.queue("none"))
    found = stops(
        build.snapshot(nodes=build.cluster(1), jobs=jobs, queues=queues), policy(1), minutes=0, epochs=20
    )

    assert sum(map(len, found)) <= 5
    assert found[5:] == [[]] * 15


@pytest.mark.parametrize(("ran", "takes", "short"), [(48, 100, 24), (48, 100, 10), (100, 300, 20)])
def test_a_stopped_job_is_not_worth_more_by_the_time_that_it_ran(ran, takes, short):
    """Where it aged while it ran, the next plan stopped the shorter job again."""
    running = Running(
        started_at=NOW - timedelta(hours=ran),
        last_checkpoint_at=NOW,
        replicas=(build.replica("n0", gpus=range(8)),),
    )
    waited = timedelta(hours=ran)
    jobs = [
        build.job("long", gpus=8, expected_duration=takes * HOUR, waited=waited, running=running),
        build.job("short", gpus=8, expected_duration=short * HOUR),
    ]
    snapshot = build.snapshot(nodes=build.cluster(1), jobs=jobs)

    assert stops(snapshot, policy(0), minutes=15, epochs=6, checkpoint_every=HOUR) == [["long"], *[[]] * 5]


@st.composite
def worlds(draw):
    """A few jobs of several priorities on a node of four GPUs, in queues with and without quotas."""
    parent = draw(st.sampled_from(["root", "root", None]))
    names = ["q0", "q1", *(["q00"] if draw(st.booleans()) else [])]
    queues = [build.queue("root")] if parent else []
    for name in names:
        nominal = draw(st.sampled_from([None, 2, 4] if name == "q0" else [None, None, 2]))
        guarantee = draw(st.sampled_from([None, None, None, 1]))
        above = "q0" if name == "q00" else parent
        queues.append(build.queue(name, parent=above, nominal=nominal, guarantee=guarantee))
    jobs, used = [], 0
    for number in range(draw(st.integers(2, 5))):
        gpus = draw(st.sampled_from([1, 2, 4]))
        runs = used + gpus <= 4 and draw(st.booleans())
        jobs.append(
            build.job(
                f"j{number}",
                gpus=gpus,
                queue=draw(st.sampled_from(names)),
                priority=draw(st.sampled_from([0, 0, 1, 5])),
                waited=timedelta(hours=1 + draw(st.sampled_from([0, 5, 60]))),
                expected_duration=draw(st.sampled_from([None, HOUR, 10 * HOUR, 100 * HOUR])),
                at=[build.replica("n0", gpus=range(used, used + gpus))] if runs else None,
            )
        )
        used += gpus * runs
    return build.snapshot(nodes=[build.node("n0", gpus=4)], jobs=jobs, queues=queues)


@pytest.mark.slow
@given(worlds(), st.sampled_from([0, 1]), st.sampled_from(sorted(Goal)))
@settings(max_examples=examples(40), deadline=None)
def test_plans_of_one_instant_come_to_rest(snapshot, gap, goal):
    found = stops(snapshot, policy(gap, goal), minutes=0, epochs=16)

    assert found[8:] == [[]] * 8
