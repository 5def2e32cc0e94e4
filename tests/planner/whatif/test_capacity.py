"""The cheapest nodes beside which jobs run: against trying every mix, and case by case."""

from __future__ import annotations

import functools
from collections import Counter

import pytest

from gpuplan.models.plan.reason import ReasonCode
from gpuplan.models.policy.policy import BudgetMode, BudgetPolicy, Policy
from gpuplan.planner.epoch import plan_epoch
from gpuplan.planner.render.style import Style
from gpuplan.planner.render.whatif.answers import capacity_text
from gpuplan.planner.whatif import capacity
from gpuplan.planner.whatif.capacity import find_cheapest_nodes
from tests.support.builders.build import NOW, job, node, pool, queue, replica, snapshot
from tests.support.oracles import fit_oracle
from tests.support.strategies import instances

POLICY = Policy(budget=BudgetPolicy(mode=BudgetMode.DETERMINISTIC))
FEATURES = ("anti_affinity", "filters", "mig", "overcommit", "power", "racks", "sharing", "spread")


def sized(world, *jobs, policy=POLICY, **more):
    return find_cheapest_nodes(world, policy, jobs, seed=0, **more)


def priced(name, price, *, gpus=4, most=4, **more):
    return pool(name, template=node(name, gpus=gpus, price_per_hour=price), most=most, **more)


def mix(found):
    return {each.pool: each.nodes for each in found.pools}


def asked(seed):
    """A tiny instance with pools, two jobs of it, and the cheapest nodes; None if that is too much to try."""
    made = instances.tiny(seed)
    if "pools" not in made.features:
        return None
    jobs = [each for each in made.snapshot.jobs if not each.running][:2]
    policy = made.policy.model_copy(
        update={"budget": POLICY.budget, "pools": POLICY.pools, "interference": ()}
    )
    try:
        return made.snapshot, policy, jobs, fit_oracle.cheapest_nodes(made.snapshot, policy, jobs)
    except fit_oracle.TooLargeError:
        return None


@functools.cache
def cases():
    return [(seed, case) for seed in range(110) if (case := asked(seed))]


@pytest.mark.slow
def test_no_mix_is_cheaper_than_the_one_found():
    tried = cases()
    grown = impossible = 0
    for seed, (world, policy, jobs, best) in tried:
        found = sized(world, *jobs, policy=policy)

        if best is None:
            assert found.cannot, seed
            impossible += 1
            continue
        cost, nodes = best
        assert not found.cannot, seed
        assert found.hourly_cost_at_least <= cost <= found.hourly_cost, seed
        assert found.proven, seed
        assert (found.hourly_cost, sum(mix(found).values())) == (cost, nodes.total()), seed
        grown += bool(nodes)
    assert len(tried) >= 20
    assert grown >= 5
    assert impossible >= 3


@pytest.mark.slow
def test_with_one_node_fewer_some_job_waits():
    checked = 0
    for seed, (world, policy, jobs, best) in cases():
        if best is None or not best[1]:
            continue
        [found] = sized(world, *jobs, policy=policy).pools
        [grown] = world.cluster.pools
        fewer = grown.model_copy(update={"maximum": max(grown.minimum, found.members + found.nodes - 1)})
        cluster = world.cluster.model_copy(update={"pools": (fewer,)})
        smaller = world.model_copy(update={"cluster": cluster})

        assert fit_oracle.cheapest_nodes(smaller, policy, jobs) is None, seed
        checked += 1
    assert checked >= 5


def test_the_cheapest_mix_of_pools_is_found():
    waiting = [job("big", gpus=4), job("small", gpus=2), job("other", gpus=2)]
    world = snapshot(nodes=[], jobs=waiting, pools=[priced("four", 5), priced("two", 2, gpus=2)])

    found = sized(world, *waiting)

    assert mix(found) == {"four": 1, "two": 2}
    assert (found.hourly_cost, found.hourly_cost_at_least, found.proven) == (9, 9, True)


def spot(interruptions, **more):
    """A pool of cheap nodes that may be taken back."""
    template = node("spot", gpus=8, price_per_hour=4.0, spot=True)
    return pool("spot", template=template, interruptions_per_hour=interruptions, **more)


