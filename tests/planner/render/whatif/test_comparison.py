"""A comparison as text: it fits the width, with many scenarios too, and leaves out what tells nothing."""

from __future__ import annotations

import pytest

from gpuplan.models.plan.reason import ReasonCode
from gpuplan.planner.render.style import Style
from gpuplan.planner.render.whatif.comparison import comparison_text
from gpuplan.planner.whatif.measures import ModelUse
from tests.support.builders.comparison_builders import comparison, figures, trial


def text(*scenarios, width=80, ascii_only=False, **more):
    return comparison_text(comparison(*scenarios, **more), Style(width=width, ascii_only=ascii_only))


def test_a_scenario_stands_beside_the_base_as_differences():
    shown = text(
        trial(
            "more",
            description="Two more.",
            expected=2,
            jobs_running=8,
            gpus_held=30,
            gpus_free=6.1,
            gpu_allocation_ratio=0.833,
            objective=9000,
            terms={"completion": 9100, "pools": -100},
            waiting={ReasonCode.RESOURCES: 4},
            gpu_models=(ModelUse(gpu_model="H100", usable=36, used=30),),
            gap=0.015,
            seconds=2.0,
        )
    )

    assert shown == (
        "What if, at 2026-11-20T12:00:00Z  snapshot 9f3a9f3a  policy 1d201d20  seed 0\n"
        "\n"
        "  more  Two more.\n"
        "\n"
        "                     BASE   more\n"
        "  jobs running          6     +2\n"
        "    started             5      =\n"
        "  jobs waiting          4      =\n"
        "    Held                1     -1\n"
        "    Resources           3     +1\n"
        "  GPUs usable          36      =\n"
        "    held             22.9   +7.1\n"
        "    free             13.1     -7\n"
        "  GPUs allocated   63.6 %  +19.7\n"
        "    A100           25.0 %      -\n"
        "    H100           68.4 %  +14.9\n"
        "  fragmentation   100.0 %      =\n"
        "  fairness           0.89      =\n"
        "  cost an hour        196      =\n"
        "  objective         9,900   -900\n"
        "    completion      9,900   -800\n"
        "    pools               0   -100\n"
        "  gap               0.0 %  1.5 %\n"
        "  found in          1.6 s  2.0 s\n"
        "\n"
        "1 scenario, 2 expectations met. Figures of scenarios are differences from the\n"
        "base, shares in points.\n"
    )


def test_where_jobs_are_worth_something_else_waits_are_compared_and_points_are_not():
    seconds = {"started_left_seconds": 9000, "waiting_waited_seconds": 600}
    base = figures(terms={"completion": 9_950, "pools": -50}, started_left_seconds=7200)

    shown = text(
        trial("long", goal="makespan", same_points=False, objective=20_000, **seconds),
        trial("ahead", same_points=False),
        trial("more", jobs_running=8, objective=10_000),
        base=base,
        warnings=("weights.basis has no effect",),
    )

    lines = [" ".join(line.split()) for line in shown.splitlines()]
    assert "objective 9,900 - - +100" in lines
    assert "pools -50 - - +50" in lines
    assert "take, mean 2h +30m - -" in lines
    assert "waited, mean - 10m - -" in lines
    assert (
        "long: its objective is not compared: jobs are worth something else with the goal\n"
        "  makespan than with that of the base, completion\n"
        "ahead: its objective is not compared: jobs are worth something else by its\n"
        "  policy, though the goal is completion in both\n"
    ) in shown
    assert "base: weights.basis has no effect\n" in shown
    assert "more:" not in shown


@pytest.mark.parametrize("count", [1, 2, 7, 30])
@pytest.mark.parametrize("width", [60, 80, 200])
def test_many_scenarios_fit_the_width_each_in_one_column(count, width):
    shown = text(
        *(trial(f"scenario-with-a-name-{number}", jobs_running=number) for number in range(count)),
        width=width,
    )

    lines = shown.splitlines()
    assert max(map(len, lines)) <= width
    blocks = [line for line in lines if line.split()[:1] == ["BASE"]]
    assert sum(len(line.split()) - 1 for line in blocks) == count
    assert sum(line.startswith("  objective") for line in lines) == len(blocks)


def test_what_failed_and_what_is_not_as_expected_is_told_below():
    shown = text(trial("bad", failure="out of memory"), trial("odd", unmet=("expected gap == 1; found 0",)))

    assert shown.splitlines()[-5:-1] == [
        "bad: failed: out of memory",
        "odd: expected gap == 1; found 0",
        "",
        "2 scenarios, 1 failed, 1 of 1 expectation not met. Figures of scenarios are",
    ]
    assert [line.split() for line in shown.splitlines() if "BASE" in line] == [["BASE", "odd"]]


def test_all_scenarios_may_fail():
    shown = text(trial("bad", failure="x"), trial("worse", failure="y"))

    assert "BASE\n" in shown
    assert "2 failed" in shown


def test_without_a_base_there_is_no_table():
    shown = text(trial("a"), base=None)

    assert "base: failed: it crashed" in shown
    assert "1 scenario, the base failed." in shown
    assert "BASE" not in shown


@pytest.mark.parametrize(
    ("expected", "words"), [(0, "no expectation stated"), (1, "1 expectation met"), (3, "3 expectations met")]
)
def test_where_all_is_well_it_says_whether_anything_was_expected(expected, words):
    assert f"1 scenario, {words}." in text(trial("a", expected=expected))


def test_ascii_is_ascii():
    assert text(trial("a", description="×…→"), ascii_only=True).isascii()
