"""The last bound: where no solver reports one, a plan has that of the linear relaxation all the same."""

from __future__ import annotations

import time
from functools import partial
from pkgutil import resolve_name

import pytest

from gpuplan.models.plan.solution import StopReason
from gpuplan.models.policy.policy import PriorityOrder, PriorityPolicy
from gpuplan.planner.problem_builder import build_problem
from gpuplan.solvers import exact_run, pipeline, portfolio
from gpuplan.solvers.heuristics.greedy import greedy_by_priority
from gpuplan.solvers.params.search import PortfolioParams, SearchParams
from gpuplan.solvers.shared_model import HOLD_ENTRY
from gpuplan.solvers.worker import ChildOutcome
from tests.support.builders import build
from tests.support.samples.greedy_gap import POLICY, contested
from tests.support.strategies.random_targets import judged

IN_ORDER = build.by_value(priority=PriorityPolicy(order=PriorityOrder.TIERS))
AHEAD = SearchParams(portfolio=PortfolioParams(choices_to_load_ahead=0))
"""The worker prepares whatever the size of the problem."""


def two_priorities():
    nodes = [build.node("n0", gpus=2)]
    jobs = [build.job(name, gpus=gpus, priority=gpus % 2) for name, gpus in (("a", 1), ("b", 2), ("c", 1))]
    return build.snapshot(nodes=nodes, jobs=jobs)


def run(snapshot, policy=POLICY, *, took=0.0, seconds=10.0, solvers=("milp",), **more):
    """The solution of an epoch that began so many seconds ago."""
    limits = portfolio.Limits(seconds, solvers, **more)
    problem, began = build_problem(snapshot, policy), time.monotonic() - took
    check = partial(judged, snapshot, policy)
    return portfolio.solve(problem, snapshot.running_placements, limits, check, began=began)


def ceiling(snapshot, policy=POLICY):
    return build_problem(snapshot, policy).ceiling


def without_answers(monkeypatch, answer=lambda *_: ChildOutcome(killed=True)):
    """Processes find nothing but the last bound, by `answer`; what was asked about that, and for how long."""
    asked = []

    def run_apart(entry, arguments, seconds, listen):
        if entry != exact_run.BOUND_ENTRY:
            return ChildOutcome(killed=True)
        asked.append((arguments, seconds))
        return answer(entry, arguments)

    monkeypatch.setattr(exact_run, "solve_in_process", lambda *_: iter(()))
    for module in (exact_run, pipeline):
        monkeypatch.setattr(module, "run_in_child", run_apart)
    return asked


@pytest.mark.parametrize("took", [0.0, 60.0])
def test_a_last_bound_is_of_this_process_also_when_the_time_is_over(monkeypatch, took):
    asked = without_answers(monkeypatch)
    solution = run(contested(), took=took, reserved_for_bound=1.0)

    assert solution.solver == "greedy"
    assert solution.objective <= solution.bound < ceiling(contested())
    assert "bound" in solution.phases
    assert asked == []


@pytest.mark.parametrize(
    ("limit", "took", "seconds"),
    [(600.0, 0.0, 30.0), (24.0, 0.0, 24.0), (15.0, 0.0, 20.0), (10.0, 60.0, 20.0)],
)
def test_one_that_takes_long_is_of_another_process_that_ends_with_the_search(
    monkeypatch, limit, took, seconds
):
    """It gets at least what was kept back, and up to half as long again: 20 to 30 seconds."""

    def answer(entry, arguments):
        return ChildOutcome(resolve_name(entry)(*arguments, lambda _: None))

    asked = without_answers(monkeypatch, answer)
    # The clock stands still, so that what comes before the bound takes no time.
    monkeypatch.setattr(time, "monotonic", lambda: 1_000.0)
    solution = run(contested(), took=took, seconds=limit, reserved_for_bound=20.0)

    assert solution.objective <= solution.bound < ceiling(contested())
    ((_, _, budget, latest), allowed), *more = asked
    assert allowed == seconds
    assert latest - budget.deadline == pytest.approx(max(0.0, allowed - 20.0) / 2)
    assert more == []


def test_a_process_that_is_killed_without_a_bound_leaves_the_ceiling(monkeypatch):
    asked = without_answers(monkeypatch)
    solution = run(contested(), took=60.0, reserved_for_bound=20.0)

    assert (solution.solver, solution.bound) == ("greedy", ceiling(contested()))
    assert len(asked) == 1


def test_a_process_that_is_killed_leaves_the_bound_that_it_had_reported(monkeypatch):
    def answer(entry, arguments):
        reported = []
        resolve_name(entry)(*arguments, reported.append)
        return ChildOutcome(reported[-1], killed=True)

    without_answers(monkeypatch, answer)
    solution = run(contested(), took=60.0, reserved_for_bound=20.0)

    assert solution.objective <= solution.bound < ceiling(contested())


def test_the_process_may_have_the_model_of_all_priorities(monkeypatch):
    asked = without_answers(monkeypatch)
    run(two_priorities(), IN_ORDER, took=60.0, reserved_for_bound=20.0)

    ((problem, part, *_), _), *_ = asked
    assert part.whole is not None
    assert part.floors == problem.floors


def test_an_interrupted_search_does_not_wait_for_another_process(monkeypatch):
    def interrupted(*_, **__):
        raise KeyboardInterrupt

    asked = without_answers(monkeypatch)
    monkeypatch.setattr(portfolio._TieredSolve, "_take", interrupted)
    solution = run(two_priorities(), IN_ORDER, seconds=600.0, reserved_for_bound=20.0)

    assert (solution.ended, asked) == (StopReason.INTERRUPTED, [])


@pytest.mark.parametrize(("for_bound", "held"), [(2.0, True), (1.9, False)])
def test_for_greedy_alone_the_model_is_held_if_its_bound_takes_long(monkeypatch, for_bound, held):
    loaded = []
    monkeypatch.setattr(portfolio, "load_ahead", lambda entry, *_: loaded.append(entry))
    without_answers(monkeypatch)
    run(two_priorities(), IN_ORDER, solvers=(), reserved_for_bound=for_bound, params=AHEAD)

    assert (HOLD_ENTRY in loaded) is held


def test_greedy_leaves_time_to_check_its_plan_and_for_the_last_bound(monkeypatch):
    deadlines = []

    def noted(*arguments, deadline, **more):
        deadlines.append(deadline)
        return greedy_by_priority(*arguments, deadline=deadline, **more)

    def slow_check(target):
        time.sleep(0.2)
        return judged(snapshot, IN_ORDER, target)

    snapshot = two_priorities()
    monkeypatch.setattr(portfolio, "greedy_by_priority", noted)
    without_answers(monkeypatch)
    problem, began = build_problem(snapshot, IN_ORDER), time.monotonic()
    limits = portfolio.Limits(600.0, ("milp",), reserved=100.0, reserved_for_bound=50.0)
    portfolio.solve(problem, (), limits, slow_check, began=began)

    factor = PortfolioParams().checks_of_no_change_per_plan
    assert began + 400.0 < deadlines[0] <= began + 600.0 - 100.0 - 50.0 - factor * 0.2