@pytest.mark.parametrize(
    ("interruptions", "pools", "costs", "lost"),
    [(0, {"spot": 1}, 4, 0), (3, {"spot": 1}, 4, 2), (9, {"spot": 1}, 4, 6), (30, {"priced": 1}, 12, 0)],
)
def test_interruptions_are_priced_as_a_plan_prices_them(interruptions, pools, costs, lost):
    """Five minutes of eight GPUs are lost each time, at the price of a unit of currency for a GPU-hour."""
    world = snapshot(
        nodes=[], jobs=[job("a", gpus=8)], pools=[spot(interruptions), priced("priced", 12, gpus=8)]
    )
    planned = plan_epoch(world.model_copy(update={"jobs": (rich(),)}), POLICY, seed=0, created_at=NOW)

    found = sized(world, *world.jobs)

    assert mix(found) == pools
    assert Counter(action.pool for action in planned.actions if action.type == "scale_up") == pools
    assert (found.hourly_cost, found.hourly_interruption_cost) == (costs, lost)
    assert (found.hourly_cost_at_least, found.proven, found.gap) == (costs + lost, True, 0)


def rich():
    """A job that is worth any node."""
    return job("a", gpus=8, priority=1000)


def test_what_interruptions_are_expected_to_lose_is_told_beside_the_price():
    world = snapshot(nodes=[], jobs=[job("a", gpus=8)], pools=[spot(3)])

    text = capacity_text(sized(world, *world.jobs), Style(width=80))

    assert "for 4.00 an hour" in text
    assert "spot      1          4.00           2.00      6.00" in text
    assert "interruptions are expected to" in text


def test_of_equally_dear_mixes_the_one_with_fewer_nodes_is_taken():
    waiting = [job(f"j{index}", gpus=2) for index in range(4)]
    pools = [priced("a-two", 2, gpus=2), priced("b-eight", 8, gpus=8), priced("c-two", 2, gpus=2)]

    found = sized(snapshot(nodes=[], jobs=waiting, pools=pools), *waiting)

    assert mix(found) == {"b-eight": 1}
    assert found.proven


def test_nodes_that_cost_nothing_are_added_as_few_as_possible():
    waiting = [job("a", gpus=2), job("b", gpus=2)]

    assert mix(sized(snapshot(nodes=[], jobs=waiting, pools=[priced("free", 0)]), *waiting)) == {"free": 1}


def test_prices_in_small_coins_are_told_apart():
    waiting = [job(f"j{index}", gpus=4) for index in range(3)]
    world = snapshot(nodes=[], jobs=waiting, pools=[priced("a", 1.0004), priced("b", 1.0003)])

    found = sized(world, *waiting)

    assert mix(found) == {"b": 3}
    assert found.proven


@pytest.mark.parametrize(("dear", "cheap"), [(1.000002, 1.000001), (1.00019, 1.00009)])
def test_prices_that_points_cannot_tell_apart_prove_nothing(dear, cheap):
    waiting = [job(f"j{index}", gpus=4) for index in range(3)]
    world = snapshot(nodes=[], jobs=waiting, pools=[priced("a", dear), priced("b", cheap)])

    found = sized(world, *waiting)

    assert not found.proven
    assert found.hourly_cost_at_least <= 3 * cheap <= found.hourly_cost


@pytest.mark.slow
def test_where_points_do_not_count_nodes_fewer_may_do():
    waiting = [job(f"j{index}", gpus=1) for index in range(100)]
    dear = [priced("p", 100.0001, gpus=50, most=100), priced("q", 200.0002, gpus=100, most=100)]

    with_nodes = sized(snapshot(nodes=[], jobs=waiting, pools=dear), *waiting)
    without = sized(snapshot(nodes=[node("n0", gpus=100)], jobs=waiting, pools=dear), *waiting)

    assert (with_nodes.hourly_cost, with_nodes.hourly_cost_at_least) == (200.0002, 200.0002)
    assert not with_nodes.proven
    assert "though fewer may do" in capacity_text(with_nodes, Style(width=200))
    assert (without.pools, without.proven) == ((), True)


@pytest.mark.parametrize(("replicas", "proven"), [(100, True), (1000, False)])
def test_that_no_nodes_help_is_proven_only_if_a_job_can_be_worth_more_than_all_of_them(replicas, proven):
    giant = job("giant", gpus=8, replicas=replicas)
    world = snapshot(nodes=[], jobs=[giant], pools=[priced("p", 1_000_000, most=1000)])

    found = sized(world, giant)

    assert [each.job for each in found.cannot] == ["giant"]
    assert found.cannot_proven == proven


def test_more_room_than_there_are_replicas_makes_prices_no_coarser():
    waiting = [job(f"j{index}", gpus=4) for index in range(3)]
    world = snapshot(nodes=[], jobs=waiting, pools=[priced("dear", 98.32, gpus=8), priced("cheap", 0.0376)])

    found = sized(world, *waiting, most=100_000)

    assert mix(found) == {"cheap": 3}
    assert found.proven


