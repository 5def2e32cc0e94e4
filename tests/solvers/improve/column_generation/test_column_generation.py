"""Nodes filled anew by column generation: never worse, never illegal, and the best where it ends in time."""

from __future__ import annotations

import random
import time
from collections import Counter

import numpy as np
import pytest

from gpuplan.models.policy.policy import Policy, Prices
from gpuplan.models.policy.settings import HorizonPolicy
from gpuplan.models.queue import Queue, Quota
from gpuplan.planner.problem_builder import build_problem
from gpuplan.solvers.heuristics import placement
from gpuplan.solvers.heuristics.greedy import greedy
from gpuplan.solvers.improve.column_generation import repack
from gpuplan.solvers.improve.column_generation.subproblem import extract_repack_problem
from gpuplan.solvers.state.ledger import Ledger
from tests.support.builders import build
from tests.support.harness.column_generation_plans import one_by_one, planned
from tests.support.harness.greedy_plans import realized
from tests.support.seeds import EVERY_SEED, examples
from tests.support.strategies import instances


def shares(*milli, **more):
    return [build.job(f"j{index}", milli=each, **more) for index, each in enumerate(milli)]


def test_shares_that_best_fit_spoils_are_packed():
    """370 + 330 + 300 twice; largest first puts 370 and 370 together."""
    jobs = shares(370, 370, 330, 330, 300, 300)
    snapshot = build.snapshot(nodes=[build.node("n0", gpus=2)], jobs=jobs)

    found, plan = planned(snapshot)

    assert len(plan.places) == 6
    assert found.bound == found.after


def test_sizes_that_do_not_divide_are_packed():
    """Nodes of eight: 5 + 3 twice, which three threes on one node would spoil."""
    jobs = [build.job(f"j{index}", gpus=size) for index, size in enumerate((3, 3, 5, 5))]
    snapshot = build.snapshot(nodes=build.cluster(2), jobs=jobs)

    found, plan = planned(snapshot, start=Ledger)

    assert len(plan.places) == 4
    assert found.bound == found.after


def test_scarce_cpu_decides_which_jobs_share_a_node():
    nodes = [build.node(f"n{index}", gpus=2, cpus=20) for index in range(2)]
    jobs = [build.job(f"j{index}", gpus=1, cpus=cpus) for index, cpus in enumerate((16, 16, 4, 4))]
    snapshot = build.snapshot(nodes=nodes, jobs=jobs)

    _, plan = planned(snapshot, start=Ledger)

    assert len(plan.places) == 4


def test_gang_gets_places_on_several_nodes_of_one_model():
    nodes = [
        *(build.node(f"a{index}", gpus=2, model="A100-80GB") for index in range(2)),
        *(build.node(f"h{index}", gpus=1) for index in range(3)),
    ]
    gang = build.job("g", gpus=1, replicas=4, gpu_models={"A100-80GB": 1, build.MODEL: 1})
    snapshot = build.snapshot(nodes=nodes, jobs=[gang, *shares(600, 600, 600)])

    _, plan = planned(snapshot, start=Ledger)

    assert plan.nodes("g") == ["a0", "a0", "a1", "a1"]
    assert len(plan.places) == 4


def test_better_paid_job_takes_the_place_of_a_placed_one():
    problem_jobs = [build.job("low", gpus=8), build.job("high", gpus=8, priority=5)]
    snapshot = build.snapshot(nodes=build.cluster(1), jobs=problem_jobs)
    policy = Policy()
    ledger = Ledger(build_problem(snapshot, policy))
    low = next(i for i, each in enumerate(ledger.problem.classes) if "low" in each.jobs)
    placement.place(ledger, low, ledger.problem.classes[low].options[0], jobs=1)

    repack(ledger, nodes=None, deadline=time.monotonic() + 60, seed=0)

    assert set(realized(snapshot, policy, ledger).places) == {"high"}


