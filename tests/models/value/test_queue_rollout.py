"""Later starts by rollout: in two worlds, where none apply, and against all schedules of tiny queues."""

from __future__ import annotations

import random
from collections import Counter
from datetime import timedelta
from itertools import permutations, product

import pytest

from gpuplan.models.affinity import AntiAffinity, NodeMatch, PreferredNodes
from gpuplan.models.cluster import Level
from gpuplan.models.policy.policy import Disruption, Policy, PriorityOrder, PriorityPolicy
from gpuplan.models.policy.settings import Goal, HorizonPolicy, Objective
from gpuplan.models.queue import queue_and_above, queue_limits
from gpuplan.models.timing.durations import Durations
from gpuplan.models.value import queue_rollout, rollout_scope
from gpuplan.models.value.queue_rollout import RolloutStart, later_starts
from gpuplan.models.value.start_value import StartValue
from gpuplan.planner.epoch import plan_epoch
from gpuplan.planner.problem_builder.quotas import reclaim_pairs
from tests.support.builders import build
from tests.support.builders.time_builders import runs
from tests.support.strategies import reclaim_worlds

QUEUES = [
    build.queue(),
    build.queue("guaranteed", nominal=2, guarantee=2),
    build.queue("lends", nominal=2, lending=1),
    build.queue("few-cores", cpus=10),
]

FAST, SLOW = "H100-80GB", "T4"
SPEEDS = {FAST: 4000, SLOW: 1000}
HOUR = 3600
POLICY = Policy(solvers=())
AT_ONCE = Policy(solvers=(), objective=Objective(rollouts=0))


def waits(name, gpus=1, *, hours=1.0, **more):
    return build.job(name, gpus=gpus, expected_duration=round(hours * HOUR), **more)


def holds(name, node, gpus, *, hours, **more):
    """A job that runs for so long from now on."""
    return runs(name, build.replica(node, gpus=gpus), hours=hours, **{"preemptible": False, **more})


def world(*jobs, nodes=1, gpus=8, **about):
    cluster = [build.node(f"n{k}", gpus=gpus, model=FAST) for k in range(nodes)]
    return build.snapshot(nodes=cluster, jobs=jobs, **about)


def mixed(*jobs, gpus=1):
    nodes = [build.node("fast", gpus=gpus, model=FAST), build.node("slow", gpus=gpus, model=SLOW)]
    return build.snapshot(
        nodes=nodes, jobs=[job.model_copy(update={"gpu_models": job.gpu_models or SPEEDS}) for job in jobs]
    )


def found(snapshot, policy=POLICY):
    return later_starts(snapshot, policy, Durations(snapshot, policy))


def planned(snapshot, policy=POLICY):
    return plan_epoch(snapshot, policy, seed=0, created_at=build.NOW)


def started(snapshot, policy=POLICY):
    running = {job.name for job in snapshot.jobs if job.running}
    return {each.job for each in planned(snapshot, policy).placements} - running


SMALL = tuple(f"small-{k}" for k in range(2))
GANG = (
    holds("r", "n0", range(4), hours=0.5),
    waits("gang", 8, hours=1, waited=timedelta(hours=12)),
    *(waits(name, hours=3) for name in SMALL),
)
"""Four GPUs are free, and four more are soon: for a gang that two small jobs would delay by hours."""


