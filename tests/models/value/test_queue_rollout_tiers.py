"""Later starts by rollout with several priorities and with quotas: in small worlds and in random ones."""

from __future__ import annotations

import random
from collections import Counter
from datetime import timedelta

import pytest

from gpuplan.models.policy.policy import Disruption, Policy, PriorityOrder, PriorityPolicy
from gpuplan.models.queue import queue_and_above, queue_limits
from gpuplan.models.timing.durations import Durations
from gpuplan.models.value import rollout_scope
from gpuplan.models.value.queue_rollout import RolloutStart
from gpuplan.planner.problem_builder.quotas import Reclaiming, reclaim_pairs
from tests.support.builders import build
from tests.support.builders.rollout_worlds import (
    FAST,
    GANG,
    HOUR,
    POLICY,
    SLOW,
    SMALL,
    SPEEDS,
    found,
    holds,
    planned,
    started,
    waits,
    world,
)
from tests.support.strategies import reclaim_worlds


def ranked(*jobs):
    """The same jobs, which nothing may stop, with the priorities of their positions from the end."""
    return [
        job.model_copy(update={"priority": len(jobs) - position - 1, "preemptible": False})
        for position, job in enumerate(jobs)
    ]


def test_a_gang_of_higher_priority_is_worth_the_wait_of_lower_jobs():
    running, gang, *small = GANG
    starts = found(world(running, *ranked(gang, *small)))
    assert starts["gang"].begins == HOUR // 2
    assert {starts[name].begins for name in SMALL} == {HOUR // 2 + HOUR}
    assert started(world(running, *ranked(gang, *small))) == set()


def test_no_gang_of_lower_priority_holds_higher_jobs():
    running, gang, *small = GANG
    snapshot = world(running, *ranked(*small, gang))
    assert found(snapshot) == {}
    assert started(snapshot) == set(SMALL)


def test_what_starts_of_a_higher_priority_counts_once():
    """The lower job has no room whatever the order, so nothing is saved by its wait."""
    running, gang, *_ = GANG
    high = waits("high", 4, hours=2, priority=1, preemptible=False)
    snapshot = world(running, high, gang.model_copy(update={"preemptible": False}))
    assert found(snapshot) == {}
    assert started(snapshot) == {"high"}


def test_priorities_that_are_weights_are_one_queue():
    """A gang of lower priority and much weight outweighs jobs of a little more priority."""
    running, gang, *small = GANG
    gang = gang.model_copy(update={"weight_milli": 10_000})
    weights = Policy(solvers=(), priority=PriorityPolicy(order=PriorityOrder.WEIGHTS))
    snapshot = world(running, *ranked(*small, gang))
    assert found(snapshot) == {}
    assert found(snapshot, weights)["gang"].begins == HOUR // 2
    heavy = [job.model_copy(update={"priority": 50, "preemptible": False}) for job in small]
    assert found(world(running, *heavy, gang), weights) == {}


def test_no_job_that_has_waited_a_day_waits_for_others():
    """Whether it is of their priority or of a lower one."""
    running, gang, *small = GANG
    jobs = ranked(gang, *small)
    old = jobs[-1].model_copy(update={"submitted_at": build.NOW - timedelta(hours=25)})
    assert found(world(running, *jobs))
    assert found(world(running, *jobs[:-1], old)) == {}
    assert started(world(running, *jobs[:-1], old)) == set(SMALL)


def test_lower_jobs_wait_for_each_other_while_a_higher_one_stops_others():
    """Of a tier that may stop jobs none waits for another."""
    running, *jobs = (job.model_copy(update={"gpu_models": {FAST: 1000}}) for job in GANG)
    low = holds("low", "n1", range(8), hours=5, preemptible=True, gpu_models={SLOW: 1000})
    high = waits("high", 8, hours=1, priority=1, gpu_models={SLOW: 1000})
    nodes = [build.node("n0", model=FAST), build.node("n1", model=SLOW)]
    snapshot = build.snapshot(nodes=nodes, jobs=[running, low, high, *jobs])
    assert set(found(snapshot)) == {"gang", *SMALL}
    assert started(snapshot) == {"high"}
    upper = [job.model_copy(update={"priority": 1}) for job in jobs]
    assert found(build.snapshot(nodes=nodes, jobs=[running, low, high, *upper])) == {}


def test_models_are_not_waited_for_where_jobs_of_higher_priority_stop_others():
    """Slow GPUs that are left free would be taken instead of fast ones that can be had by a stop."""
    running, job = holds("r", "fast", [0], hours=0.25, gpu_models=SPEEDS), waits("a", gpu_models=SPEEDS)
    higher = holds("h", "slow", [1], hours=9, priority=1, gpu_models=SPEEDS)
    nodes = [build.node("fast", gpus=1, model=FAST), build.node("slow", gpus=2, model=SLOW)]
    assert found(build.snapshot(nodes=nodes, jobs=[running, job])).keys() == {"a"}
    assert found(build.snapshot(nodes=nodes, jobs=[running, job, higher])) == {}
    stays = job.model_copy(update={"preemptible": False})
    assert found(build.snapshot(nodes=nodes, jobs=[running, stays, higher])).keys() == {"a"}


# --- quotas ----------------------------------------------------------------------------------------------


def test_a_gang_waits_for_the_quota_of_a_running_job():
    """Two nodes, of which the queue may use eight GPUs; four of these are in use for half an hour."""
    running, gang, *small = GANG
    given = {"nodes": 2, "queues": [build.queue(nominal=8)]}
    starts = found(world(running, gang, *small, **given))
    assert starts["gang"].begins == HOUR // 2
    assert {starts[name].begins for name in SMALL} == {HOUR // 2 + HOUR}
    assert started(world(running, gang, *small, **given)) == set()
    # With four more GPUs of quota the gang has a node to itself now.
    more = {"nodes": 2, "queues": [build.queue(nominal=14)]}
    assert found(world(running, gang, *small, **more)) == {}
    assert started(world(running, gang, *small, **more)) == {"gang", *SMALL}


def test_queues_whose_jobs_may_be_reclaimed_have_no_later_starts():
    """What a queue borrows may be taken from it at any time, and takes the places of what waited."""
    running, *jobs = GANG
    others = [build.queue("root"), build.queue("other", nominal=8, parent="root")]

    def starts(borrowing, policy=POLICY, **more):
        queues = [build.queue(nominal=8, parent="root", borrowing=borrowing), *others]
        given = [job.model_copy(update=more) for job in jobs]
        return found(world(running, *given, queues=queues), policy)

    assert starts(0)
    assert starts(4) == {} == starts(None)
    assert starts(4, preemptible=False)
    assert starts(4, POLICY.model_copy(update={"disruption": Disruption(reclaim=False)}))


def test_nothing_waits_for_a_gang_that_exceeds_its_quota():
    running, gang, *small = GANG
    for quota in (build.queue("tight", nominal=7), build.queue("tight", nominal=20, **{FAST: 7})):
        tight = gang.model_copy(update={"queue": "tight"})
        snapshot = world(running, tight, *small, queues=[build.queue(), quota])
        assert found(world(running, gang, *small))
        assert found(snapshot) == {}
        assert started(snapshot) == set(SMALL)


# --- priorities and quotas in random worlds --------------------------------------------------------------


def crowded(seed, *, models=1, priorities=1):
    """Jobs of several priorities in a queue tree with quotas, on nodes of which half the GPUs are in use."""
    dice = random.Random(f"crowded {seed}")
    nodes = [build.node(f"n{k}", gpus=4, model=(FAST, SLOW)[k % models]) for k in range(4)]
    speeds = {FAST: 4000, SLOW: 1000} if models > 1 else {}
    queues = [
        build.queue("root", nominal=0),
        build.queue("a", nominal=dice.choice((4, 6, 8)), borrowing=dice.choice((0, 2, None)), parent="root"),
        build.queue("b", nominal=dice.choice((2, 4)), parent="root", **dice.choice(({}, {FAST: 2}))),
        build.queue(),
    ]

    def made(make, name, *given, **more):
        rank = dice.randrange(priorities)
        queue = dice.choice(("a", "a", "b", "q"))
        return make(name, *given, queue=queue, priority=rank, preemptible=False, gpu_models=speeds, **more)

    running = [
        made(holds, f"r{k}", f"n{k}", range(dice.randint(1, 3)), hours=dice.choice((0.2, 1, 3)))
        for k in range(4)
        if dice.random() < 0.8
    ]
    waiting = [
        made(
            waits,
            f"w{k}",
            dice.choice((1, 1, 2, 4)),
            hours=dice.choice((0.2, 1, 2, 5)),
            replicas=dice.choice((1, 1, 2)),
            waited=timedelta(hours=dice.choice((0, 3, 20))),
        )
        for k in range(8)
    ]
    return build.snapshot(nodes=nodes, jobs=[*running, *waiting], queues=queues)


def spans(snapshot, starts):
    """(begin, end, GPUs, model, queue) of running jobs and of the starts."""
    models = snapshot.cluster.gpu_model_by_node
    durations = Durations(snapshot, POLICY)
    for job in snapshot.jobs:
        if job.running:
            for replica in job.running.replicas:
                left = durations.remaining(job)
                yield 0, left, len(replica.gpus), models[replica.node], job.queue
        elif start := starts.get(job.name):
            seconds = job.expected_duration * 1000 // job.speed_milli(start.gpu_model)
            gpus = job.request.gpus * job.gang.minimum
            yield start.begins, start.begins + seconds, gpus, start.gpu_model, job.queue


def within_quotas(snapshot, held):
    """Of GPUs by (queue, model), by sums over the tree; a set of the exceeded limits."""
    parents = {queue.name: queue.parent for queue in snapshot.queues}
    exceeded = set()
    for resource in ("", FAST, SLOW):
        limits = queue_limits(snapshot.queues, resource).limit
        used = Counter()
        for (queue, model), gpus in held.items():
            for name in queue_and_above(queue, parents) if resource in ("", model) else ():
                used[name] += 1000 * gpus
        exceeded |= {
            (name, resource) for name in used if limits[name] is not None and used[name] > limits[name]
        }
    return exceeded


@pytest.mark.slow
@pytest.mark.parametrize("models", [1, 2])
@pytest.mark.parametrize("seed", range(30))
def test_schedules_keep_quotas_and_what_starts_in_them_does_start(seed, models):
    """So nothing is held for a start that a quota, a higher job or the GPUs forbid."""
    snapshot = crowded(seed, models=models, priorities=3)
    if not (starts := found(snapshot)):
        return
    plan = planned(snapshot)
    assert {name for name, start in starts.items() if not start.begins} == {
        each.job for each in plan.placements if each.job in starts
    }
    model_of = snapshot.cluster.gpu_model_by_node
    others = {
        each.job: RolloutStart(0, model_of[each.replicas[0].node], 0)
        for each in plan.placements
        if each.job not in starts
    }
    every, running = list(spans(snapshot, {**starts, **others})), list(spans(snapshot, {}))
    for at in {begin for begin, *_ in every}:
        held, used, still = Counter(), Counter(), Counter()
        for begin, end, gpus, model, queue in every:
            if begin <= at < end:
                held[queue, model] += gpus
                used[model] += gpus
        for _, end, gpus, model, queue in running:
            still[queue, model] += gpus if at < end else 0
        assert max(used.values()) <= 16 // models
        assert within_quotas(snapshot, held) <= within_quotas(snapshot, still)
    # What waits, waits for something that runs.
    assert plan.placements


@pytest.mark.parametrize("seed", range(30))
def test_lower_jobs_change_nothing_for_those_of_the_highest_priority(seed):
    snapshot = crowded(seed, models=2, priorities=3)
    alone = snapshot.model_copy(
        update={"jobs": tuple(job for job in snapshot.jobs if job.running or job.priority == 2)}
    )
    if starts := found(alone):
        every = found(snapshot)
        assert {(name, every[name].begins, every[name].gpu_model) for name in starts} == {
            (name, start.begins, start.gpu_model) for name, start in starts.items()
        }


@pytest.mark.slow
def test_the_random_worlds_have_later_starts():
    """Otherwise the two tests above would test nothing."""
    worlds = [crowded(seed, models=models, priorities=3) for seed in range(30) for models in (1, 2)]
    assert sum(bool(found(each)) for each in worlds) >= 15


@pytest.mark.parametrize("seed", range(60))
def test_no_quotas_are_simple_where_a_job_may_reclaim(seed):
    snapshot, policy = reclaim_worlds.world(seed)
    waiting = [job for job in snapshot.waiting if not job.withheld]
    if any(reclaim_pairs(Reclaiming(snapshot, policy))):
        assert not rollout_scope._are_simple_quotas(snapshot, policy, waiting)
