"""Knobs are turned one step at a time, and the best combinations marked."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpuplan.models.errors import BadInputError
from gpuplan.models.policy.policy import BudgetMode, BudgetPolicy, Policy
from gpuplan.planner.render.charts.sweep import sweep_chart
from gpuplan.planner.render.whatif.sweep import WEIGHABLE, sweep_text
from gpuplan.planner.whatif.answers.comparison import PlanFigures
from gpuplan.planner.whatif.grid.sweep import BETTER_LESS, build_sweep_worlds, pareto_front, read_knobs, sweep
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
    read = read_knobs(knobs)
    worlds = build_sweep_worlds(read, world, POLICY)
    return sweep(world, POLICY, read, worlds, engine or Here(), seed=0, weighed=weighed)


def refused(*knobs, world=WORLD):
    with pytest.raises(BadInputError) as error:
        build_sweep_worlds(read_knobs(knobs), world, POLICY)
    return str(error.value)


def test_every_combination_is_planned_the_last_knob_fastest():
    found = swept("quota:q=2,8", "like:n0=0,1")

    assert [point.values for point in found.points] == [("2", "0"), ("2", "1"), ("8", "0"), ("8", "1")]
    assert [point.figures.jobs_running for point in found.points] == [1, 1, 2, 4]


@pytest.mark.parametrize(
    ("knob", "change"),
    [
        ("prices.guarantee=7", lambda made: made.policy.prices.guarantee == 7),
        ("disruption.preempt=false", lambda made: made.policy.disruption.preempt is False),
        ("horizon.length=2h", lambda made: made.policy.horizon.length == 7200),
        ("quota:q=9", lambda made: made.snapshot.queues[0].quota.nominal == 9000),
        ("demand=2", lambda made: len(made.snapshot.jobs) == 8),
        ("demand:q=0.5", lambda made: len(made.snapshot.jobs) == 2),
        ("pool:p=2", lambda made: len(made.snapshot.cluster.nodes) == 3),
        ("pool:p=0", lambda made: made.snapshot == WORLD),
        ("like:n0=1", lambda made: len(made.snapshot.cluster.nodes) == 2),
        ("price:p=4.5", lambda made: made.snapshot.cluster.pools[0].template.price_per_hour == 4.5),
        ("solver=greedy", lambda made: made.policy.solvers == ()),
    ],
)
def test_each_knob_turns_what_it_names(knob, change):
    [(_, made)] = build_sweep_worlds(read_knobs([knob]), WORLD, POLICY)

    assert made.misfits == ()
    assert change(made)


def test_all_that_is_wrong_with_knobs_is_told_at_once():
    told = refused("prices.guarante=1,2", "quota:z=1,x")

    assert "prices.guarante=1: the policy has unknown field 'guarante' in prices." in told
    assert "Maybe 'guarantee' was meant." in told
    assert "quota:z=1: there is no queue 'z'." in told
    assert "quota:z=x: the knob has nominal = 'x'" in told
    assert told.count("quota:z=1:") == 1


@pytest.mark.parametrize("name", ["quota", "quotas:q", "price"])
def test_a_knob_that_there_is_not_is_told_with_those_that_there_are(name):
    told = refused(f"{name}=1")

    assert told.startswith(f"{name}=1: there is no such knob.\n  Known: demand, demand:NAME, like:NAME,")
    assert f"Maybe '{name.partition(':')[0].removesuffix('s')}:NAME' was meant." in told


def company(**quotas):
    """Two queues of one company that is guaranteed 20 GPUs."""
    below = [queue(name, nominal=nominal, parent="company") for name, nominal in quotas.items()]
    return snapshot(queues=[queue("company", nominal=5, guarantee=20), *below], jobs=[job("a", queue="one")])


def test_values_that_are_wrong_together_are_refused_together():
    told = refused("quota:one=0,20", "quota:two=2", world=company(one=20, two=0))

    assert told.startswith("quota:one=0, quota:two=2: queue 'company'")
    assert "quota:one=20" not in told


def test_values_that_are_right_together_need_not_be_so_alone():
    made = build_sweep_worlds(read_knobs(["quota:one=0", "quota:two=20"]), company(one=20, two=0), POLICY)

    assert [patched.misfits for _, patched in made] == [()]


BACKFILL = ("horizon.backfill.mode=aggressive", "horizon.backfill.max_delay=60,120")


def test_knobs_of_the_policy_are_judged_in_one_policy():
    made = build_sweep_worlds(read_knobs(BACKFILL), WORLD, POLICY)

    assert [each.policy.horizon.backfill.max_delay for _, each in made] == [60, 120]
    assert refused(BACKFILL[0]).startswith(
        f"{BACKFILL[0]}: the policy in horizon.backfill: expected a max_delay"
    )
    told = refused("horizon.backfill.mode=aggressive", "horizon.backfill.max_delay=0")
    assert told.startswith("horizon.backfill.mode=aggressive, horizon.backfill.max_delay=0: the policy in")


def test_a_knob_goes_with_what_the_policy_has():
    policy = Policy.model_validate({"horizon": {"backfill": {"mode": "aggressive", "max_delay": 60}}})

    [(_, made)] = build_sweep_worlds(read_knobs(["horizon.backfill.max_delay=2h"]), WORLD, policy)

    assert made.policy.horizon.backfill.max_delay == 7200
    assert made.policy.horizon.backfill.mode == "aggressive"


@pytest.mark.parametrize(
    "knobs",
    [
        ["prices.guarantee"],
        ["=1"],
        ["a.b="],
        ["a.b=1,,2"],
        ["prices.guarantee=1,1"],
        ["demand=1", "demand=2"],
        ["demand=1", "quota:q=1", "pool:p=1"],
        ["demand=["],
        ["solver=scip"],
        ["price:x=1"],
    ],
)
def test_knobs_that_are_none_are_refused(knobs):
    with pytest.raises(BadInputError):
        build_sweep_worlds(read_knobs(knobs), WORLD, POLICY)


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


def test_whether_more_is_better_is_known_of_every_figure():
    assert set(WEIGHABLE) >= BETTER_LESS
    assert set(WEIGHABLE) <= set(PlanFigures.model_fields)


def test_points_of_different_goals_are_on_no_front():
    def told(found):
        return sweep_text(found, width=200, colour=False, ascii_only=True)

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
    assert "failed" in sweep_text(found, width=80, colour=False, ascii_only=True)


def test_the_table_marks_the_front():
    found = swept("pool:p=0,1,2", world=WORLD.model_copy(update={"queues": (queue(),)}))

    lines = sweep_text(found, width=80, colour=False, ascii_only=True).splitlines()

    assert lines[0].startswith(f"Sweep of pool:p, at 2026-11-20T12:00:00Z  snapshot {found.snapshot[:8]}")
    rows = [line.split() for line in lines if line.startswith("       ")]
    assert [row[0] for row in rows] == ["0", "1", "2"]
    assert [row[1] for row in rows] == ["2", "3", "4"]
    assert [row[-1] == "*" for row in rows] == [point.on_front for point in found.points] == [True] * 3


@pytest.mark.parametrize("width", [72, 80])
def test_long_paths_fit_the_width(width):
    found = swept(*BACKFILL)

    lines = sweep_text(found, width=width, colour=False, ascii_only=False).splitlines()

    assert max(map(len, lines)) <= width
    assert "of horizon.backfill.mode and horizon.backfill.max_delay" in " ".join(" ".join(lines).split())
    assert width < 80 or any(line.split()[:2] == ["mode", "max_delay"] for line in lines)


@pytest.mark.parametrize("knobs", [["demand=1,2"], ["demand=1,2", "quota:q=2,4"]])
def test_the_picture_is_the_same_for_the_same_figures(knobs):
    found = swept(*knobs)

    drawn = sweep_chart(found, "svg")

    assert drawn == sweep_chart(found, "svg")
    assert b"Pareto front" in drawn or b"<path" in drawn
    assert sweep_chart(found, "png").startswith(b"\x89PNG")
