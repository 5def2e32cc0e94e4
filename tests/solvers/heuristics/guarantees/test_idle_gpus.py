"""GPUs that are idle while a guarantee is unmet."""

from __future__ import annotations

from dataclasses import replace

import pytest

from benchmarks.sizes import SIZES, made_up
from gpuplan.models.policy.policy import Policy
from gpuplan.planner.problem_builder import build_problem
from gpuplan.solvers.heuristics import placement, vacate
from gpuplan.solvers.heuristics.greedy import greedy
from gpuplan.solvers.heuristics.greedy_fill import fill_free_capacity
from gpuplan.solvers.heuristics.guarantees.idle_gpus import use_idle_gpus
from gpuplan.solvers.params.placement import GreedyParams, PlacementParams
from gpuplan.solvers.state.ledger import Ledger
from gpuplan.solvers.targets.to_target import target_of
from tests.support.builders import build
from tests.support.harness.greedy_plans import plan
from tests.support.strategies import reclaim_worlds
from tests.support.strategies.random_targets import judged

OWED = [build.queue("owed", nominal=4, guarantee=4), build.queue("other")]


def started(ledger, snapshot):
    """Names of the jobs that run, in a plan that breaks no rule."""
    target = target_of(ledger, snapshot.running_placements)
    assert judged(snapshot, Policy(), target).violations == ()
    return {each.job for each in target.placements}


def light(count):
    return [build.job(f"light{number}", gpus=1, cpus=2, queue="owed") for number in range(count)]


def test_a_start_that_uses_up_the_cores_gives_way_to_jobs_that_use_all_gpus():
    heavy = build.job("heavy", gpus=2, cpus=8, queue="owed", weight=5.0)
    snapshot = build.snapshot(nodes=[build.node(gpus=4, cpus=8)], jobs=[heavy, *light(4)], queues=OWED)
    ledger = Ledger(build_problem(snapshot, Policy()))
    fill_free_capacity(ledger)
    assert started(ledger, snapshot) == {"heavy"}

    assert use_idle_gpus(ledger)

    assert started(ledger, snapshot) == {f"light{number}" for number in range(4)}


def test_it_starts_elsewhere_if_there_is_room():
    heavy = build.job("heavy", gpus=2, cpus=8, queue="other", weight=50.0)
    nodes = [build.node("n0", gpus=4, cpus=8), build.node("n1", gpus=2, cpus=8, model="other")]
    snapshot = build.snapshot(nodes=nodes, jobs=[heavy, *light(4)], queues=OWED)
    ledger = Ledger(build_problem(snapshot, Policy()))
    index = next(at for at, each in enumerate(ledger.problem.classes) if each.jobs == ("heavy",))
    option = next(each for each in ledger.problem.classes[index].options if 0 in each.groups)
    assert ledger.settle(index, option, [ledger.take_site_on(index, 0)], jobs=1)

    assert use_idle_gpus(ledger)

    assert started(ledger, snapshot) == {"heavy", *(f"light{number}" for number in range(4))}


def test_a_running_job_that_uses_up_the_cores_gives_way():
    there = [build.replica("n0", gpus=range(2))]
    heavy = build.job("heavy", gpus=2, cpus=8, queue="owed", weight=0.1, at=there)
    urgent = [each.model_copy(update={"priority": 1}) for each in light(4)]
    snapshot = build.snapshot(nodes=[build.node(gpus=4, cpus=8)], jobs=[heavy, *urgent], queues=OWED)
    ledger = Ledger(build_problem(snapshot, Policy()))

    assert use_idle_gpus(ledger)

    assert started(ledger, snapshot) == {f"light{number}" for number in range(4)}


def test_a_start_moves_to_places_that_only_jobs_of_its_priority_may_take():
    """The job of low priority may not follow the preempted one, but may take what was free before."""
    there = [build.replica("n0", gpus=range(4))]
    victim = build.job("victim", gpus=4, queue="other", weight=0.1, at=there)
    high = build.job("high", gpus=4, queue="other", priority=5)
    low = build.job("low", gpus=4, queue="owed")
    nodes = [build.node("n0", gpus=4), build.node("n1", gpus=4)]
    snapshot = build.snapshot(nodes=nodes, jobs=[victim, high, low], queues=OWED)
    problem = build_problem(snapshot, Policy())
    ledger = Ledger(replace(problem, classes=tuple(replace(each, claim=0) for each in problem.classes)))
    index = next(at for at, each in enumerate(problem.classes) if each.jobs == ("high",))
    assert ledger.settle(index, problem.classes[index].options[0], [ledger.take_site_on(index, 1)], jobs=1)
    assert vacate.stop_incumbent(ledger, 0)
    fill_free_capacity(ledger)
    assert started(ledger, snapshot) == {"high"}

    assert use_idle_gpus(ledger)

    assert started(ledger, snapshot) == {"high", "low"}


def test_a_start_that_no_guarantee_needs_gives_way_on_a_full_node():
    jobs = [build.job(f"other{gpu}", gpus=1, cpus=2, queue="other", weight=5.0) for gpu in range(4)]
    snapshot = build.snapshot(nodes=[build.node(gpus=4, cpus=8)], jobs=[*jobs, *light(4)], queues=OWED)
    ledger = Ledger(build_problem(snapshot, Policy()))
    index = next(at for at, each in enumerate(ledger.problem.classes) if "other0" in each.jobs)
    assert placement.place(ledger, index, ledger.problem.classes[index].options[0], jobs=4) == 4

    assert use_idle_gpus(ledger)

    assert started(ledger, snapshot) == {f"light{number}" for number in range(4)}


@pytest.mark.parametrize("rounds", [0, 3])
def test_nothing_changes_without_an_unmet_guarantee_or_without_rounds(rounds):
    queues = OWED if rounds == 0 else [build.queue("owed"), build.queue("other")]
    heavy = build.job("heavy", gpus=2, cpus=8, queue="owed", weight=5.0)
    snapshot = build.snapshot(nodes=[build.node(gpus=4, cpus=8)], jobs=[heavy, *light(4)], queues=queues)
    params = PlacementParams(greedy=GreedyParams(idle_rounds=rounds))
    ledger = Ledger(build_problem(snapshot, Policy()), params)
    fill_free_capacity(ledger)

    assert not use_idle_gpus(ledger)

    assert started(ledger, snapshot) == {"heavy"}


@pytest.mark.slow
@pytest.mark.parametrize("seed", [2, 5])
def test_fewer_gpus_miss_where_guarantees_are_contested(seed):
    """Seeds of the size S of which the guarantees take all GPUs."""
    snapshot = made_up(SIZES["S"], seed)
    problem = build_problem(snapshot, Policy())

    def missing(params):
        ledger = greedy(problem, params=params)
        started(ledger, snapshot)
        return sum(max(0, each) for each in ledger.queues.quota.missing)

    without = missing(PlacementParams(greedy=GreedyParams(idle_rounds=0)))
    assert missing(PlacementParams()) <= without - 1000


@pytest.mark.parametrize(
    "world",
    [reclaim_worlds.world_of_turns(1053), reclaim_worlds.world(2190, waiting=6)],
    ids=["low before one that pays", "low that pays"],
)
def test_jobs_that_a_guarantee_is_owed_to_meet_it_in_the_order_of_priority(world):
    """Bulk preemption started jobs of lower priority for the guarantee first, and the plan broke the rule."""
    plan(*world)
