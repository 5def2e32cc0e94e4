"""Limits and guarantees of queues in the problem."""

from __future__ import annotations

from tests.support.builders import build
from tests.support.builders.problem_builders import posed


def test_limit_below_what_runs_is_raised_to_it():
    running = build.job("r", at=[build.replica("n0", gpus=range(4))])

    (budget,) = posed(queues=[build.queue("q", nominal=3)], jobs=[running]).budgets

    assert (budget.limit, budget.own) == ((4000,), (4000,))


def test_a_queue_is_owed_its_guarantee_as_far_as_it_and_those_below_ask():
    queues = [
        build.queue("all"),
        build.queue("a", parent="all", nominal=8, guarantee=6),
        build.queue("b", parent="a"),
        build.queue("c", parent="all", nominal=8, guarantee=2),
        build.queue("d", parent="all", nominal=8, guarantee=2),
    ]
    jobs = [
        build.job("r", gpus=1, queue="b", at=[build.replica("n0", gpus=(0,))]),
        build.job("w", gpus=1, queue="b", replicas=(1, 3)),
        build.job("h", gpus=4, queue="b", held=True),
        build.job("x", gpus=2, replicas=(1, 4), queue="c"),
        build.job("z", gpus=8, queue="d"),
        build.job("y", cpus=8, queue="d"),
    ]

    problem = posed(queues=queues, jobs=jobs)

    assert [
        (found.resource, [problem.queues[index] for index in found.queues], found.owed, found.own)
        for found in problem.guarantees
    ] == [("", ["a", "b"], 4000, 1000), ("", ["c"], 2000, 0)]


def test_a_guarantee_of_one_model_counts_demand_that_may_use_it():
    quota = {"nominal": 8, "guarantee": 8}
    queues = [build.queue("q").model_validate({"name": "q", "gpu_models": {build.MODEL: quota}})]
    nodes = [build.node("a"), build.node("t", model="T4")]
    jobs = [
        build.job("any", gpus=1),
        build.job("named", gpus=2, gpu_models={build.MODEL: 1, "T4": 1}),
        build.job("other", gpus=4, gpu_models={"T4": 1}),
        build.job("runs", gpus=1, at=[build.replica("t", gpus=(0,))]),
        build.job("here", gpus=1, at=[build.replica("a", gpus=(0,))]),
    ]

    (found,) = posed(queues=queues, nodes=nodes, jobs=jobs).guarantees

    assert (found.resource, found.owed, found.own) == (build.MODEL, 4000, 1000)
