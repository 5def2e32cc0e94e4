"""Comparisons made by hand."""

from __future__ import annotations

from gpuplan.models.plan.reason import ReasonCode
from gpuplan.planner.whatif.compare import Comparison, Trial, figure_differences
from gpuplan.planner.whatif.measures import ModelUse, PlanFigures
from tests.support.builders.build import NOW


def figures(**more):
    defaults = {
        "plan_id": "7c1e55aa01234567",
        "jobs_running": 6,
        "jobs_started": 5,
        "jobs_waiting": 4,
        "jobs_preempted": 0,
        "gpus_total": 36,
        "gpus_held": 22.9,
        "gpus_free": 13.1,
        "gpu_allocation_ratio": 0.636,
        "fragmentation_ratio": 1.0,
        "jain_index": 0.89,
        "lost_gpu_hours": 0.0,
        "nodes_added": 0,
        "nodes_removed": 0,
        "hourly_cost": 196.0,
        "objective": 9_900,
        "bound": 9_900,
        "gap": 0.0,
        "status": "OPTIMAL",
        "solver": "milp",
        "seconds": 1.6,
        "terms": {"completion": 9_900},
        "waiting": {ReasonCode.HELD: 1, ReasonCode.RESOURCES: 3},
        "gpu_models": (
            ModelUse(gpu_model="A100", usable=4, used=1),
            ModelUse(gpu_model="H100", usable=32, used=21.9),
        ),
    }
    return PlanFigures(**defaults | more)


BASE = figures()


def trial(
    name,
    *,
    description="",
    expected=0,
    unmet=(),
    failure="",
    goal="completion",
    same_points=True,
    warnings=(),
    **more,
):
    found = None if failure else figures(**more)
    changed = {} if found is None else figure_differences(found, BASE, comparable=same_points)
    return Trial(
        name=name,
        description=description,
        figures=found,
        failure=failure,
        expected=max(expected, len(unmet)),
        unmet=unmet,
        goal=goal,
        same_points=same_points,
        warnings=warnings,
        differences=changed,
    )


TRIALS = (
    trial("more-nodes", description="Two more nodes like h100-1", jobs_running=7, gpus_held=30.9),
    trial(
        "rack-fails",
        description="Rack r2 is down",
        unmet=("expected jobs_running >= base; found 5 (base 6)",),
        jobs_running=5,
        gpu_allocation_ratio=0.5,
        objective=2_810,
    ),
    trial("too-much", failure="planning did not end in time and was killed"),
    trial("nothing"),
)


def comparison(*trials, base=BASE, warnings=(), **more):
    return Comparison(
        snapshot="9f3a" * 16,
        policy="1d20" * 16,
        epoch=NOW,
        seed=0,
        base=Trial(
            name="base",
            figures=base,
            failure="" if base else "it crashed",
            goal="completion",
            warnings=warnings,
        ),
        scenarios=trials or TRIALS,
        **more,
    )
