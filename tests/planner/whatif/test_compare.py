"""The base and its scenarios are planned by the production planner, and compared figure by figure."""

from __future__ import annotations

from datetime import timedelta

import pytest

from gpuplan.models.policy.policy import BudgetMode, BudgetPolicy, Policy, Weights
from gpuplan.planner.epoch import plan_epoch
from gpuplan.planner.whatif.compare import compare
from gpuplan.planner.whatif.measures import MEASURES
from gpuplan.planner.whatif.patch.scenario import Scenario, apply_scenario
from gpuplan.planner.whatif.runner import Processes
from gpuplan.solvers.worker import ChildOutcome
from tests.support.builders.build import job, node, snapshot
from tests.support.doubles.task_engines import Failing, Here
from tests.support.strategies import instances

STEADY = BudgetPolicy(mode=BudgetMode.DETERMINISTIC)
POLICY = Policy(budget=STEADY)
HOUR = timedelta(hours=1)


def scenario(name="s", *changes, **about):
    return Scenario.model_validate({"name": name, "changes": changes, **about})


def compared(world, *scenarios, policy=POLICY, engine=None, **more):
    loaded = [(each, apply_scenario(world, policy, each)) for each in scenarios]
    return compare(world, policy, loaded, engine or Here(), seed=0, **more)


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(4))
def test_a_scenario_without_changes_is_planned_as_plan_does(seed):
    made = instances.everything(seed)
    policy = made.policy.model_copy(update={"budget": STEADY})
    plan = plan_epoch(made.snapshot, policy, seed=0, created_at=made.snapshot.taken_at)

    found = compared(made.snapshot, scenario(), policy=policy)

    assert found.base.figures.plan_id == found.scenarios[0].figures.plan_id == plan.plan_id
    assert found.scenarios[0].differences == {}


def test_differences_and_the_base_give_the_scenario():
    world = snapshot(nodes=[node("n0", gpus=4)], jobs=[job(f"j{index}", gpus=2) for index in range(4)])

    found = compared(world, scenario("more", {"change": "add_nodes", "like": "n0"}))

    base, more = found.base.figures, found.scenarios[0]
    assert more.differences["jobs_running"] == 2
    assert more.differences["gpus_total"] == 4
    for name in MEASURES:
        here, there = more.figures.figure(name), base.figure(name)
        if here is None or there is None:  # such as how long those have waited that go on waiting: none does
            assert name not in more.differences
        else:
            assert here == pytest.approx(there + more.differences.get(name, 0))


def test_unmet_expectations_say_what_was_found():
    world = snapshot(nodes=[node("n0", gpus=2)], jobs=[job("a", gpus=2, priority=1), job("b", gpus=2)])
    expectations = [
        {"job": "a", "runs": True},
        {"job": "b", "runs": True},
        {"job": "a", "runs": False},
        {"jobs_running": ">= 1", "gpus_held": "< base"},
        {"gpu_allocation_ratio": "<= 50 %"},
    ]

    found = compared(world, scenario("s", expectations=expectations))

    assert found.scenarios[0].unmet == (
        "expected job b to run; it waits",
        "expected job a to wait; it runs",
        "expected gpus_held < base; found 2 (base 2)",
        "expected gpu_allocation_ratio <= 50 %; found 1",
    )
    assert found.expected == 6
    assert not found.sound


def set_policy(**policy):
    return {"change": "set_policy", "policy": policy}


def test_points_of_another_goal_are_not_compared_and_all_else_is():
    jobs = [job("short", gpus=2, expected_duration="1h"), job("long", gpus=2, expected_duration="20h")]
    world = snapshot(nodes=[node("n0", gpus=2)], jobs=jobs)

    other = scenario("other", set_policy(objective={"goal": "makespan"}))
    found = compared(world, other, scenario("same", set_policy(drift="preconditions")))

    (makespan, same), base = found.scenarios, found.base
    assert (base.goal, makespan.goal, same.goal) == ("completion", "makespan", "completion")
    assert (makespan.same_points, same.same_points) == (False, True)
    assert makespan.figures.objective != base.figures.objective
    assert makespan.differences == {"started_left_seconds": 19 * 3600}
    assert base.figures.started_left_seconds == 3600


