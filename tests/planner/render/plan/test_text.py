"""A plan as text: every line of it, in colour and in ASCII."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.support.builders.build import cluster, job, placement, replica, snapshot
from tests.support.output.golden import golden_section
from tests.support.output.plan_texts import COLOURS, text
from tests.support.samples.sample_plans import busy_plan, small_plan

TEXTS = Path(__file__).with_name("texts.golden.txt")


def test_a_plan_at_eighty_columns():
    found = text(small_plan())

    assert found == golden_section(TEXTS, "a small plan", found)


def test_every_name_is_whole_and_every_reason_wrapped_in_ascii():
    found = text(small_plan(), ascii_only=True, verbose=True, path="my plan.json")

    assert found == golden_section(TEXTS, "a small plan in ASCII, in full", found)


def test_every_type_of_action_at_eighty_columns():
    found = text(busy_plan())

    assert found == golden_section(TEXTS, "every type of action", found)


def test_every_type_of_action_in_ascii_on_one_line_each():
    lines = text(busy_plan(), ascii_only=True, verbose=True).splitlines()

    shown_here = [line for line in lines if re.match(r"  [-+~>*.] ", line)]
    assert [line.split()[:2] for line in shown_here] == [
        *[["+", "start"]] * 4,
        ["~", "grow"],
        ["~", "shrink"],
        *[[">", "migrate"]] * 3,
        ["-", "preempt"],
        ["+", "scale_up"],
        ["*", "repartition"],
        ["~", "cordon"],
        *[["~", "drain"]] * 2,
        *[["-", "scale_down"]] * 2,
        [".", "wait"],
    ]
    assert "  * repartition  mig-1 gpu 0  2 x 3g.40gb -> 3g.40gb + 2 x 1g.10gb  for infer-a" in lines


def test_what_is_stopped_or_removed_is_red_and_what_comes_is_green():
    lines = text(busy_plan(), colour=True).splitlines()

    colours = {
        match[2]: match[1] for line in lines if (match := re.match(r"  \x1b\[(\d+)m\S (\w+)\x1b", line))
    }
    assert colours == {
        "start": "32",
        "grow": "32",
        "scale_up": "32",
        "shrink": "33",
        "migrate": "33",
        "repartition": "33",
        "cordon": "33",
        "drain": "33",
        "wait": "33",
        "preempt": "31",
        "scale_down": "31",
    }
    assert COLOURS.sub("", "\n".join(lines)) + "\n" == text(busy_plan())


def test_colour_is_only_paint():
    plain, painted = text(small_plan()), text(small_plan(), colour=True)

    assert painted != plain
    assert COLOURS.sub("", painted) == plain


def test_what_a_terminal_would_obey_is_shown_instead():
    nodes = cluster(2, rack="\x1b[31mr\n1é")
    plan = small_plan(
        snapshot(nodes=nodes, jobs=[job(gpus=8, replicas=2)]),
        [placement("a", replica(gpus=range(8)), replica("n1", gpus=range(8)))],
    )

    assert r"one rack (\x1b[31mr\n1é)" in text(plan, width=120)
    assert r"one rack (\x1b[31mr\n1\xe9)" in text(plan, width=120, ascii_only=True)


@pytest.mark.parametrize(
    ("terms", "gap"),
    [
        ({"completion": 1_000}, "gap 10.0 %"),
        ({"completion": 2_000, "preemption": -1_000}, "gap 10.0 %"),
        ({"completion": 9_000, "guarantees": -8_000}, "gap 100 points"),
        ({"completion": 2_001, "preemption": -1_001}, "gap 100 points"),
    ],
)
def test_the_gap_is_in_points_where_prices_eat_most_of_what_a_plan_brings(terms, gap):
    plan = small_plan(objective=1_000, bound=1_100, terms=terms)

    assert f"bound 1,100  {gap}  in" in text(plan)


def test_a_proven_plan_has_a_gap_in_percent_whatever_its_prices():
    plan = small_plan(objective=1_000, bound=1_000, terms={"completion": 9_000, "guarantees": -8_000})

    assert "bound 1,000  gap 0.0 %  in" in text(plan)
