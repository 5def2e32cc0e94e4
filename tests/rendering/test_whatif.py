"""A comparison as text: it fits the width, with many scenarios too, and leaves out what tells nothing."""

from __future__ import annotations

import pytest
from build import NOW

from planner.models.comparison import Comparison, Figures, ModelUse, Trial
from planner.models.plan import ReasonCode
from planner.rendering.whatif import comparison_text
from planner.whatif.comparing import differences


def figures(**changes):
    known = {
        "plan_id": "p",
        "jobs_running": 6,
        "jobs_started": 5,
        "jobs_waiting": 4,
        "jobs_preempted": 0,
        "gpus_total": 36,
        "gpus_held": 22.9,
        "gpus_free": 13.1,
        "gpu_allocation_ratio": 0.636111,
        "fragmentation_ratio": 0.0,
        "jain_index": 0.89,
        "lost_gpu_hours": 0.0,
        "nodes_added": 0,
        "nodes_removed": 0,
        "hourly_cost": 0.0,
        "objective": 9900,
        "bound": 9900,
        "gap": 0.0,
        "status": "OPTIMAL",
        "solver": "milp",
        "seconds": 0.25,
        "terms": {"completion": 9900},
        "waiting": {ReasonCode.HELD: 4},
        "gpu_models": (
            ModelUse(gpu_model="A100", usable=4, used=1),
            ModelUse(gpu_model="H100", usable=32, used=21.9),
        ),
    }
    return Figures(**(known | changes))


BASE = figures()


def trial(name, description="", failure="", unmet=(), **changes):
    made = None if failure else figures(**changes)
    return Trial(
        name=name,
        description=description,
        figures=made,
        failure=failure,
        unmet=unmet,
        differences={} if made is None else differences(made, BASE),
    )


def text(*scenarios, width=80, ascii_only=False):
    comparison = Comparison(
        snapshot="a" * 64,
        policy="b" * 64,
        epoch=NOW,
        seed=0,
        base=Trial(name="base", figures=BASE),
        scenarios=scenarios,
    )
    return comparison_text(comparison, width=width, colour=False, ascii_only=ascii_only)


def test_a_scenario_stands_beside_the_base_as_differences():
    shown = text(
        trial(
            "more",
            "Two more.",
            jobs_running=8,
            gpus_held=30,
            gpus_free=6.1,
            gpu_allocation_ratio=0.833333,
            objective=9000,
            terms={"completion": 9100, "pools": -100},
            waiting={ReasonCode.RESOURCES: 4},
            gpu_models=(ModelUse(gpu_model="H100", usable=36, used=30),),
            gap=0.015,
            seconds=2.0,
        )
    )

    assert shown == (
        "What if, at 2026-11-20T12:00:00Z  snapshot aaaaaaaa  policy bbbbbbbb  seed 0\n"
        "\n"
        "  more  Two more.\n"
        "\n"
        "                    BASE   more\n"
        "  jobs running         6     +2\n"
        "    started            5      =\n"
        "  jobs waiting         4      =\n"
        "    Held               4     -4\n"
        "    Resources          0     +4\n"
        "  GPUs usable         36      =\n"
        "    held            22.9   +7.1\n"
        "    free            13.1     -7\n"
        "  GPUs allocated  63.6 %  +19.7\n"
        "    A100          25.0 %      -\n"
        "    H100          68.4 %  +14.9\n"
        "  fragmentation    0.0 %      =\n"
        "  fairness          0.89      =\n"
        "  objective        9,900   -900\n"
        "    completion     9,900   -800\n"
        "    pools              0   -100\n"
        "  gap              0.0 %  1.5 %\n"
        "  found in         0.2 s  2.0 s\n"
        "\n"
        "1 scenario. Figures of scenarios are differences from the base, shares in\n"
        "points.\n"
    )


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
        "2 scenarios, 1 failed, 1 expectation is not met. Figures of scenarios are",
    ]
    assert [line.split() for line in shown.splitlines() if "BASE" in line] == [["BASE", "odd"]]


def test_all_scenarios_may_fail():
    shown = text(trial("bad", failure="x"), trial("worse", failure="y"))

    assert "BASE\n" in shown
    assert "2 failed" in shown


def test_without_a_base_there_is_no_table():
    comparison = Comparison(
        snapshot="a", policy="b", epoch=NOW, seed=0, base=Trial(name="base", failure="gone"), scenarios=()
    )

    shown = comparison_text(comparison, width=80, colour=False, ascii_only=False)

    assert "base: failed: gone" in shown
    assert "BASE" not in shown


def test_ascii_is_ascii():
    assert text(trial("ä-scénario".replace("ä", "a").replace("é", "e"), "×…→"), ascii_only=True).isascii()
