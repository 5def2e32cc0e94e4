"""The model of a stage as a part of the whole model: as good as the stage's own, in terms of the stage."""

from __future__ import annotations

import pickle
import time
from collections import Counter
from dataclasses import replace
from functools import partial

import pytest

from gpuplan.models.plan.solution import DesiredState, SolveStatus
from gpuplan.models.policy.policy import Disruption, PriorityOrder, PriorityPolicy
from gpuplan.planner.problem_builder import build_problem
from gpuplan.solvers import SOLVERS
from gpuplan.solvers.heuristics.greedy import greedy
from gpuplan.solvers.interface import Budget
from gpuplan.solvers.params.exact import ExactParams, SolverChildParams
from gpuplan.solvers.params.search import SearchParams
from gpuplan.solvers.priority_stages import stage_part, stage_problem
from gpuplan.solvers.rounding.disaggregate import disaggregate
from gpuplan.solvers.shared_model import WholeModel, hold_model
from gpuplan.solvers.solver_child import RELAXATION, SolverTask, solve_block_model
from gpuplan.solvers.targets.to_target import target_of
from tests.support.builders import build
from tests.support.oracles.priority_oracle import world
from tests.support.seeds import EVERY_SEED
from tests.support.strategies import instances
from tests.support.strategies.random_targets import judged

SEEDS = 300 if EVERY_SEED else 24
IN_ORDER = PriorityPolicy(order=PriorityOrder.TIERS)
APART = SearchParams(exact=ExactParams(child=SolverChildParams(few_choices=0)))
"""Every stage in a worker."""


def worlds():
    """(snapshot, policy) with several priorities: crowded ones, and ones with a bit of all."""
    for seed in range(SEEDS):
        yield world(seed), build.by_value(priority=IN_ORDER, disruption=Disruption(preempt=seed % 3 > 0))
        instance = instances.tiny(seed)
        yield instance.snapshot, instance.policy.model_copy(update={"priority": IN_ORDER})


def answered(problem, snapshot, check, part):
    """(best points, bound of the relaxation) of the exact solver, the answer placed and verified."""
    idle = DesiredState(tuple(sorted(snapshot.running_placements, key=lambda each: each.job)))
    reports = []
    budget = Budget(time.monotonic() + 60.0, ticks=20)
    question = SolverTask(problem, idle, idle, SOLVERS["milp"], relax=True, part=part)
    finding = solve_block_model(question, budget, reports.append)
    assert finding.status is SolveStatus.OPTIMAL
    assert finding.fault == ""
    placed, _ = disaggregate(problem, finding.aggregate)
    assert not check(target_of(placed, snapshot.running_placements)).violations
    (relaxed,) = (each for each in reports if each.stage == RELAXATION and each.final)
    return finding.found, relaxed.proven


@pytest.mark.slow
def test_part_of_the_whole_model_is_as_good_as_the_stages_own():
    tally = Counter()
    for snapshot, policy in worlds():
        problem = build_problem(snapshot, policy)
        if problem.slots > 1:
            continue
        problem = replace(problem, floors=tuple(greedy(problem).served.items()))
        whole = WholeModel(problem, SearchParams().formulation)
        for priority in problem.priorities:
            part = stage_part(whole, problem, priority)
            if part is None:
                tally["none"] += 1
                continue
            alone = stage_problem(problem, priority)
            check = partial(judged, snapshot, policy)
            points, bound = answered(alone, snapshot, check, None)
            again, own_bound = answered(alone, snapshot, check, part)

            assert again == points
            assert own_bound >= points <= bound
            tally["smaller" if len(alone.classes) < len(problem.classes) else "last"] += 1
    assert tally["smaller"] >= SEEDS // 2, tally
    assert tally["last"] >= SEEDS // 2, tally


def test_stage_with_jobs_that_are_worth_nothing_has_a_model_of_its_own():
    jobs = [build.job("high", gpus=8, priority=5), build.job("low", queue="owed", gpus=8, priority=1)]
    queues = [build.queue("q", nominal=8), build.queue("owed", nominal=8, guarantee=8)]
    snapshot = build.snapshot(nodes=build.cluster(2), jobs=jobs, queues=queues)
    problem = build_problem(snapshot, build.by_value(priority=IN_ORDER))
    whole = WholeModel(problem, SearchParams().formulation)

    assert stage_part(whole, problem, 5) is None
    assert stage_part(whole, problem, 1) is not None


def test_another_process_gets_the_model_that_it_holds_and_no_other():
    snapshot = world(1)
    problem = build_problem(snapshot, build.by_value(priority=IN_ORDER))
    params = SearchParams().formulation
    one, other = WholeModel(problem, params), WholeModel(problem, params)

    hold_model(*pickle.loads(pickle.dumps((one.name, problem, params))))
    found, missing = pickle.loads(pickle.dumps((one, other)))

    assert found.name == one.name
    assert missing is None
    assert len(found.formulation.rows) == len(one.formulation.rows)
