"""Small problems of column generation against every assignment of jobs to nodes."""

from __future__ import annotations

import itertools
import random

import pytest

from gpuplan.models.queue import Queue, Quota
from gpuplan.planner.problem_builder import build_problem
from gpuplan.solvers.state.ledger import Ledger
from tests.support.builders import build
from tests.support.harness.column_generation_plans import one_by_one, planned
from tests.support.oracles.share_packing import packs

pytestmark = pytest.mark.slow


def small(seed):
    """Two nodes and six jobs of one replica, with CPU that binds and a quota."""
    draw = random.Random(seed)
    nodes = [
        build.node(f"n{index}", gpus=draw.choice((1, 2, 3)), cpus=draw.choice((8, 16, 24)))
        for index in range(2)
    ]
    jobs = []
    for index in range(6):
        request = draw.choice(({"milli": 300}, {"milli": 470}, {"milli": 530}, {"gpus": 1}, {"gpus": 2}, {}))
        jobs.append(
            build.job(
                f"j{index}",
                **request,
                cpus=draw.choice((1, 4, 7, 9)),
                priority=draw.choice((0, 0, 1, 3)),
                queue=draw.choice(("a", "b")),
            )
        )
    quota = Quota(nominal=draw.choice((1, 2, 100)))
    return build.snapshot(nodes=nodes, jobs=jobs, queues=(Queue(name="a", quota=quota), Queue(name="b")))


def best_by_trying(snapshot):
    """The best of all assignments of jobs to nodes, whatever order they are placed in."""
    problem = build_problem(snapshot, build.by_value(priority=build.BY_WEIGHT))
    jobs = [index for index, each in enumerate(problem.classes) for _ in each.jobs]
    return max(
        value
        for where in itertools.product((None, 0, 1), repeat=len(jobs))
        if (value := worth(problem, jobs, where)) is not None
    )


def worth(problem, jobs, where):
    """Points of an assignment; None if a node or a queue holds too much."""
    points = 0
    for node in range(len(problem.nodes)):
        there = [problem.classes[index] for index, at in zip(jobs, where, strict=True) if at == node]
        for resource, free in enumerate(problem.nodes[node].amounts):
            if sum(each.shape.amounts[resource] for each in there) > free:
                return None
        whole = sum(each.shape.gpus for each in there)
        milli = tuple(sorted(each.shape.gpu_milli for each in there if each.shape.gpu_milli))
        if whole > len(problem.nodes[node].gpus):
            return None
        if not packs(milli, len(problem.nodes[node].gpus) - whole):
            return None
        points += sum(each.points(each.options[0], 1) for each in there)
    for budget in problem.budgets:
        own = [0] * len(problem.queues)
        for index, at in zip(jobs, where, strict=True):
            if at is not None:
                own[problem.classes[index].queue] += problem.classes[index].shape.quota_milli
        for used, limit in zip(budget.usage_up_the_tree(own), budget.limit, strict=True):
            if limit is not None and used > limit:
                return None
    return points


@pytest.mark.parametrize("chunk", range(4))
def test_small_questions_are_answered_as_by_trying_everything(chunk):
    reached, seeds = 0, range(chunk * 10, chunk * 10 + 10)
    for seed in seeds:
        snapshot = small(seed)
        best = best_by_trying(snapshot)
        for start in (Ledger, one_by_one):
            found, _ = planned(snapshot, start=start)
            assert found.after <= best <= found.bound, seed
            reached += found.after == best
    assert reached >= 2 * len(seeds) - 1
