"""Foresight lists jobs in order, gives each its best start, and lets no job delay one before it."""

from __future__ import annotations

import random
from dataclasses import replace

import pytest

from gpuplan.models.problem.jobs import Predecessor
from gpuplan.solvers.heuristics import future_reservations
from gpuplan.solvers.heuristics.greedy import greedy
from gpuplan.solvers.heuristics.list_scheduling import (
    cancel_broken_starts,
    reserve_best_starts,
    schedule_in_order,
)
from gpuplan.solvers.state.ledger import Ledger
from gpuplan.solvers.targets.to_target import target_of
from tests.support.builders import slot_problems


def after(*classes, ended=True):
    """What a class waits for."""
    return {
        "predecessors": tuple(Predecessor(job_class=index, ended=ended) for index in classes),
        "needed": len(classes),
    }


def listed(question):
    """Slots of starts by job, in one pass and what it leaves."""
    ledger = Ledger(question)
    schedule_in_order(ledger)
    reserve_best_starts(ledger)
    return slot_problems.starts(ledger)


def some_jobs(draw, slots, *, sizes=(1, 2, 4), count=6):
    return [
        slot_problems.waiting(
            f"j{number}",
            slots=slots,
            hours=draw.randint(1, slots),
            gpus=draw.choice(sizes),
            points=draw.randint(100, 9000),
            **({"due": draw.randint(1, 9)} if draw.random() < 0.3 else {}),
        )
        for number in range(count)
    ]


def test_critical_deadlines_come_first_and_the_earliest_in_front():
    jobs = [
        slot_problems.waiting("rich", slots=6, points=9000),
        slot_problems.waiting("late", slots=6, points=10, due=7200),
        slot_problems.waiting("soon", slots=6, points=10, due=3600),
    ]

    slots = listed(slot_problems.problem([slot_problems.node("n0", 1)], jobs, slots=6))

    assert slots == {"soon": 0, "late": 1, "rich": 2}


@pytest.mark.parametrize("seed", range(20))
def test_equal_sizes_start_by_points_over_duration(seed):
    """Smith's rule; points here are those of a job that completes at once."""
    draw = random.Random(seed)
    slots = 24
    lengths = draw.sample(range(1, 7), 4)
    jobs = [slot_problems.waiting(f"j{hours}", slots=slots, hours=hours, points=5000) for hours in lengths]

    found = listed(slot_problems.problem([slot_problems.node("n0", 1)], jobs, slots=slots))

    assert sorted(found, key=found.get) == [f"j{hours}" for hours in sorted(lengths)]


@pytest.mark.slow
def test_no_job_delays_one_before_it_in_order():
    delayed = 0
    for seed in range(150):
        draw, slots = random.Random(seed), draw_slots(seed)
        nodes = [
            slot_problems.node("n0", 2, of=4, returns=[slot_problems.back(draw.randint(1, slots - 1), 0, 1)]),
            slot_problems.node("n1", draw.choice((0, 1, 4)), of=4),
        ]
        jobs = some_jobs(draw, slots)
        question = slot_problems.problem(nodes, jobs, slots=slots)
        order = question.placement_order
        all_listed = listed(question)
        for last in range(1, len(jobs) + 1):
            few = [job if index in order[:last] else replace(job, jobs=()) for index, job in enumerate(jobs)]
            found = listed(replace(question, classes=tuple(few)))
            assert {job: all_listed.get(job) for job in found} == found, seed
            delayed += sum(slot > 0 for slot in found.values())
    assert delayed > 300


def draw_slots(seed):
    return (3, 5, 8)[seed % 3]


@pytest.mark.slow
def test_nothing_that_is_left_fits_anywhere():
    for seed in range(60):
        draw = random.Random(seed)
        nodes = [slot_problems.node("n0", 2, of=4, returns=[slot_problems.back(2, 0, 1)])]
        ledger = greedy(slot_problems.problem(nodes, some_jobs(draw, 5, count=9), slots=5))
        for index in range(9):
            assert not any(
                future_reservations.reserve_start(ledger, index, 0, slot) for slot in range(1, 5)
            ), seed