def test_quota_of_a_parent_limits_what_children_get():
    queues = (
        Queue(name="root", quota=Quota(nominal=0)),
        Queue(name="a", parent="root", quota=Quota(nominal=2, lending_limit=1)),
        Queue(name="b", parent="root", quota=Quota(nominal=2)),
    )
    jobs = [build.job(f"a{index}", gpus=1, queue="a") for index in range(5)]
    jobs += [build.job(f"b{index}", gpus=1, queue="b") for index in range(5)]
    snapshot = build.snapshot(nodes=build.cluster(1), jobs=jobs, queues=queues)

    found, plan = planned(snapshot, start=Ledger)

    by_queue = Counter(name[0] for name in plan.places)
    assert by_queue.total() == 4
    assert by_queue["b"] <= 3
    assert found.bound == found.after


def test_guarantee_is_met_before_others_are_placed():
    queues = (Queue(name="q"), Queue(name="g", quota=Quota(nominal=100, guarantee=2)))
    jobs = [build.job(f"q{index}", gpus=1, priority=9) for index in range(4)]
    jobs += [build.job(f"g{index}", gpus=1, queue="g") for index in range(4)]
    snapshot = build.snapshot(nodes=[build.node("n0", gpus=4)], jobs=jobs, queues=queues)

    found, plan = planned(snapshot, start=Ledger)

    assert Counter(name[0] for name in plan.places) == {"q": 2, "g": 2}
    assert found.bound == found.after


def test_free_gpus_of_no_use_have_their_price():
    """Two jobs on each node of six leave blocks of four; best fit alone would fill one node."""
    policy = Policy(prices=Prices(fragmentation=50, reference_gpus=4))
    nodes = build.cluster(2, gpus=6)
    jobs = [build.job(f"j{index}", gpus=1) for index in range(4)]

    found, plan = planned(build.snapshot(nodes=nodes, jobs=jobs), policy, start=Ledger)

    assert len(plan.places) == 4
    assert plan.terms.get("fragmentation", 0) == 0
    assert found.bound == found.after


def test_only_the_given_nodes_change():
    nodes = [build.node(f"n{index}", gpus=2) for index in range(3)]
    jobs = shares(600, 600, 600, 600, 400, 400, 400, 400)
    snapshot = build.snapshot(nodes=nodes, jobs=jobs)
    policy = Policy()
    ledger = one_by_one(build_problem(snapshot, policy))
    before = {number: placed for number, placed in ledger.placed.items() if placed.sites[0].node == 0}
    assert before

    repack(ledger, nodes=np.array([1, 2]), deadline=time.monotonic() + 60, seed=0)

    assert before.items() <= ledger.placed.items()


def test_nodes_that_are_not_there_take_no_job():
    """The pool could give another node, which costs more than the job brings."""
    template = build.node("p", gpus=4, price_per_hour=1_000.0)
    jobs = [build.job("a", gpus=2), build.job("b", gpus=4)]
    snapshot = build.snapshot(nodes=[build.node("n0", gpus=2)], jobs=jobs)
    update = {"pools": (build.pool("p", template=template),)}
    snapshot = snapshot.model_copy(update={"cluster": snapshot.cluster.model_copy(update=update)})

    found, plan = planned(snapshot, start=Ledger)

    assert set(plan.places) == {"a"}
    assert found.bound == found.after


def test_later_slots_are_left_alone():
    snapshot = build.snapshot(nodes=build.cluster(1), jobs=[build.job(gpus=1)])
    ledger = Ledger(build_problem(snapshot, Policy(horizon=HorizonPolicy(slots=2))))

    found = repack(ledger, nodes=None, deadline=time.monotonic() + 60, seed=0)

    assert (found.after, found.bound, ledger.placed) == (0, None, {})


def test_no_time_changes_nothing():
    snapshot = build.snapshot(nodes=build.cluster(2), jobs=shares(600, 400))
    ledger = Ledger(build_problem(snapshot, Policy()))

    found = repack(ledger, nodes=None, deadline=time.monotonic() - 1, seed=0)

    assert (found.before, found.after, found.rounds, ledger.placed) == (0, 0, 0, {})