def test_small_jobs_leave_room_for_a_gang():
    starts = found(world(*GANG))
    assert starts["gang"].begins == HOUR // 2
    assert {starts[name].begins for name in SMALL} == {HOUR // 2 + HOUR}
    assert started(world(*GANG)) == set()
    assert started(world(*GANG), AT_ONCE) == set(SMALL)


def test_a_job_waits_for_fast_gpus_that_are_free_soon():
    """Four hours on the slow GPU, or one on the fast GPU after a quarter of an hour."""
    snapshot = mixed(holds("r", "fast", [0], hours=0.25), waits("a"))
    start = found(snapshot)["a"]
    assert (start.begins, start.gpu_model) == (HOUR // 4, FAST)
    assert start.saved == 4 * HOUR - (HOUR + HOUR // 4)
    assert started(snapshot) == set()
    assert started(snapshot, AT_ONCE) == {"a"}


def test_it_does_not_wait_where_the_fast_ones_are_free_too_late():
    assert started(mixed(holds("r", "fast", [0], hours=4), waits("a"))) == {"a"}


SWAPPED = mixed(holds("r", "fast", [0], hours=0.25), waits("a"), waits("d", hours=2, gpu_models={SLOW: 1000}))
"""The job that only the slow GPU suits is the longer one, so that an order by time would let it wait."""


def test_the_slow_gpus_go_to_a_job_that_has_no_others():
    assert started(SWAPPED) == {"d"}
    assert started(SWAPPED, AT_ONCE) == {"a"}


def test_values_say_the_same():
    """A start that is planned for later costs a point, and a planned start brings the points of the job."""
    value, at_once = StartValue(SWAPPED, POLICY), StartValue(SWAPPED, AT_ONCE)
    starts = found(SWAPPED)
    assert {name: start.begins > 0 for name, start in starts.items()} == {"a": True, "d": False}
    for name, start in starts.items():
        job = SWAPPED.job_by_name[name]
        for model in SPEEDS:
            later = start.begins > 0 or model != start.gpu_model
            assert value.completion(job, model, 1) == (-1 if later else at_once.completion(job, model, 1))
            assert (model in value.worth.avoided_models(job)) == later
        assert not at_once.worth.avoided_models(job)


def test_reasons_name_the_planned_start():
    plan = planned(mixed(holds("r", "fast", [0], hours=0.25), waits("a")))
    (reason,) = (each.reason for each in plan.waiting if each.job == "a")
    assert reason.numbers == {
        "gpu_model": FAST,
        "starts": "2026-11-20T12:15:00Z",
        "saved_seconds": 4 * HOUR - (HOUR + HOUR // 4),
    }


def test_a_plan_is_settled_until_time_lets_a_job_start():
    """The running job takes longer than expected: after a while the wait is not worth it any more."""
    snapshot = mixed(holds("r", "fast", [0], hours=0.25), waits("a"))
    last = planned(snapshot)
    for minutes, begun in ((1, set()), (1200, {"a"})):
        now = build.NOW + timedelta(minutes=minutes)
        live = snapshot.model_copy(update={"taken_at": now})
        plan = plan_epoch(live, POLICY, seed=0, created_at=now, last=last)
        assert {each.job for each in plan.placements} == {"r"} | begun


@pytest.mark.parametrize(
    "policy",
    [
        AT_ONCE,
        POLICY.model_copy(update={"objective": Objective(goal=Goal.FAIRNESS)}),
        POLICY.model_copy(update={"horizon": HorizonPolicy(slots=4)}),
        POLICY.model_copy(update={"disruption": Disruption(priority_gap=0)}),
    ],
)
def test_other_goals_horizons_and_turns_have_no_later_starts(policy):
    assert found(world(*GANG), policy) == {}


@pytest.mark.parametrize(
    "change",
    [
        {"expected_duration": None},
        {"anti_affinity": (AntiAffinity(labels={"a": "b"}, level=Level.NODE),)},
        {"not_before": build.NOW + timedelta(hours=1)},
        {"gang": build.job(replicas=(1, 2)).gang},
        {"request": build.job(milli=500).request},
        {"queue": "guaranteed"},
        {"queue": "lends"},
        {"queue": "few-cores"},
        {"deadline": build.NOW + timedelta(hours=9)},
        {"preferred_nodes": (PreferredNodes(match=NodeMatch(key="zone", values=("a",)), points=10),)},
        {"request": build.job(cpus=1).request},
        {"request": build.job(gpus=1, cpus=13).request},
        {"submitted_at": build.NOW - timedelta(hours=25)},
    ],
)
def test_a_queue_that_more_than_places_decides_has_no_later_starts(change):
    *others, last = GANG
    snapshot = world(*others, last, queues=QUEUES)
    assert found(snapshot)
    changed = last.model_copy(update=change)
    assert found(snapshot.model_copy(update={"jobs": (*others, changed)})) == {}


@pytest.mark.parametrize(
    "change", [{"gang": build.job(replicas=(1, 2)).gang}, {"request": build.job(gpus=4, cpus=60).request}]
)
def test_a_queue_beside_a_job_that_may_take_more_has_no_later_starts(change):
    running, *others = GANG
    assert found(world(running.model_copy(update=change), *others)) == {}


def test_a_job_that_could_stop_others_has_no_later_start():
    gang = [job.model_copy(update={"priority": 5, "preemptible": True}) for job in GANG]
    gang[0] = gang[0].model_copy(update={"priority": 0})
    assert found(world(*gang)) == {}


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


def test_places_without_cpu_are_none():
    """The best schedule starts a job for which there is no CPU, so nothing is held back for its sake."""
    short_of_cpu = build.job(gpus=1, cpus=10**6).request
    jobs = [
        job.model_copy(update={"request": short_of_cpu}) if job.name == "d" else job for job in SWAPPED.jobs
    ]
    assert found(SWAPPED)
    assert found(SWAPPED.model_copy(update={"jobs": tuple(jobs)})) == {}


def test_large_questions_are_not_asked(monkeypatch):
    monkeypatch.setattr(queue_rollout, "_MOST_WORK", 10)
    assert found(world(*GANG)) == {}


# --- against all schedules -------------------------------------------------------------------------------


def tiny(seed):
    """A few jobs of several sizes for two small nodes of two models, of which some GPUs are in use."""
    dice = random.Random(seed)
    running = [
        holds(f"r-{node}", node, range(dice.randint(0, 2)), hours=dice.choice((0.2, 1, 3)))
        for node in ("fast", "slow")
    ]
    jobs = [
        waits(f"j-{k}", dice.choice((1, 1, 2)), hours=dice.choice((0.1, 0.5, 1, 2, 4)))
        for k in range(dice.randint(2, 4))
    ]
    return mixed(*(job for job in running if job.running.replicas[0].gpus), *jobs, gpus=2)


def plain_cost(snapshot, order, models):
    """Σ completion of a list with a GPU model for each job, from the first second with room on."""
    node_of = {FAST: "fast", SLOW: "slow"}
    used = []
    for job in snapshot.jobs:
        if job.running:
            left = Durations(snapshot, POLICY).remaining(job)
            used.append((job.running.replicas[0].node, 0, left, len(job.running.replicas[0].gpus)))
    total = 0
    for job, model in zip(order, models, strict=True):
        node, gpus = node_of[model], job.request.gpus
        seconds = job.expected_duration * 1000 // job.speed_milli(model)

        def busy(at, node=node):
            return sum(held for where, begins, ends, held in used if where == node and begins <= at < ends)

        instants = sorted({0, *(ends for where, _, ends, _ in used if where == node)})
        begins = next(
            at
            for at in instants
            if all(
                busy(moment) + gpus <= 2
                for moment in {at, *(b for w, b, _, _ in used if w == node and at < b < at + seconds)}
            )
        )
        used.append((node, begins, begins + seconds, gpus))
        total += begins + seconds
    return total


def cost_of(snapshot, starts):
    return sum(
        start.begins
        + snapshot.job_by_name[name].expected_duration
        * 1000
        // snapshot.job_by_name[name].speed_milli(start.gpu_model)
        for name, start in starts.items()
    )


@pytest.mark.parametrize("seed", [0, 2, 4, 6, 7, 8, 9, 10, 11, 16, 22, 23])
def test_no_list_is_better_than_the_best_found(seed):
    snapshot = tiny(seed)
    waiting = [job for job in snapshot.jobs if not job.running]
    least = min(
        plain_cost(snapshot, order, models)
        for order in permutations(waiting)
        for models in product((FAST, SLOW), repeat=len(order))
    )
    thorough = POLICY.model_copy(update={"objective": Objective(rollouts=400)})
    starts = found(snapshot, thorough)
    assert cost_of(snapshot, starts) == least
    assert started(snapshot, thorough) == {name for name, start in starts.items() if not start.begins}


@pytest.mark.parametrize("seed", [0, 3, 4, 5, 6, 8, 9, 10, 11, 12, 13, 14])
def test_schedules_never_hold_more_than_there_is(seed):
    dice = random.Random(seed)
    jobs = [
        waits(
            f"j-{k}",
            dice.choice((1, 2, 4, 8)),
            hours=dice.choice((0.2, 1, 5)),
            replicas=dice.choice((1, 1, 2)),
        )
        for k in range(12)
    ]
    snapshot = world(*jobs, holds("r", "n0", range(6), hours=1), nodes=3)
    starts = found(snapshot)
    assert set(starts) == {job.name for job in jobs}
    spans = [
        (start.begins, start.begins + job.expected_duration, job.request.gpus * job.gang.minimum)
        for name, start in starts.items()
        for job in [snapshot.job_by_name[name]]
    ]
    spans.append((0, HOUR, 6))
    for at, _, _ in spans:
        assert sum(gpus for begins, ends, gpus in spans if begins <= at < ends) <= 24


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


def test_the_random_worlds_have_later_starts():
    """Otherwise the two tests above would test nothing."""
    worlds = [crowded(seed, models=models, priorities=3) for seed in range(30) for models in (1, 2)]
    assert sum(bool(found(each)) for each in worlds) >= 15


@pytest.mark.parametrize("seed", range(60))
def test_no_quotas_are_simple_where_a_job_may_reclaim(seed):
    snapshot, policy = reclaim_worlds.world(seed)
    waiting = [job for job in snapshot.waiting if not job.withheld]
    if any(reclaim_pairs(snapshot, policy)):
        assert not rollout_scope._are_simple_quotas(snapshot, policy, waiting)
