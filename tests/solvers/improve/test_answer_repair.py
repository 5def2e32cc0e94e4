"""Repair of placed answers: jobs that best fit misses find their places, and no rule is broken."""

from __future__ import annotations

import random
import time
from collections import Counter

import numpy as np
import pytest

from gpuplan.models.formulation import formulate
from gpuplan.models.formulation.columns import Columns
from gpuplan.models.formulation.decode import Aggregate, decode
from gpuplan.models.formulation.encode import encode
from gpuplan.models.plan.solution import DesiredState
from gpuplan.models.policy.policy import PriorityOrder, PriorityPolicy
from gpuplan.solvers.exact import milp
from gpuplan.solvers.improve.answer_repair import repair_answer
from gpuplan.solvers.interface import Budget, PlacedAnswer
from gpuplan.solvers.rounding.disaggregate import disaggregate
from gpuplan.solvers.targets.to_target import target_of
from tests.support.builders import build
from tests.support.builders.aggregate_builders import Question
from tests.support.strategies.random_targets import judged

SECONDS = 30.0
BY_WEIGHT = build.by_value(priority=PriorityPolicy(order=PriorityOrder.WEIGHTS))


def repaired(problem, running, aggregate, points):
    """The plan as placed, the last repaired one (or None), and what that lacks."""
    ledger, _ = disaggregate(problem, aggregate)
    placed, reports = target_of(ledger, running), []
    answer = PlacedAnswer(aggregate, points, placed)
    repair_answer(problem, running, answer, Budget(time.monotonic() + SECONDS, ticks=1), reports.append)
    return ledger, placed, reports[-1] if reports else None


def test_jobs_that_found_no_place_get_one_when_others_move():
    """Of sizes 4, 3, 3, 2, 2, 2 on two nodes of eight GPUs best fit leaves one out: 4 and 3 come together."""
    sizes = {"a": 4, "b": 3, "c": 3, "d": 2, "e": 2, "f": 2}
    jobs = [build.job(name, gpus=size) for name, size in sizes.items()]
    question = Question(build.snapshot(nodes=build.cluster(2), jobs=jobs))
    counts = Counter(question.job_class(name) for name in sizes)
    names = {index: question.problem.classes[index].jobs[0] for index in counts}
    aggregate = Aggregate(
        batches=tuple(question.batch((names[index], jobs), n0_n1=jobs) for index, jobs in counts.items())
    )
    worth = sum(jobs * question.problem.classes[index].options[0].points for index, jobs in counts.items())

    ledger, _, found = repaired(question.problem, (), aggregate, worth)

    assert len(ledger.placed) == len(sizes) - 1
    assert {placement.job for placement in found.target.placements} == set(sizes)
    assert found.lacking == 0


def crowd(seed):
    """Four nodes that are nearly full, and more jobs of sizes that do not divide each other than fit."""
    draw, nodes, jobs = random.Random(seed), build.cluster(4), []
    for node in nodes:
        start = 0
        while start < 7:
            size = draw.randint(1, min(4, 8 - start))
            if draw.random() < 0.6:
                at = [build.replica(node.name, gpus=range(start, start + size))]
                jobs.append(build.job(f"r{len(jobs)}", gpus=size, priority=draw.randint(0, 3), at=at))
            start += size
    for number in range(14):
        priority, weight = draw.randint(0, 5), draw.randint(1, 3)
        jobs.append(build.job(f"w{number}", gpus=draw.randint(1, 6), priority=priority, weight=weight))
    return build.snapshot(nodes=nodes, jobs=jobs)


@pytest.mark.slow
def test_repaired_answers_are_legal_and_better():
    better = 0
    for seed in range(25):
        question = Question(crowd(seed), BY_WEIGHT)
        running = question.snapshot.running_placements
        x = Columns(question.problem)
        formulation = formulate(question.problem, x)
        idle = encode(x, DesiredState(running))
        answer = milp.solve(formulation, Budget(time.monotonic() + SECONDS, ticks=5), idle, lambda _: None)
        points = formulation.points(answer.values) - formulation.points(idle)

        _, placed, found = repaired(question.problem, running, decode(x, answer.values), points)

        if found is not None:
            before = judged(question.snapshot, question.policy, placed)
            after = judged(question.snapshot, question.policy, found.target)
            assert after.violations == ()
            assert before.objective < after.objective <= points
            better += 1
    assert better > 0


def test_search_from_a_known_answer_ends_once_it_has_enough_points():
    jobs = [build.job(f"j{number}", gpus=1, weight=number + 1) for number in range(6)]
    question = Question(build.snapshot(nodes=build.cluster(1), jobs=jobs))
    x = Columns(question.problem)
    formulation = formulate(question.problem, x)
    best = milp.solve(formulation, Budget(time.monotonic() + SECONDS), np.zeros(len(x.upper)), lambda _: None)
    most = formulation.points(best.values)

    for enough in (0, most, 2 * most):
        hint = np.zeros(len(x.upper), dtype=np.int64)
        answer = milp.improve(formulation, Budget(time.monotonic() + SECONDS), hint, enough=enough)

        assert formulation.points(answer.values) >= min(enough, most)
        assert not formulation.violated_rows(answer.values)
        assert answer.bound is None
