"""The table of measures has all that figures, expectations and Pareto fronts name."""

from __future__ import annotations

from gpuplan.models.policy.policy import BudgetMode, BudgetPolicy, Policy
from gpuplan.planner.epoch import plan_epoch
from gpuplan.planner.whatif.measures import MEASURES, WEIGHABLE, PlanFigures, plan_figures
from gpuplan.planner.whatif.patch.scenario import Expectation
from tests.support.builders.build import job, node, replica, snapshot

POLICY = Policy(budget=BudgetPolicy(mode=BudgetMode.DETERMINISTIC))
OF_THE_SEARCH = {"plan_id", "status", "solver", "seconds"}
BY_NAME = {"terms", "waiting", "gpu_models"}


def test_every_figure_is_a_measure_in_the_order_of_the_answer():
    fields = [name for name in PlanFigures.model_fields if name not in OF_THE_SEARCH | BY_NAME]

    assert list(MEASURES) == fields


def test_what_may_be_expected_may_be_weighed():
    assert tuple(name for name in Expectation.model_fields if name not in ("job", "runs")) == WEIGHABLE


def test_figures_are_those_of_the_plan():
    held = job("held", gpus=2, held=True)
    low = job("low", gpus=8, at=[replica("n0", gpus=range(8))])
    world = snapshot(nodes=[node("n0", price_per_hour=3)], jobs=[low, held, job("high", gpus=8, priority=50)])
    plan = plan_epoch(world, POLICY, seed=0, created_at=world.taken_at)

    figures = plan_figures(plan)

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
