"""Every combination is planned, and the best are marked."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpuplan.models.policy.policy import BudgetMode, BudgetPolicy, Policy
from gpuplan.planner.render.charts import sweep_chart
from gpuplan.planner.render.style import Style
from gpuplan.planner.render.whatif.answers import sweep_text
from gpuplan.planner.whatif.grid import Grid, pareto_front, sweep
from gpuplan.planner.whatif.measures import PlanFigures
from tests.support.builders.build import job, node, pool, queue, snapshot
from tests.support.doubles.task_engines import Failing, Here

POLICY = Policy(budget=BudgetPolicy(mode=BudgetMode.DETERMINISTIC))
WORLD = snapshot(
    nodes=[node("n0", gpus=4)],
    jobs=[job(f"j{index}", gpus=2) for index in range(4)],
    queues=[queue("q", nominal=4)],
    pools=[pool("p", template=node("p", gpus=2, price_per_hour=1), most=0)],
)


def swept(*knobs, world=WORLD, weighed=("hourly_cost", "jobs_running"), engine=None):
    grid = Grid.read(knobs)
    points = grid.apply(world, POLICY)
    return sweep(world, POLICY, grid.knobs, points, engine or Here(), seed=0, weighed=weighed)


def test_every_combination_is_planned_the_last_knob_fastest():
    found = swept("quota:q=2,8", "like:n0=0,1")

    assert [point.values for point in found.points] == [("2", "0"), ("2", "1"), ("8", "0"), ("8", "1")]
    assert [point.figures.jobs_running for point in found.points] == [1, 1, 2, 4]


def figures(cost, running):
    fields = dict.fromkeys(PlanFigures.model_fields, 0)
    return PlanFigures.model_construct(**(fields | {"hourly_cost": cost, "jobs_running": running}))


@given(st.lists(st.none() | st.tuples(st.integers(0, 5), st.integers(0, 5)), max_size=8))
def test_the_front_is_what_nothing_beats(places):
    points = [None if place is None else figures(*place) for place in places]

    front = pareto_front(points, ("hourly_cost", "jobs_running"))

    for index, place in enumerate(places):
        beaten = place is None or any(
            other[0] <= place[0] and other[1] >= place[1] and other != place for other in places if other
        )
        assert (index in front) is not beaten


BACKFILL = ("horizon.backfill.mode=aggressive", "horizon.backfill.max_delay=60,120")


def test_points_of_different_goals_are_on_no_front():
    def told(found):
        return sweep_text(found, Style(width=200, ascii_only=True))

    goals = "objective.goal=completion,makespan"
    of_points, of_others = (
        swept(goals, weighed=(name, "gpus_held")) for name in ("objective", "jobs_running")
    )

    assert not any(point.on_front for point in of_points.points)
    assert "So there is no Pareto front of them" in told(of_points)
    assert all(point.on_front for point in of_others.points)
    assert "Objectives are not compared" in told(of_others)
    assert "Objectives are not compared" not in told(swept("prices.drain=5,7"))


def test_a_point_that_fails_does_not_lose_the_others():
    found = swept("demand=1,2", engine=Failing(0))

    assert [point.failure for point in found.points] == ["planning ended with code -9: no message", ""]
    assert not found.sound
    assert "failed" in sweep_text(found, Style(width=80, ascii_only=True))


def test_the_table_marks_the_front():
    found = swept("pool:p=0,1,2", world=WORLD.model_copy(update={"queues": (queue(),)}))

    lines = sweep_text(found, Style(width=80, ascii_only=True)).splitlines()

    assert lines[0].startswith(f"Sweep of pool:p, at 2026-11-20T12:00:00Z  snapshot {found.snapshot[:8]}")
    rows = [line.split() for line in lines if line.startswith("       ")]
    assert [row[0] for row in rows] == ["0", "1", "2"]
    assert [row[1] for row in rows] == ["2", "3", "4"]
    assert [row[-1] == "*" for row in rows] == [point.on_front for point in found.points] == [True] * 3


@pytest.mark.parametrize("width", [72, 80])
def test_long_paths_fit_the_width(width):
    found = swept(*BACKFILL)

    lines = sweep_text(found, Style(width=width)).splitlines()

    assert max(map(len, lines)) <= width
    assert "of horizon.backfill.mode and horizon.backfill.max_delay" in " ".join(" ".join(lines).split())
    assert width < 80 or any(line.split()[:2] == ["mode", "max_delay"] for line in lines)


@pytest.mark.slow
@pytest.mark.parametrize("knobs", [["demand=1,2"], ["demand=1,2", "quota:q=2,4"]])
def test_the_picture_is_the_same_for_the_same_figures(knobs):
    found = swept(*knobs)

    drawn = sweep_chart(found, "svg")

    assert drawn == sweep_chart(found, "svg")
    assert b"Pareto front" in drawn or b"<path" in drawn
    assert sweep_chart(found, "png").startswith(b"\x89PNG")
