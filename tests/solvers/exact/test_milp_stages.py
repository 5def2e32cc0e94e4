"""HiGHS near the linear relaxation first: the answer is that of the whole model, and so is the bound."""

from __future__ import annotations

import time

import numpy as np
import pytest

from gpuplan.models.formulation import formulate
from gpuplan.models.formulation.columns import Columns
from gpuplan.models.formulation.rows import Formulation
from gpuplan.models.plan.solution import SolveStatus
from gpuplan.planner.problem_builder import build_problem
from gpuplan.solvers.exact import cpsat, milp
from gpuplan.solvers.interface import Budget, SolverAnswer
from gpuplan.solvers.params.exact import ExactParams, HighsParams
from gpuplan.solvers.params.search import SearchParams
from tests.support.strategies.schedule_instances import timely


def model(seed):
    world = timely(seed, jobs=5)
    problem = build_problem(world.snapshot, world.policy)
    return formulate(problem, Columns(problem))


def answer(solver, formulation, params=SearchParams(), **limits):
    nothing = np.zeros_like(formulation.upper)
    reported = []
    budget = Budget(time.monotonic() + 30, params=params, **limits)
    return solver.solve(formulation, budget, nothing, reported.append), reported


@pytest.fixture(params=["many_later", "many_columns"])
def in_stages(request):
    """Every model is large, or has many later starts if it has any."""
    return SearchParams(exact=ExactParams(highs=HighsParams(**{request.param: 0})))


@pytest.mark.slow
def test_stages_end_with_the_optimum_of_the_whole_and_claim_no_other_bound(in_stages):
    with_later = 0
    for seed in range(40):
        formulation = model(seed)
        best, _ = answer(cpsat, formulation)
        found, reported = answer(milp, formulation, in_stages)

        assert found.status is SolveStatus.OPTIMAL, seed
        assert formulation.violated_rows(found.values) == (), seed
        assert formulation.points(found.values) == best.bound == found.bound, seed
        assert all(each.bound is None or each.bound >= best.bound for each in reported), seed
        with_later += len(formulation.later) > 0
    assert with_later >= 30


@pytest.mark.slow
def test_search_stopped_in_any_stage_still_answers_with_a_bound_on_the_whole(in_stages):
    for seed in range(10):
        formulation = model(seed)
        best, _ = answer(cpsat, formulation)
        found, _ = answer(milp, formulation, in_stages, ticks=1)

        assert found.status in (SolveStatus.OPTIMAL, SolveStatus.FEASIBLE), seed
        assert formulation.points(found.values) <= best.bound <= found.bound, seed


def test_same_ticks_same_answer(in_stages):
    formulation = model(3)

    one, other = (answer(milp, formulation, in_stages, ticks=2)[0] for _ in range(2))

    assert (one.values == other.values).all()


def test_where_what_is_fixed_leaves_no_answer_the_search_begins_with_the_hint():
    """200 queues: none of five seeds had an answer near the relaxation; one near greedy's plan takes 2 s."""
    points, asked = np.array([1, 1, 1, 1]), []
    formulation = Formulation(upper=np.ones(4, dtype=np.int64), objective=points, rows=())
    relaxed, hint, better = np.array([1.0, 1.0, 0.0, 0.0]), np.array([1, 0, 0, 0]), np.array([1, 0, 1, 0])

    class Run:
        params = HighsParams(shares_of_free_columns=(0.25,))
        reduced_costs = np.array([4.0, 3.0, 2.0, 1.0])

        def maximize(self, start, _share, *, fixed):
            asked.append((start, fixed[0].tolist()))
            if start is None:
                return SolverAnswer(SolveStatus.NO_ANSWER)
            return SolverAnswer(SolveStatus.FEASIBLE, better)

        def within_support(self, known):
            return known

        def is_close(self, _points):
            return False

    found = milp._search_near_relaxation(Run(), formulation, hint, relaxed)

    assert found is better
    assert asked == [(None, [0, 1, 2]), (hint, [0, 2])]  # the hint differs in column 1, which is free
