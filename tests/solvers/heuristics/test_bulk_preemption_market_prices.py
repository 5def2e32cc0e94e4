"""What GPUs would fetch: the price at which demand is no more than there is."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpuplan.models.policy.policy import Policy
from gpuplan.models.problem.jobs import ClassRole
from gpuplan.planner.problem_builder import build_problem
from gpuplan.solvers.heuristics.bulk_preemption import MarketPrices
from gpuplan.solvers.state.ledger import Ledger
from tests.support.builders import build
from tests.support.strategies import instances

NODES = [
    build.node(f"{model}-{index}", model=model) for model in ("A100-80GB", "H100-80GB") for index in "ab"
]


def market(*jobs, nodes=NODES):
    problem = build_problem(build.snapshot(nodes=nodes, jobs=jobs), Policy())
    return problem, MarketPrices(Ledger(problem))


def net(problem, prices, name, model):
    index = next(at for at, each in enumerate(problem.classes) if name in each.jobs)
    option = next(each for each in problem.classes[index].options if each.gpu_model == model)
    return prices.points_above_price(index, option)


def test_what_there_is_enough_of_is_free_of_charge():
    problem, prices = market(build.job("a", gpus=8), build.job("b", gpus=8))

    for name in "ab":
        assert net(problem, prices, name, "H100-80GB") == problem.classes[0].most_points


def test_scarce_model_costs_more():
    jobs = [build.job(f"h{index}", gpus=8, gpu_models={"H100-80GB": 1}, priority=5) for index in range(4)]
    problem, prices = market(*jobs, build.job("any", gpus=8))

    assert net(problem, prices, "any", "A100-80GB") > net(problem, prices, "any", "H100-80GB")
    assert net(problem, prices, "h0", "H100-80GB") >= 0


def test_job_worth_less_than_those_that_get_the_gpus_does_not_pay():
    jobs = [build.job(f"j{index}", gpus=8, priority=5) for index in range(5)]
    problem, prices = market(*jobs, build.job("low", gpus=8))
    pays = {
        name: prices.is_worth_price(index) for index, each in enumerate(problem.classes) for name in each.jobs
    }

    assert pays == dict.fromkeys(pays, True) | {"low": False}


def test_running_job_keeps_the_price_at_what_it_is_worth():
    """Its GPUs are for sale, so that the waiting job need not pay more than it loses."""
    running = build.job("r", gpus=8, at=[build.replica("n0", gpus=range(8))], checkpoint_duration=60)
    problem, prices = market(running, build.job("a", gpus=8, priority=9), nodes=build.cluster(1))
    (incumbent,) = problem.incumbents

    assert prices.market_value(incumbent) == pytest.approx(-incumbent.stop_points)


@pytest.mark.slow
@given(seed=st.integers(0, 10**6), divisible=st.booleans())
def test_demand_above_the_price_is_no_more_than_there_is(seed, divisible):
    """With one model: what is free, and what is held by jobs that are worth no more than the price."""
    kind = instances.everything if divisible else instances.everything_mixed
    instance = kind(seed, features=("drain", "sharing", "guarantees"))
    problem = build_problem(instance.snapshot, instance.policy)
    if len({group.gpu_model for group in problem.groups} - {None}) != 1:
        return
    prices = MarketPrices(Ledger(problem))
    asked = sum(
        job_class.shape.quota_milli * job_class.ordering_size * len(job_class.jobs)
        for index, job_class in enumerate(problem.classes)
        if job_class.role is ClassRole.START and job_class.shape.quota_milli
        if any(
            prices.points_above_price(index, option) > 1e-6 and option.gpu_model
            for option in job_class.options
        )
    )
    held = sum(
        incumbent.shape.quota_milli * len(incumbent.holds)
        for incumbent in problem.incumbents
        if incumbent.stop_points is not None
        and -incumbent.stop_points <= prices.market_value(incumbent) + 1e-6
    )

    assert asked <= sum(sum(node.gpus) for node in problem.nodes) + held
