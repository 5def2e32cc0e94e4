"""The base and its scenarios are planned by the production planner, and compared figure by figure."""

from __future__ import annotations

import os

import instances
import pytest
from build import job, node, replica, snapshot
from engine_doubles import Failing, Here

from planner.epoch import plan_epoch
from planner.models.policy import BudgetMode, BudgetPolicy, Policy
from planner.models.scenario import Scenario
from planner.solvers.worker import Outcome
from planner.whatif.comparing import COMPARED, compare
from planner.whatif.engines import Processes, Task
from planner.whatif.patching import patch
from planner.whatif.trials import figures_of

STEADY = BudgetPolicy(mode=BudgetMode.DETERMINISTIC)
POLICY = Policy(budget=STEADY)


def scenario(name="s", *changes, **about):
    return Scenario.model_validate({"name": name, "changes": changes, **about})


def compared(world, *scenarios, policy=POLICY, engine=None, **more):
    loaded = [(each, patch(world, policy, each)) for each in scenarios]
    return compare(world, policy, loaded, engine or Here(), seed=0, **more)


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
    for name in COMPARED:
        assert more.figures.figure(name) == pytest.approx(base.figure(name) + more.differences.get(name, 0))


def test_figures_are_those_of_the_plan():
    held = job("held", gpus=2, held=True)
    low = job("low", gpus=8, at=[replica("n0", gpus=range(8))])
    world = snapshot(nodes=[node("n0", price_per_hour=3)], jobs=[low, held, job("high", gpus=8, priority=50)])
    plan = plan_epoch(world, POLICY, seed=0, created_at=world.taken_at)

    figures = figures_of(plan)

    assert (figures.jobs_running, figures.jobs_started, figures.jobs_waiting, figures.jobs_preempted) == (
        1,
        1,
        2,
        1,
    )
    assert (figures.figure("gpus_total"), figures.figure("gpus_held"), figures.figure("gpus_free")) == (
        8,
        8,
        0,
    )
    assert figures.waiting == {"Held": 1, "Preempted": 1}
    assert sum(figures.terms.values()) == figures.objective == plan.solution.objective
    assert figures.lost_gpu_hours == 8
    assert figures.hourly_cost == 3


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
        world, scenario("s", expectations=expectations), engine=Failing(0, outcome=Outcome(killed=True))
    )

    assert "killed" in found.base.failure
    assert found.scenarios[0].figures.jobs_running == 1
    assert found.scenarios[0].unmet == ("expected jobs_running >= base; that of the base is not known",)


def test_processes_give_what_this_process_gives_and_tell_of_each_end():
    world = snapshot(jobs=[job("a", gpus=1)])
    ended = []

    apart = compared(world, scenario("one"), engine=Processes(2), ended=ended.append)
    here = compared(world, scenario("one"))

    assert sorted(ended) == ["base", "one"]
    assert apart.base.figures.plan_id == here.base.figures.plan_id
    assert apart.scenarios[0].figures.plan_id == here.scenarios[0].figures.plan_id


def test_a_task_that_dies_or_hangs_takes_no_other_with_it():
    tasks = [
        Task("engine_doubles:die", (), 30.0),
        Task("engine_doubles:hang", ("",), 0.5),
        Task("engine_doubles:echo", ("done",), 30.0),
    ]

    found = dict(Processes(3).run(tasks))

    assert "code 3" in found[0].failure
    assert found[1].killed
    assert found[2].last == "done"


@pytest.mark.timeout(120)
def test_whoever_loses_interest_leaves_nobody_at_work(tmp_path):
    pid_file = tmp_path / "pid"
    tasks = [
        Task("engine_doubles:after", (str(pid_file),), 60.0),
        Task("engine_doubles:hang", (str(pid_file),), 300.0),
    ]

    outcomes = Processes(2).run(tasks)
    assert next(outcomes)[0] == 0
    pid = int(pid_file.read_text())
    outcomes.close()

    with pytest.raises(ProcessLookupError):
        os.kill(pid, 0)
