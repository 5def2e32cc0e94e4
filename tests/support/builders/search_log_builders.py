"""Searches made by hand, and their logs."""

from __future__ import annotations

from gpuplan.models.plan.solution import Milestone
from gpuplan.planner.io.search_log import SearchFinished, SearchStarted
from tests.support.builders.build import NOW

ASKED = SearchStarted(
    at=NOW,
    gpuplan="0.1.0",
    solvers={"milp": "highspy 1.13.1", "cpsat": "ortools 9.15.6755"},
    workers=1,
    seed=0,
    limit_seconds=10.0,
    ticks=None,
    stop_gap=0.01,
    nodes=1523,
    gpus=6212,
    jobs=8207,
    waiting=4697,
)
MILESTONES = (
    Milestone(0.14, "greedy", None, 3_341_062),
    Milestone(0.61, "greedy", 2_784_012, 3_341_062),
    Milestone(0.84, "milp", 2_784_012, 3_341_062),
    Milestone(1.52, "milp", 2_784_012, 2_884_380, 2_872_479),
    Milestone(1.90, "place", 2_784_012, 2_884_380, 2_872_479),
    Milestone(2.31, "place", 2_839_283, 2_884_380),
)
ENDED = SearchFinished(
    how="gap",
    seconds=2.35,
    status="FEASIBLE",
    solver="milp",
    objective=2_839_283,
    bound=2_884_380,
    gap=0.0159,
    greedy_objective=2_784_012,
    fallback=None,
    plan="96f4b758c118c4a1",
)