def test_what_is_free_is_used_first():
    waiting = [job("a", gpus=4), job("b", gpus=4)]
    world = snapshot(nodes=[node("n0", gpus=4)], jobs=waiting, pools=[priced("p", 1)])

    found = sized(world, *waiting)

    assert mix(found) == {"p": 1}
    assert {nodes[0] for nodes in found.placed.values()} == {"n0", "p-1"}


def test_no_job_is_disturbed():
    low = job("low", gpus=4, at=[replica("n0", gpus=range(4))])
    high = job("high", gpus=4, priority=100)
    world = snapshot(nodes=[node("n0", gpus=4)], jobs=[low, high], pools=[priced("p", 1000)])

    assert mix(sized(world, high)) == {"p": 1}


def test_not_even_a_borrower_is_disturbed():
    borrower = job("borrower", gpus=4, queue="lent", at=[replica("n0", gpus=range(4))])
    owner = job("owner", gpus=4, queue="owning")
    queues = [queue("all"), queue("lent", parent="all", nominal=0), queue("owning", parent="all", nominal=8)]
    world = snapshot(
        nodes=[node("n0", gpus=4)], jobs=[borrower, owner], pools=[priced("p", 1000)], queues=queues
    )

    assert mix(sized(world, owner)) == {"p": 1}


def test_pools_may_be_taken_beyond_their_maximum():
    waiting = [job(f"j{index}", gpus=4) for index in range(3)]
    world = snapshot(
        nodes=[node("m", gpus=4, pool="p", cordoned=True)], jobs=waiting, pools=[priced("p", 1, most=2)]
    )

    within, beyond = sized(world, *waiting), sized(world, *waiting, most=5)

    assert len(within.cannot) == 2
    assert within.cannot_proven
    assert mix(beyond) == {"p": 3}
    assert beyond.pools[0].beyond == 2
    assert not beyond.cannot


def test_what_no_nodes_help_is_told_with_its_reason():
    waiting = [job("fits", gpus=1), job("giant", gpus=16), job("capped", gpus=2, queue="r")]
    world = snapshot(nodes=[], jobs=waiting, pools=[priced("p", 1)], queues=[queue(), queue("r", nominal=1)])

    found = sized(world, *waiting)

    assert {each.job: each.reason.code for each in found.cannot} == {
        "giant": ReasonCode.NO_MATCHING_NODE,
        "capped": ReasonCode.EXCEEDS_MAX_QUOTA,
    }
    assert found.runs == ("fits",)
    assert found.cannot_proven


def test_without_pools_only_what_is_free_helps():
    waiting = [job("a", gpus=8), job("b", gpus=8)]

    found = sized(snapshot(nodes=[node("n0")], jobs=waiting), *waiting)

    assert (len(found.runs), len(found.cannot), found.pools) == (1, 1, ())


@pytest.mark.parametrize(
    ("waiting", "words"),
    [
        ((), "No job waits that is not held."),
        ((job("a", gpus=9),), "No nodes of the pools help.\n\n1 job cannot run:"),
        ((job("a", gpus=9), job("b", gpus=9)), "No nodes of the pools make any of the jobs run.\n\n2 jobs"),
    ],
)
def test_where_no_job_runs_the_answer_says_so(waiting, words):
    found = sized(snapshot(nodes=[node("n0")], jobs=waiting), *waiting)

    assert capacity_text(found, Style(width=80)).startswith(words)


def test_jobs_that_run_need_nothing():
    running = job("r", gpus=8, at=[replica("n0", gpus=range(8))])

    found = sized(snapshot(nodes=[node("n0")], jobs=[running], pools=[priced("p", 1)]), running)

    assert (found.runs, found.pools, found.cannot) == (("r",), (), ())


def test_what_is_not_proven_is_not_said_to_be(monkeypatch):
    def unproven(*arguments, **more):
        plan = plan_epoch(*arguments, **more)
        solution = plan.solution.model_copy(update={"bound": plan.solution.objective + doubt})
        return plan.model_copy(update={"solution": solution})

    monkeypatch.setattr(capacity, "plan_epoch", unproven)
    waiting = [job(f"j{index}", gpus=4) for index in range(3)]
    world = snapshot(nodes=[], jobs=waiting, pools=[priced("p", 10)])

    # A price of 10 is 50 points: five for each unit, as at most four nodes may be added.
    doubt = 3
    nearly = sized(world, *waiting)
    doubt = 60
    unsure = sized(world, *waiting)

    assert (nearly.proven, nearly.hourly_cost, nearly.hourly_cost_at_least) == (False, 30, 30)
    assert (unsure.proven, unsure.hourly_cost) == (False, 30)
    assert 15 <= unsure.hourly_cost_at_least < 20
    assert "though fewer may do" in capacity_text(nearly, Style(width=200))
    assert "an hour does (proven): the gap is" in capacity_text(unsure, Style(width=200))