def test_a_job_comes_after_those_it_waits_for():
    jobs = [
        slot_problems.waiting("first", slots=8, hours=2, gpus=1, points=10),
        slot_problems.waiting("second", slots=8, hours=1, gpus=1, points=9000, **after(0)),
        slot_problems.waiting("third", slots=8, hours=1, gpus=1, points=9000, **after(0, ended=False)),
    ]

    assert listed(slot_problems.problem([slot_problems.node("n0", 4)], jobs, slots=8)) == {
        "first": 0,
        "second": 2,
        "third": 1,
    }


def test_a_job_is_not_booked_before_what_it_waits_for():
    jobs = [
        slot_problems.waiting("first", slots=8, hours=2, ready=1),
        slot_problems.waiting("second", slots=8, **after(0)),
    ]
    ledger = Ledger(slot_problems.problem([slot_problems.node("n0", 4)], jobs, slots=8))

    assert future_reservations.reserve_start(ledger, 1, 0, 3) is None
    assert future_reservations.reserve_start(ledger, 0, 0, 1) is not None
    assert future_reservations.reserve_start(ledger, 1, 0, 2) is None
    assert future_reservations.reserve_start(ledger, 1, 0, 3) is not None


def test_a_job_that_loses_its_predecessor_or_a_companion_is_given_up():
    jobs = [
        slot_problems.waiting("first", slots=8, hours=2),
        slot_problems.waiting("second", slots=8, **after(0)),
        slot_problems.waiting("pair", slots=8, co_start=0, ready=1),
        slot_problems.waiting("other", slots=8, co_start=0, ready=1),
    ]
    ledger = Ledger(slot_problems.problem([slot_problems.node("n0", 4)], jobs, slots=8))
    reserve_best_starts(ledger)
    of = {ledger.problem.classes[each.job_class].jobs[0]: number for number, each in ledger.reserved.items()}
    assert set(of) == {"first", "second", "pair", "other"}

    ledger.cancel_reservation(of["first"])
    ledger.cancel_reservation(of["pair"])
    cancel_broken_starts(ledger)

    assert not ledger.reserved
    assert ledger.objective == 0


@pytest.mark.parametrize("free", [1, 2])
def test_companions_start_in_the_same_slot_or_not_at_all(free):
    nodes = [slot_problems.node("n0", free, of=2, returns=[slot_problems.back(3, 0)] if free == 1 else [])]
    jobs = [
        slot_problems.waiting(name, slots=6, points=points, co_start=0)
        for name, points in (("a", 90), ("b", 9))
    ]

    ledger = greedy(slot_problems.problem(nodes, jobs, slots=6))

    assert slot_problems.starts(ledger) == ({"a": 3, "b": 3} if free == 1 else {"a": 0, "b": 0})


def test_companions_that_never_fit_together_do_not_start():
    jobs = [slot_problems.waiting(name, slots=6, gpus=2, co_start=0) for name in ("a", "b")]

    assert greedy(slot_problems.problem([slot_problems.node("n0", 3)], jobs, slots=6)).objective == 0


def test_only_the_first_in_line_are_promised_a_start():
    jobs = [
        slot_problems.waiting(f"j{number}", slots=9, points=1000 - number, due=number) for number in range(6)
    ]
    ledger = greedy(slot_problems.problem([slot_problems.node("n0", 1)], jobs, slots=9, depth=2))

    planned = {each.job: each for each in target_of(ledger, ()).planned}

    assert {name for name, each in planned.items() if each.promised} == {"j1", "j2"}
    assert [planned[f"j{number}"].slot for number in range(1, 6)] == [1, 2, 3, 4, 5]


def test_a_job_waits_for_a_slot_that_pays_better():
    """As where a tariff makes the first slots dear."""
    job = slot_problems.waiting("a", slots=4)
    cheap_later = replace(job.options[0], points=-5, later=(None, 10, 500, 500))

    slots = listed(
        slot_problems.problem([slot_problems.node("n0", 1)], [replace(job, options=(cheap_later,))], slots=4)
    )

    assert slots == {"a": 2}


def test_a_plan_of_one_slot_books_nothing():
    jobs = [slot_problems.waiting("a", slots=1, gpus=1), slot_problems.waiting("b", slots=1, gpus=8)]
    ledger = greedy(slot_problems.problem([slot_problems.node("n0", 4)], jobs, slots=1))

    assert (len(ledger.placed), ledger.reserved, ledger.timeline) == (1, {}, None)