@pytest.mark.parametrize(
    ("policy", "alike"),
    [
        ({"objective": {"queues": {"q": {"goal": "value"}}}}, False),
        ({"objective": {"doubling": "1h"}}, False),
        ({"horizon": {"slots": 2}}, False),
        ({"disruption": {"priority_gap": 0}}, False),
        ({"prices": {"drain": 5}}, True),
        ({"weights": {"basis": "job"}}, True),
    ],
)
def test_points_are_alike_where_each_job_is_worth_the_same(policy, alike):
    waited = job("a", gpus=2, expected_duration="10h", queue="q", waited=3 * HOUR)
    world = snapshot(nodes=[node("n0", gpus=2)], jobs=[waited])

    found = compared(world, scenario("s", set_policy(**policy)))

    assert found.scenarios[0].same_points is alike


def test_an_objective_is_not_held_against_that_of_another_goal():
    world = snapshot(jobs=[job("a", gpus=1)])
    makespan = set_policy(objective={"goal": "makespan"})
    expectations = [{"objective": ">= base"}, {"objective": "> 0", "jobs_running": ">= base"}]

    found = compared(world, scenario("s", makespan, expectations=expectations))

    assert found.scenarios[0].unmet == (
        "expected objective >= base; points of the base's policy are others and not comparable",
    )


def test_how_long_jobs_have_waited_is_told_of_those_that_start_and_those_that_go_on_waiting():
    jobs = [
        job("starts", gpus=2, priority=1, expected_duration="3h", waited=HOUR),
        job("waits", gpus=2, waited=2 * HOUR),
        job("held", gpus=2, held=True, waited=9 * HOUR),
    ]
    world = snapshot(nodes=[node("n0", gpus=2)], jobs=jobs)

    figures = compared(world).base.figures

    assert figures.started_waited_seconds == 3600
    assert figures.started_left_seconds == 3 * 3600
    assert figures.waiting_waited_seconds == 2 * 3600


def test_what_a_policy_sets_without_effect_is_told_once():
    world = snapshot(jobs=[job("a", gpus=1)])
    typo = set_policy(objective={"queues": {"typo": {"goal": "makespan"}}})
    basis = set_policy(weights={"basis": "job"})
    policy = POLICY.model_copy(update={"weights": Weights(ageing={"cap": 3})})

    plain = compared(world, scenario("typo", typo), scenario("basis", basis), scenario("same", set_policy()))
    warned = compared(world, scenario("same", set_policy()), policy=policy)

    assert [len(each.warnings) for each in (plain.base, *plain.scenarios)] == [0, 1, 1, 0]
    assert "objective.queues names typo" in plain.scenarios[0].warnings[0]
    assert "without effect" in plain.scenarios[1].warnings[0]
    assert [len(each.warnings) for each in (warned.base, *warned.scenarios)] == [1, 0]


def test_a_scenario_that_fails_does_not_lose_the_others():
    world = snapshot(jobs=[job("a", gpus=1)])

    found = compared(world, scenario("bad"), scenario("good"), engine=Failing(1))

    assert found.scenarios[0].figures is None
    assert found.scenarios[0].failure == "planning ended with code -9: no message"
    assert found.scenarios[1].differences == {}
    assert not found.sound


def test_without_a_base_scenarios_still_tell_their_figures():
    world = snapshot(jobs=[job("a", gpus=1)])
    expectations = [{"jobs_running": ">= base"}, {"jobs_running": ">= 1"}]

    found = compared(
        world, scenario("s", expectations=expectations), engine=Failing(0, outcome=ChildOutcome(killed=True))
    )

    assert "killed" in found.base.failure
    assert found.scenarios[0].figures.jobs_running == 1
    assert found.scenarios[0].unmet == ("expected jobs_running >= base; that of the base is not known",)


@pytest.mark.slow
def test_processes_give_what_this_process_gives_and_tell_of_each_end():
    world = snapshot(jobs=[job("a", gpus=1)])
    ended = []

    apart = compared(world, scenario("one"), engine=Processes(2), ended=ended.append)
    here = compared(world, scenario("one"))

    assert sorted(ended) == ["base", "one"]
    assert apart.base.figures.plan_id == here.base.figures.plan_id
    assert apart.scenarios[0].figures.plan_id == here.scenarios[0].figures.plan_id
