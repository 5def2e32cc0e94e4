"""The planner beside rules with the same knowledge: its traces, and the ratios of its tables."""

from __future__ import annotations

import pytest

from benchmarks.same_knowledge import POLICIES, RULES, Cell, cells, sources, tables, trace_of

KNOWN = sources(openb=None, philly=None)


@pytest.mark.slow
@pytest.mark.parametrize("cell", cells(KNOWN), ids=str)
def test_jobs_are_compressed_to_the_load_and_the_estimates_are_those_of_the_cell(cell):
    trace = trace_of(KNOWN[cell.trace], cell, seed=5)
    speeds = {"T4": 1, "V100": 2, "A100": 4}
    gpus = sum(node.gpu_count for node in trace.start.cluster.nodes)
    usual = sum(speeds[node.gpu_model] * node.gpu_count for node in trace.start.cluster.nodes) / gpus
    slowness = 4 / usual if "mixed GPUs" in cell.trace else 1
    times = [each.job.submitted_at for each in trace.coming]
    demand = sum(
        each.job.request.gpus * each.job.gang.maximum * each.duration * slowness for each in trace.coming
    )
    wrong = [
        (each.job.expected_duration or 0) / each.duration
        for each in trace.coming
        if each.job.expected_duration is not None
    ]

    assert gpus == 64
    assert demand / ((max(times) - min(times)).total_seconds() * gpus) == pytest.approx(cell.load, rel=0.01)
    match cell.estimates:
        case "none":
            assert wrong == []
        case "exact":
            assert set(wrong) == {1}
        case _:
            assert min(wrong) == pytest.approx(0.5, abs=0.1)
            assert max(wrong) == pytest.approx(2, abs=0.3)


def test_ratios_are_to_each_rule_and_to_the_best_rule_of_each_seed():
    cell = Cell("large gangs", 1.2, "exact")
    figures = {
        5: {"default": (110, 60), "fifo": (200, 100), "easy": (100, 50), "sjf": (220, 60)},
        6: {"default": (90, 60), "fifo": (180, 40), "easy": (120, 60), "sjf": (100, 60)},
        7: {"default": (90, 60)},
    }
    records = [
        {**cell._asdict(), "seed": seed, "entrant": entrant, "completion": mean, "p95": p95}
        for seed, entrants in figures.items()
        for entrant, (mean, p95) in entrants.items()
    ]

    (row,) = [line for line in tables(records).splitlines() if line.startswith("| large gangs")]

    assert [each.strip() for each in row.strip("|").split("|")] == [
        *("large gangs", "1.2", "exact", "2"),
        *("0.53 (0.55)", "0.93 (1.10)", "0.70 (0.90)", "1.00 (1.10)"),
        *("1.05 (1.50)", "1.10 (1.20)", "1.00 (1.00)"),
    ]
    assert set(RULES) == set(POLICIES)
