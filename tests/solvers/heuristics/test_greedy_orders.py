"""Orders that greedy tries: none is left out, or given up half-way, that could have been best."""

from __future__ import annotations

import random
from collections import Counter
from dataclasses import replace

import pytest

from gpuplan.models.policy.policy import PriorityOrder, PriorityPolicy
from gpuplan.planner.problem_builder import build_problem
from gpuplan.solvers.heuristics.greedy import _BehindError, _plan, greedy, greedy_orders
from gpuplan.solvers.heuristics.greedy_fill import fill_orders
from gpuplan.solvers.heuristics.placement import is_single_replica
from gpuplan.solvers.params.placement import FillOrder, PlacementParams
from gpuplan.solvers.state.ledger import Ledger
from tests.support.builders import build
from tests.support.strategies import instances

IN_ORDER = PriorityPolicy(order=PriorityOrder.TIERS)
PARAMS = PlacementParams()


def problems(make, seeds):
    """Random problems in which priorities are tiers."""
    for seed in range(seeds):
        instance = make(seed)
        policy = instance.policy.model_copy(update={"priority": IN_ORDER})
        yield seed, build_problem(instance.snapshot, policy)


def placed(ledger):
    return sorted(((each.job_class, each.sites) for each in ledger.placed.values()), key=repr)


@pytest.mark.slow
def test_the_best_of_all_orders_counts_although_those_that_are_behind_are_given_up():
    tally = Counter()
    for seed, problem in problems(instances.everything, 20):
        orders = greedy_orders(problem)
        made = [_plan(problem, order, None, PARAMS) for order in orders]
        best = max(made, key=lambda plan: plan.points)

        found = greedy(problem)

        assert (found.objective, placed(found)) == (best.ledger.objective, placed(best.ledger)), seed
        for order in orders[1:]:
            try:
                _plan(problem, order, None, PARAMS, rival=made[0])
            except _BehindError:
                tally["given up"] += 1
            else:
                tally["made"] += 1
    assert min(tally["given up"], tally["made"]) > 0


def test_a_plan_that_is_behind_for_the_last_priority_only_is_made():
    # Clean-up may still change the points of the last priority, so these do not count before.
    for _, problem in problems(instances.everything, 8):
        first = _plan(problem, greedy_orders(problem)[0], None, PARAMS)
        ahead = replace(first, points=(*first.points[:-1], first.points[-1] + 1))

        again = _plan(problem, first.way, None, PARAMS, rival=ahead)

        assert again.points == first.points


def crowded(draw):
    """A problem with more jobs of a few shapes than fit on its two nodes."""
    shapes = draw.sample([{"milli": 300}, {"milli": 500}, {"milli": 600}, {"gpus": 1}, {"gpus": 2}], 2)
    counts = [draw.choice((1, 1, 6)) for _ in shapes]
    jobs = [
        build.job(f"{kind}-{number}", cpus=draw.randint(1, 2), **shape)
        for kind, (shape, count) in enumerate(zip(shapes, counts, strict=True))
        for number in range(count)
    ]
    nodes = [build.node(f"n{number}", gpus=2, cpus=draw.randint(4, 8)) for number in range(2)]
    return build_problem(build.snapshot(nodes=nodes, jobs=jobs), instances.POLICY)


@pytest.mark.slow
def test_a_fill_order_that_is_left_out_makes_the_same_plan():
    tally = Counter()
    for seed in range(60):
        problem = crowded(random.Random(seed))
        ledger = Ledger(problem)
        singles = [index for index in range(len(problem.classes)) if is_single_replica(ledger, index)]
        tried, way = list(fill_orders(problem, singles)), greedy_orders(problem)[0]
        in_turns = placed(_plan(problem, way, None, PARAMS).ledger)
        for order in FillOrder:
            filled = replace(PARAMS, greedy=replace(PARAMS.greedy, fill_order=order))
            same = placed(_plan(problem, way, None, filled).ledger) == in_turns
            tally[order, order in tried, same] += 1
            assert order in tried or same, (seed, order)
    for order in (FillOrder.LEAST_WASTE, FillOrder.LARGEST_FIRST):
        assert min(tally[order, True, False], tally[order, False, True]) > 0
