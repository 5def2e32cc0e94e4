from datetime import timedelta

import pytest

from gpuplan.models.job import Progress
from gpuplan.models.policy.policy import Disruption
from gpuplan.models.policy.settings import DisruptionBudget
from gpuplan.planner.analysis.budget_use import BudgetKeeper, budget_text, budget_uses
from tests.support.builders.build import NOW, by_value, job, placement, replica, snapshot
from tests.support.builders.solution_builders import target

PLACES = [replica(gpus=(number,)) for number in range(4)]
GANG = job("gang", gpus=1, replicas=(1, 3), at=PLACES[:3])
ALONE = job("alone", gpus=1, at=PLACES[3:])
DOWN = job("down", gpus=1, replicas=2, progress=Progress(completed="1h"))
NEW = job("new", gpus=1, replicas=2)


def found(*placements, jobs=(GANG, ALONE, DOWN, NEW), **budget):
    policy = by_value(disruption=Disruption(budgets=(DisruptionBudget(name="b", **budget),)))
    world = snapshot(jobs=jobs)
    goal = target(world, *placements)
    return budget_uses(world, policy, goal), BudgetKeeper(world, policy, goal)


def numbers(use):
    return use.expected, use.allowed, use.down, use.disrupted


@pytest.mark.parametrize(
    ("budget", "expected"),
    [
        ({"max_unavailable": 3}, (6, 3, 2, 0)),
        ({"max_unavailable": "50%"}, (6, 3, 2, 0)),
        ({"min_available": 1}, (6, 5, 2, 0)),
        ({"min_available": 9}, (6, 0, 2, 0)),
        ({"max_unavailable": 2, "counts": "jobs"}, (3, 2, 1, 0)),
    ],
)
def test_state_of_a_group_before_a_plan(budget, expected):
    uses, _ = found(**budget)

    assert [numbers(use) for use in uses] == [expected]


def test_what_a_plan_disrupts_is_counted_by_replica():
    (moved,), _ = found(placement("gang", *PLACES[:2], replica("n1", gpus=(0,))), max_unavailable=9)
    (shrunk,), _ = found(placement("gang", *PLACES[:2]), max_unavailable=9)

    assert (moved.disrupted, shrunk.disrupted) == (3, 1)


def test_what_a_plan_disrupts_is_counted_by_job():
    (moved,), _ = found(
        placement("gang", *PLACES[:2], replica("n1", gpus=(0,))), max_unavailable=9, counts="jobs"
    )

    assert moved.disrupted == 1


def test_the_budget_that_keeps_a_job_is_named():
    _, keeper = found(max_unavailable=3)

    assert keeper.against(ALONE) is None
    assert keeper.against(GANG).name == "b"
    assert keeper.against(NEW) is None


def test_a_budget_in_words():
    (use,), _ = found(max_unavailable=3)

    assert budget_text(use) == "disruption budget b: 2 of at most 3 replicas unavailable"


def test_a_job_that_works_again_is_available_after_a_while():
    running = ALONE.running.model_copy(update={"resumed_at": NOW - timedelta(minutes=5)})
    again = ALONE.model_copy(update={"preemptions": 1, "running": running})

    (soon,), _ = found(jobs=(GANG, again), max_unavailable=1)
    (later,), _ = found(jobs=(GANG, again), max_unavailable=1, min_ready="6m")

    assert (soon.down, later.down) == (0, 1)
