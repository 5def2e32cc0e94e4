"""The comparison of greedy with the exact solvers: same jobs for both, and tables that say who is better."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from benchmarks import greedy_claim
from benchmarks.greedy_claim import SOLVERS, claim_tables, contests, measure
from benchmarks.records import read
from planner.simulation.clock import Clock

PHILLY = "timestamp,duration,num_gpus,cluster\n2017-10-09 07:00:00,600,1,vc\n"


def record(solver, wait, *, seed=0, case="somewhere", at_least=False):
    figure = {"value": wait, "at_least": at_least}
    times = {"mean": figure, "p50": figure, "p95": figure, "p99": figure}
    scores = {"wait": times, "completion": times, "slowdown": times, "worth_wait": figure}
    counts = {"finished": 9, "jobs": 10, "preemptions": 1, "planning_seconds": 5.0}
    parts = {"gpu_utilization": 0.5, "lost_gpu_hours": 0.25, "jain_mean": 0.75}
    about = {"case": case, "seed": seed, "policy": "default", "solver": solver, "epochs": 10}
    return {"benchmark": greedy_claim.NAME} | about | {"scores": scores | counts | parts}


def rows(text, first):
    return [line for line in text.splitlines() if line.startswith(f"| {first} ")]


def test_the_ratio_is_the_geometric_mean_and_counts_where_greedy_is_better():
    given = [record("greedy", 600), record("auto", 1200), record("greedy", 800, seed=1)]

    shown = claim_tables([*given, record("auto", 100, seed=1)])

    assert rows(shown, "default")[0].split(" | ")[2] == "2.00 (1 of 2)"


def test_only_pairs_are_compared_and_the_last_of_each_counts():
    given = [record("greedy", 1), record("greedy", 50), record("auto", 100), record("greedy", 7, seed=4)]

    shown = claim_tables(given)

    assert rows(shown, "default")[0].split(" | ")[2] == "0.50 (1 of 1)"


def test_lower_bounds_are_marked():
    shown = claim_tables([record("greedy", 600, at_least=True), record("auto", 600)])

    assert [line.count("≥") for line in rows(shown, "default")[1:]] == [4, 0]


def test_traces_whose_data_is_not_there_are_left_out(tmp_path):
    path = tmp_path / "philly.csv"
    path.write_text(PHILLY)

    assert [each.name for each in contests([0], openb=None, philly=None)] == ["synthetic"]
    assert [each.name for each in contests([0], openb=None, philly=path)] == ["synthetic", "Philly"]


@pytest.mark.parametrize("policy", greedy_claim.POLICIES)
def test_both_are_measured_over_the_same_jobs(policy, tmp_path):
    (contest,) = contests([3], openb=None, philly=None)
    short = replace(contest, clock=Clock(3600, 3600))

    measured = measure(short, policy, log_file=tmp_path / "log", at_a_time=2)

    assert [each["solver"] for each in measured] == list(SOLVERS)
    assert len({each["scores"]["jobs"] for each in measured}) == 1
    logged = read(Path(tmp_path / "log"), greedy_claim.NAME)
    assert [each["scores"] for each in logged] == [each["scores"] for each in measured]
