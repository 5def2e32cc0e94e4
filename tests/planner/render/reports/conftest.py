"""One page of each report, as large and as odd as they come."""

from __future__ import annotations

import pytest

from gpuplan.planner.render.reports.plan import plan_report
from gpuplan.planner.render.reports.simulation import simulation_report
from gpuplan.planner.render.reports.whatif import whatif_report
from tests.support.builders.build import job, node, placement, queue, replica, snapshot
from tests.support.builders.comparison_builders import TRIALS, comparison, trial
from tests.support.builders.search_log_builders import MILESTONES
from tests.support.builders.simulation_builders import run, simulation
from tests.support.samples.sample_plans import busy_plan, small_plan, throng

LONG = "x" * 250
"""As long as a name may be nearly, without a place to break it."""


def long_plan():
    """A plan in which every name is long."""
    nodes = [node(f"{LONG}{index}", rack=f"{LONG}r", zone=f"{LONG}z") for index in range(2)]
    jobs = [job(f"{LONG}{name}", gpus=8, queue=f"{LONG}q", user=f"{LONG}u") for name in "abc"]
    placed = [placement(f"{LONG}a", replica(f"{LONG}0", gpus=range(8)))]
    return small_plan(snapshot(nodes=nodes, jobs=jobs, queues=[queue(f"{LONG}q", nominal=8)]), placed)


@pytest.fixture(scope="session", params=["plan", "many", "long", "whatif", "simulation"])
def html(request):
    match request.param:
        case "long":
            return plan_report(long_plan())
        case "plan":
            return plan_report(busy_plan(), MILESTONES)
        case "many":
            return plan_report(throng())
        case "whatif":
            return whatif_report(comparison(*TRIALS, trial(LONG, description=LONG[:200], jobs_running=9)))
        case _:
            return simulation_report(simulation(run("greedy"), run(LONG), source=LONG))
