"""Later starts by rollout: in two worlds, where none apply, and against all schedules of tiny queues."""

from __future__ import annotations

import random
from datetime import timedelta
from itertools import permutations, product

import pytest

from gpuplan.models.affinity import AntiAffinity, NodeMatch, PreferredNodes
from gpuplan.models.cluster import Gpu, Level
from gpuplan.models.policy.policy import Disruption
from gpuplan.models.policy.settings import Goal, HorizonPolicy, Objective
from gpuplan.models.timing.durations import Durations
from gpuplan.models.value import queue_rollout
from gpuplan.models.value.start_value import StartValue
from gpuplan.planner.epoch import plan_epoch
from tests.support.builders import build
from tests.support.builders.rollout_worlds import (
    AT_ONCE,
    FAST,
    GANG,
    HOUR,
    POLICY,
    SLOW,
    SMALL,
    SPEEDS,
    found,
    holds,
    mixed,
    planned,
    started,
    waits,
    world,
)

QUEUES = [
    build.queue(),
    build.queue("guaranteed", nominal=2, guarantee=2),
    build.queue("lends", nominal=2, lending=1),
    build.queue("few-cores", cpus=10),
]


def test_small_jobs_leave_room_for_a_gang():
    starts = found(world(*GANG))
    assert starts["gang"].begins == HOUR // 2
    assert {starts[name].begins for name in SMALL} == {HOUR // 2 + HOUR}
    assert started(world(*GANG)) == set()
    assert started(world(*GANG), AT_ONCE) == set(SMALL)


def test_an_unhealthy_gpu_that_a_job_still_uses_takes_no_place_of_the_others():
    damaged = build.node("n0", gpus=9, model=FAST, details=[Gpu(index=8, healthy=False)])
    running = holds("on-unhealthy", "n0", [8], hours=20)

    beside = build.snapshot(nodes=[damaged], jobs=(*GANG, running))

    assert found(beside) == found(world(*GANG)) != {}


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


@pytest.mark.slow
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


@pytest.mark.parametrize("seed", [0, 4, 6, 8, 9, 11, 14, 15, 16, 17, 18, 20])
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


@pytest.mark.parametrize("seed", range(12))
def test_a_changed_list_gives_the_schedule_that_it_gives_alone(seed, monkeypatch):
    dice, plan, changed = random.Random(seed), queue_rollout._Queue._plan, []

    def twice(self, tier, order, choices, most, free, change=None):
        found = plan(self, tier, order, choices, most, free, change)
        if change:
            assert found == plan(self, tier, order, choices, most, free)
            changed.append(found is not None)
        return found

    monkeypatch.setattr(queue_rollout._Queue, "_plan", twice)
    jobs = [
        waits(f"w{k}", dice.choice((1, 1, 2, 4)), hours=dice.uniform(0.2, 9), preemptible=False)
        for k in range(14)
    ]
    running = [holds(f"r{k}", name, range(3), hours=1 + k) for k, name in enumerate(("fast", "slow"))]
    found(mixed(*jobs, *running, gpus=4))
    assert changed
