"""Jobs with diminishing returns of replicas: sizes, GPU models, and what running ones give up."""

from __future__ import annotations

from collections import Counter
from datetime import datetime, timedelta

import pytest

from gpuplan.models.gang import Gang
from gpuplan.models.plan.solution import SolveStatus
from gpuplan.models.policy.policy import Disruption, Policy, SolverName
from gpuplan.models.policy.settings import Objective
from gpuplan.planner.epoch import plan_epoch
from tests.support.builders import build

SOLVERS = [(), (SolverName.MILP,), (SolverName.CPSAT,)]
TABLE = {1: 1.0, 2: 1.8, 4: 2.4}


def scaled(name, least, most, table=None, **more):
    job = build.job(name, gpus=1, expected_duration=4 * 3600, **more)
    gang = Gang(min=least, max=most, scaling=TABLE if table is None else table)
    return job.model_copy(update={"gang": gang})


def sizes(jobs, *, gpus=4, nodes=None, solvers=(), goal="value", **rules):
    """Replicas by job once the plan is carried out."""
    snapshot = build.snapshot(nodes=nodes or [build.node(gpus=gpus)], jobs=jobs)
    policy = Policy(solvers=solvers, objective=Objective(goal=goal), disruption=Disruption(**rules))
    plan = plan_epoch(snapshot, policy, seed=0, created_at=snapshot.taken_at)
    assert not solvers or plan.solution.status == SolveStatus.OPTIMAL
    return {placement.job: len(placement.replicas) for placement in plan.placements}


@pytest.mark.parametrize("solvers", SOLVERS)
def test_equal_jobs_share_the_gpus_evenly(solvers):
    assert sizes([scaled("a", 1, 4), scaled("b", 1, 4)], solvers=solvers) == {"a": 2, "b": 2}


@pytest.mark.parametrize("solvers", SOLVERS)
@pytest.mark.parametrize("goal", ["completion", "goodput"])
def test_to_be_done_soon_equal_jobs_go_one_after_the_other_while_that_costs_little(goal, solvers):
    steep, flat = {1: 1, 4: 3.8}, {1: 1, 4: 1.2}

    assert sizes([scaled("a", 1, 4, steep), scaled("b", 1, 4, steep)], solvers=solvers, goal=goal) == {"a": 4}
    both = sizes([scaled("a", 1, 4, flat), scaled("b", 1, 4, flat)], solvers=solvers, goal=goal)
    assert both.keys() == {"a", "b"}


@pytest.mark.parametrize("solvers", SOLVERS)
def test_a_third_replica_comes_after_the_first_of_a_job_that_is_worth_less(solvers):
    jobs = [
        scaled("a", 1, 4, weight=2),
        scaled("b", 1, 4),
        build.job("c", gpus=1, weight=2),
    ]

    assert sizes(jobs, solvers=solvers) == {"a": 2, "b": 1, "c": 1}


@pytest.mark.parametrize("solvers", SOLVERS)
def test_alone_a_job_gets_all_that_it_can_use(solvers):
    assert sizes([scaled("a", 1, 4)], gpus=8, solvers=solvers) == {"a": 4}
    assert sizes([scaled("a", 2, 8)], gpus=8, solvers=solvers) == {"a": 4}


@pytest.mark.parametrize("solvers", SOLVERS)
def test_the_fast_gpus_go_to_the_job_that_gains_most_by_them(solvers):
    fast, slow = "H100-80GB", "T4"
    nodes = [build.node("fast", gpus=4, model=fast), build.node("slow", gpus=4, model=slow)]
    steep = {1: 1, 4: 4}
    jobs = [
        scaled("a", 1, 4, steep, gpu_models={fast: 2, slow: 1}),
        scaled("b", 1, 4, steep, gpu_models={fast: 6, slow: 1}),
    ]
    snapshot = build.snapshot(nodes=nodes, jobs=jobs)
    policy = Policy(solvers=solvers, objective=Objective(goal="goodput"))

    plan = plan_epoch(snapshot, policy, seed=0, created_at=snapshot.taken_at)

    found = {
        placement.job: Counter(each.node for each in placement.replicas) for placement in plan.placements
    }
    if solvers:  # greedy looks at one job after the other
        assert found == {"a": {"slow": 4}, "b": {"fast": 4}}
    assert found.keys() == {"a", "b"}


