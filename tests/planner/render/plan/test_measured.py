"""What a plan tells of measurements: what the rules of health found, and how much the GPUs were used."""

from __future__ import annotations

import pytest

from gpuplan.models.health.measurement import Measurement
from gpuplan.planner.render.plan.measured import (
    gpu_findings,
    health_lines,
    measured_figures,
    queue_use_table,
)
from gpuplan.planner.render.style import Style
from tests.support.builders.build import cluster, job, node, queue, replica, snapshot
from tests.support.output.plan_texts import text
from tests.support.samples.sample_plans import small_plan

STYLE = Style(width=80, colour=False, ascii_only=False)
MIB = 81559
"""Memory of a GPU of the builders' nodes."""


def seen(index=0, *, on="n0", period=900, **more):
    return Measurement(node=on, index=index, period=period, **more)


def planned(*measured, nodes=None, jobs=(), **world):
    nodes = nodes or [node("n0")]
    return small_plan(snapshot(nodes=nodes, jobs=jobs, measured=measured, **world), ())


def lines(plan, *, verbose=False):
    return health_lines(plan, STYLE, verbose=verbose, more="gpuplan show plan.json --all")


def test_gpus_that_are_excluded_come_before_those_to_look_at():
    plan = planned(seen(1, hot={90: 900}), seen(5, uncorrectable=2), nodes=[node("n0")])

    assert [each.index for each in gpu_findings(plan)] == [5, 1]
    head, excluded, warned = lines(plan)
    assert head == "2 findings at GPUs:"
    assert excluded.startswith("  ! excluded  n0 GPU 5  ")
    assert "uncorrectable" in excluded
    assert warned.startswith("  ! look at   n0 GPU 1  ")
    assert "15m" in warned
    assert text(plan).count("findings at GPUs:") == 1


def test_many_findings_are_one_line_for_each_rule_unless_all_are_asked_for():
    nodes = cluster(3)
    hot = [seen(index, on=each.name, hot={90: 900}) for each in nodes for index in range(7)]
    plan = planned(*hot, seen(7, on="n2", uncorrectable=1), nodes=nodes)

    told = lines(plan)
    assert told[0] == "22 findings at GPUs:"
    assert [" ".join(line.split()[:5]) for line in told if line.startswith("  !")] == [
        "! excluded 1 GPU uncorrectable",
        "! look at 21 GPUs",
    ]
    assert "on n[0-2]" in " ".join(told)
    assert told[-1] == "  Grouped by rule; each one: gpuplan show plan.json --all"
    assert len([line for line in lines(plan, verbose=True) if line.startswith("  !")]) == 22


def test_without_measurements_nothing_is_told():
    plan = planned()

    assert lines(plan) == []
    assert measured_figures(plan) == []
    assert "measured" not in text(plan)


@pytest.mark.parametrize(
    ("measured", "told"),
    [
        (
            [seen(0, utilization=40, memory_mib=MIB), seen(1, utilization=60, memory_mib=0)],
            "measured 50.0 % busy, 50.0 % of memory in use, 2 GPUs over 15m",
        ),
        ([seen(0, utilization=0, period=0)], "measured 0.0 % busy, 1 GPU"),
        ([seen(0, memory_mib=MIB, period=0)], "measured 100.0 % of memory in use, 1 GPU"),
        ([seen(0), seen(1, period=60)], "measured 2 GPUs over 1m"),
        # More memory in use than there is counts as all of it, and a GPU that is not there as nothing.
        ([seen(0, memory_mib=2 * MIB), seen(9)], "measured 100.0 % of memory in use, 1 GPU over 15m"),
    ],
)
def test_what_is_unknown_of_all_is_left_out(measured, told):
    assert measured_figures(planned(*measured)) == [told]


def test_queues_that_use_least_of_what_they_hold_come_first_and_unknown_ones_last():
    jobs = [
        job("busy", gpus=1, queue="a", at=[replica("n0", gpus=[0])]),
        job("idle", gpus=2, queue="b", at=[replica("n0", gpus=[1, 2])]),
        job("dark", gpus=1, queue="c", at=[replica("n0", gpus=[3])]),
        job("half", milli=500, queue="b", at=[replica("n0", gpus=[4], milli=500)]),
    ]
    measured = [
        seen(0, utilization=90, memory_mib=MIB),
        seen(1, utilization=0),
        seen(2, utilization=10),
        seen(3),
        seen(4, utilization=100),
    ]

    rows = queue_use_table(planned(*measured, jobs=jobs, queues=[queue("a"), queue("b"), queue("c")])).rows

    assert [row.cells for row in rows] == [
        # One GPU of 0 %, one of 10 %, and half of one of 100 %.
        ("b", "2.5 GPUs", "24.0 %", "unknown"),
        ("a", "1 GPU", "90.0 %", "100.0 %"),
        ("c", "1 GPU", "unknown", "unknown"),
    ]
