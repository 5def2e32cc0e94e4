"""Limits of time on a busy host: a clock that only work moves, so that no machine is too fast or too slow."""

from __future__ import annotations

import time
from functools import partial

import pytest

from gpuplan.models.policy.policy import PriorityOrder, PriorityPolicy
from gpuplan.models.verifier.verify import verify_target
from gpuplan.planner.problem_builder import build_problem
from gpuplan.solvers import exact_run, pipeline, portfolio
from gpuplan.solvers.heuristics import future_reservations
from gpuplan.solvers.heuristics.greedy import greedy
from gpuplan.solvers.portfolio import Limits
from gpuplan.solvers.rounding.later_starts import reserve_all_starts
from gpuplan.solvers.state.ledger import Ledger
from tests.support.builders import build
from tests.support.builders.time_builders import ahead, waits
from tests.support.doubles.broken_solvers import apart_in_this_process

JOBS, SLOTS = 40, 12


class Clock:
    """Stands still but while jobs are reserved for later."""

    def __init__(self):
        self.now = 1000.0
        self.bookings = 0
        self.seconds = 1.0
        """That each attempt to book a job takes."""

    def reserved(self, book):
        def slowly(*arguments):
            self.now += self.seconds
            self.bookings += 1
            return book(*arguments)

        return slowly


@pytest.fixture
def clock(monkeypatch):
    found = Clock()
    monkeypatch.setattr(time, "monotonic", lambda: found.now)
    slowly = found.reserved(future_reservations.reserve_start)
    monkeypatch.setattr(future_reservations, "reserve_start", slowly)
    return found


def crowd(priorities=(0,)):
    """Three GPUs, and many jobs that wait for them."""
    jobs = [
        waits(
            f"j{number:02d}",
            hours=1 + number % 5,
            gpus=1 + number % 3,
            priority=priorities[number % len(priorities)],
        )
        for number in range(JOBS)
    ]
    return build.snapshot(nodes=[build.node(gpus=3)], jobs=jobs)


def run(snapshot, policy, seconds, *solvers):
    check = partial(verify_target, snapshot, policy)
    solution = portfolio.solve(build_problem(snapshot, policy), (), Limits(seconds, solvers), check)
    assert check(solution.target).violations == ()
    return solution


def test_greedy_plans_no_later_start_once_the_time_is_up(clock):
    snapshot, policy = crowd(), ahead(SLOTS)
    run(snapshot, policy, 10_000.0)
    unlimited = clock.bookings
    clock.bookings = 0

    solution = run(snapshot, policy, 5.0)

    assert solution.seconds <= 5.0 + clock.seconds
    assert 0 < clock.bookings <= 6 < unlimited
    assert solution.target.placements, "what starts now is planned however late it is"


def test_priorities_in_order_are_not_planned_one_by_one_once_the_time_is_up(clock, monkeypatch):
    asked = []
    for module in (pipeline, portfolio):
        monkeypatch.setattr(
            module, "greedy", lambda *given, **more: (asked.append(1), greedy(*given, **more))[1]
        )
    policy = ahead(SLOTS, priority=PriorityPolicy(order=PriorityOrder.TIERS))

    solution = run(crowd(range(6)), policy, 3.0)

    assert len(asked) == 1
    assert [stage.proven for stage in solution.stages] == [False] * 5
    assert solution.seconds <= 3.0 + clock.seconds


def test_what_a_solver_found_takes_no_longer_to_place_than_was_set_aside(clock, monkeypatch):
    monkeypatch.setattr(exact_run, "run_in_child", apart_in_this_process)
    clock.seconds = 0.01
    snapshot, policy = crowd(), ahead(SLOTS)
    limit = 10.0
    placed = []

    def place(*given, whole=exact_run.disaggregate, **more):
        # From now on the host is busy with something else.
        clock.seconds, began = 2.0, clock.now
        found = whole(*given, **more)
        placed.append(clock.now - began)
        return found

    monkeypatch.setattr(exact_run, "disaggregate", place)

    solution = run(snapshot, policy, limit, "milp")

    assert placed
    assert solution.seconds <= limit + 4 * solution.phases["greedy"] + 2 * clock.seconds


def test_no_later_start_is_booked_after_the_deadline(clock):
    problem = build_problem(crowd(), ahead(SLOTS))
    wanted = [(index, 0, 1) for index, one in enumerate(problem.classes) for _ in one.jobs]

    late, missed = reserve_all_starts(Ledger(problem), wanted, deadline=clock.now + 3)

    assert clock.bookings == 3
    assert missed >= len(wanted) - 3
    assert late >= missed
