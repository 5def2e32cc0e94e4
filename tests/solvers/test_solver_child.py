"""Small questions are answered in the planner's own process, within limits; others in one of their own."""

from __future__ import annotations

from functools import partial

import pytest

from gpuplan.models.plan.solution import SolveStatus
from gpuplan.models.verifier.verify import verify_target
from gpuplan.planner.problem_builder import build_problem
from gpuplan.solvers import SOLVERS, exact_run
from gpuplan.solvers.exact import milp
from gpuplan.solvers.params.exact import ExactParams, SolverChildParams
from gpuplan.solvers.params.search import SearchParams
from gpuplan.solvers.portfolio import Limits, solve
from tests.support.builders import build
from tests.support.doubles.broken_solvers import apart_in_this_process
from tests.support.samples.greedy_gap import GREEDY, OPTIMUM, POLICY, contested
from tests.support.seeds import EVERY_SEED
from tests.support.strategies import instances

SEEDS = 300 if EVERY_SEED else 12
TICKS = 20


@pytest.fixture
def asked_apart(monkeypatch):
    """The solvers that were asked in a process of their own."""
    asked = []

    def run_apart(entry, arguments, seconds, listen):
        asked.append(arguments[0].solver)
        return apart_in_this_process(entry, arguments, seconds, listen)

    monkeypatch.setattr(exact_run, "run_in_child", run_apart)
    return asked


def run(snapshot, policy=POLICY, *, solvers=("milp",), child=SolverChildParams()):
    check = partial(verify_target, snapshot, policy)
    return solve(
        build_problem(snapshot, policy),
        snapshot.running_placements,
        Limits(60.0, solvers, ticks=TICKS, params=SearchParams(exact=ExactParams(child=child))),
        check,
    )


def test_a_small_question_starts_no_process_and_prints_nothing(asked_apart, capfd):
    solution = run(contested())

    assert asked_apart == []
    assert capfd.readouterr() == ("", "")
    assert (solution.solver, solution.objective, solution.bound) == ("milp", OPTIMUM, OPTIMUM)
    assert solution.fallback is None


def test_without_solvers_greedys_plan_has_its_bound_without_a_process(asked_apart):
    solution = run(contested(), solvers=())

    assert asked_apart == []
    assert solution.objective == GREEDY
    assert OPTIMUM <= solution.bound < 700


def test_where_nothing_that_waits_can_start_nothing_is_asked_apart(asked_apart):
    full = build.snapshot(nodes=[build.node(gpus=1)], jobs=[build.job("a", gpus=2), build.job("b", gpus=2)])

    solution = run(full)

    assert asked_apart == []
    assert (solution.status, solution.objective, solution.bound) == (SolveStatus.OPTIMAL, 0, 0)


@pytest.mark.parametrize(
    "limit", ["few_choices", "few_nodes", "few_columns", "iterations", "very_few_columns"]
)
def test_what_is_beyond_a_limit_is_asked_in_a_process_of_its_own(asked_apart, limit):
    solution = run(contested(), child=SolverChildParams(**{limit: 0}))

    assert asked_apart == [SOLVERS["milp"]]
    assert (solution.solver, solution.objective, solution.bound) == ("milp", OPTIMUM, OPTIMUM)


def test_a_large_question_is_not_even_stated_in_this_process(monkeypatch, asked_apart):
    monkeypatch.setattr(exact_run, "solve_in_process", None)

    run(contested(), child=SolverChildParams(few_choices=0))

    assert asked_apart == [SOLVERS["milp"]]


def test_other_solvers_are_never_run_in_this_process(asked_apart):
    solution = run(contested(), solvers=("cpsat",))

    assert asked_apart == [SOLVERS["cpsat"]]
    assert (solution.solver, solution.objective) == ("cpsat", OPTIMUM)


def test_a_library_that_breaks_here_is_asked_again_apart(monkeypatch, asked_apart):
    once = [ValueError("HiGHS does not take the model")]
    whole = milp.relax

    def relax(*arguments):
        if once:
            raise once.pop()
        return whole(*arguments)

    monkeypatch.setattr(milp, "relax", relax)

    solution = run(contested())

    assert asked_apart == [SOLVERS["milp"]]
    assert (solution.solver, solution.objective) == ("milp", OPTIMUM)


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(SEEDS))
@pytest.mark.parametrize("solvers", [(), ("milp",)])
def test_a_question_is_answered_here_as_well_as_apart(seed, solvers):
    one = instances.everything(seed)

    here = run(one.snapshot, one.policy, solvers=solvers)
    apart = run(one.snapshot, one.policy, solvers=solvers, child=SolverChildParams(few_choices=0))

    assert (here.objective, here.bound, here.status) == (apart.objective, apart.bound, apart.status)