def test_no_job_to_pack_is_proven_at_once():
    found, _ = planned(build.snapshot(nodes=build.cluster(2), jobs=()))

    assert found.bound == found.after == 0


def test_same_question_same_answer():
    snapshot = instances.mixed(7)
    plans = [planned(snapshot, instances.POLICY, start=one_by_one)[1].target for _ in range(2)]

    assert plans[0] == plans[1]


PRICED = ("data", "fragmentation", "guarantees", "overcommit", "sharing")


# --- random instances --------------------------------------------------------------------------------------


@pytest.mark.slow
@pytest.mark.parametrize("chunk", range(4 if EVERY_SEED else 2))
def test_any_plan_stays_legal_and_gets_no_worse(chunk):
    """`realized` asks the verifier, and compares its objective with the ledger's."""
    better = 0
    for seed in range(chunk * 20, chunk * 20 + examples(20)):
        limited = instances.cpu_limited(instances.everything)
        made = [instances.everything(seed), instances.everything_mixed(seed), limited(seed)]
        draw = random.Random(seed)
        for each in made:
            count = len(build_problem(each.snapshot, each.policy).nodes)
            some = sorted(draw.sample(range(count), draw.randint(min(1, count), count)))
            for nodes in (None, some):
                found, _ = planned(each.snapshot, each.policy, nodes=nodes)
                better += found.after > found.before
        for start in (Ledger, greedy):
            found, _ = planned(instances.mixed(seed), instances.POLICY, start=start)
            better += found.after > found.before
    assert better >= examples(10)


@pytest.mark.slow
@pytest.mark.parametrize("chunk", range(4 if EVERY_SEED else 2))
def test_nothing_that_is_packed_at_random_exceeds_the_bound(chunk):
    """With prices of nodes and fragments, guarantees, quotas, and what runs beside."""
    near = 0
    for seed in range(chunk * 20, chunk * 20 + examples(20)):
        for make in (instances.everything, instances.everything_mixed):
            each, draw = make(seed, features=PRICED, share=0.6), random.Random(seed)
            problem = build_problem(each.snapshot, each.policy)
            found = repack(greedy(problem), nodes=None, deadline=time.monotonic() + 60, seed=0)
            for _ in range(4):
                ledger = greedy(problem)
                offers = list(extract_repack_problem(ledger, None).offers)
                draw.shuffle(offers)
                for offer in offers:
                    options = problem.classes[offer.job_class].options
                    placement.place(
                        ledger, offer.job_class, options[offer.options[0]], jobs=draw.randint(1, offer.most)
                    )
                assert ledger.objective <= found.bound, (make, seed)
                near += bool(offers) and ledger.objective == found.bound
    assert near >= 10


def held_directly(ledger, budget):
    """Amounts of a resource by queue, counted job by job."""
    problem, own = ledger.problem, list(budget.own)
    for placed in ledger.placed.values():
        job_class = problem.classes[placed.job_class]
        each = job_class.shape.quota_on(placed.option.gpu_model, budget.resource)
        own[job_class.queue] += each * len(placed.sites)
    for index, incumbent in enumerate(problem.incumbents):
        disruption = ledger.disruptions[index]
        if disruption is not None:
            own[incumbent.queue] -= incumbent.quota_of(budget.resource) * len(disruption.given_up)
    return own


@pytest.mark.slow
def test_what_the_ledger_says_that_queues_hold_is_what_their_jobs_hold():
    seen = 0
    for seed in range(examples(40)):
        make = instances.cpu_limited(instances.everything) if seed % 2 else instances.everything
        each = make(seed)
        ledger = greedy(build_problem(each.snapshot, each.policy))
        for index, budget in enumerate(ledger.problem.budgets):
            assert ledger.queues.quota.held(index) == held_directly(ledger, budget), seed
            seen += ledger.queues.quota.held(index) != list(budget.own)
    assert seen >= 10