@pytest.mark.parametrize("solvers", SOLVERS)
def test_a_running_job_gives_up_the_replicas_that_bring_least(solvers):
    at = [build.replica(gpus=(gpu,)) for gpu in range(4)]
    runs = scaled("runs", 1, 4, at=at, restart_duration=0, checkpoint_duration=0)
    rules = {"priority_gap": 0, "resize_dwell": 0}

    assert sizes([runs, build.job("new", gpus=2, weight=30)], solvers=solvers, **rules) == {
        "runs": 2,
        "new": 1,
    }


@pytest.mark.parametrize("solvers", SOLVERS)
def test_a_running_job_grows_where_it_pays_for_the_interruption(solvers):
    def grown(table):
        runs = scaled("runs", 1, 4, table, at=[build.replica(gpus=(0,))])
        return sizes([runs], solvers=solvers, resize_dwell=0)["runs"]

    assert grown({1: 1, 2: 1.9, 3: 2.7, 4: 3.4}) == 4
    assert grown({1: 1, 2: 1.01}) == 1


@pytest.mark.parametrize("solvers", SOLVERS)
def test_replicas_that_bring_less_come_before_jobs_that_bring_less_still(solvers):
    """Also where the second replica is as good as the first, so that both are placed at once."""
    jobs = [scaled("a", 1, 4, {1: 1, 2: 2, 4: 2.8}, weight=2), build.job("b", gpus=1, weight=0.5)]

    assert sizes(jobs, solvers=solvers) == {"a": 4}


FAST, SLOW = "H100-80GB", "T4"


def picky(name, *, waited=0, **more):
    speeds = {FAST: 6, SLOW: 1}
    return scaled(name, 1, 4, gpu_models=speeds, waited=timedelta(seconds=waited), **more)


def mixed(*jobs, free, queues=None, **policy):
    """A plan for four fast GPUs, of which so many are free, and four slow ones."""
    nodes = [build.node("fast", gpus=4, model=FAST), build.node("slow", gpus=4, model=SLOW)]
    taken = [build.replica("fast", gpus=(gpu,)) for gpu in range(4 - free)]
    # It has run for an hour, and ends in a minute.
    about = {"preemptible": False, "expected_duration": 3600 + 60}
    there = [build.job("there", gpus=1, replicas=len(taken), at=taken, **about)] if taken else []
    snapshot = build.snapshot(nodes=nodes, jobs=[*there, *jobs], queues=queues)
    policy = Policy(**policy)
    return plan_epoch(snapshot, policy, seed=0, created_at=snapshot.taken_at)


def places(plan):
    """Replicas by job and node, of the jobs that the plan starts."""
    return {
        placement.job: Counter(each.node for each in placement.replicas)
        for placement in plan.placements
        if placement.job != "there"
    }


@pytest.mark.parametrize("solvers", SOLVERS)
def test_a_job_waits_for_a_much_better_model_until_it_has_waited_long_enough(solvers):
    plan = mixed(picky("a"), free=0, solvers=solvers)
    assert places(plan) == {}
    (numbers,) = (action.reason.numbers for action in plan.actions if action.job == "a")
    assert (numbers["gpu_model"], numbers["waits_for"]) == (SLOW, FAST)

    until = datetime.fromisoformat(str(numbers["until"]))
    patience = int((until - plan.snapshot.taken_at).total_seconds())
    assert places(mixed(picky("a", waited=patience - 60), free=0, solvers=solvers)) == {}
    assert places(mixed(picky("a", waited=patience - 59), free=0, solvers=solvers)) == {"a": {"slow": 4}}
    assert places(mixed(picky("a", waited=patience), free=0, solvers=solvers)) == {"a": {"slow": 4}}
    assert places(mixed(picky("a"), free=4, solvers=solvers)) == {"a": {"fast": 4}}


@pytest.mark.parametrize("solvers", SOLVERS)
def test_a_guarantee_comes_before_what_a_job_rather_waits_for(solvers):
    owed = [build.queue(), build.queue("owed", nominal=4, guarantee=4)]
    plan = mixed(picky("a", queue="owed"), free=0, solvers=solvers, queues=owed)

    assert places(plan) == {"a": {"slow": 4}}
    assert not solvers or plan.solution.status == SolveStatus.OPTIMAL


@pytest.mark.parametrize("solvers", SOLVERS)
def test_of_several_models_the_one_counts_that_brings_most_with_the_room_it_has(solvers):
    job = scaled("a", 1, 4, {1: 1, 4: 3.8}, gpu_models={FAST: 1.4, SLOW: 1})

    assert places(mixed(job, free=1, solvers=solvers)) == {"a": {"slow": 4}}
    assert places(mixed(job, free=4, solvers=solvers)) == {"a": {"fast": 4}}
