"""Greedy, exact solvers and rules compared: the same jobs for all, and tables that say which is better."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from benchmarks import greedy_claim
from benchmarks.greedy_claim import ENTRANTS, KINDS, claim_tables, contests, measure
from benchmarks.records import read
from gpuplan.planner.simulate import compare_runs
from gpuplan.planner.simulate.run_options import EpochClock
from tests.support.doubles.broken_solvers import apart_in_this_process

PHILLY = "timestamp,duration,num_gpus,cluster\n2017-10-09 07:00:00,600,1,vc\n"


def record(entrant, completion, *, seed=0, case="somewhere", at_least=False):
    figure = {"value": completion, "at_least": at_least}
    times = {"mean": figure, "p50": figure, "p95": figure, "p99": figure}
    scores = {"wait": times, "completion": times, "slowdown": times, "worth_wait": figure}
    counts = {"finished": 9, "jobs": 10, "preemptions": 1, "planning_seconds": 5.0}
    parts = {"gpu_utilization": 0.5, "lost_gpu_hours": 0.25}
    about = {"case": case, "seed": seed, "entrant": entrant, "epochs": 10}
    return {"benchmark": greedy_claim.NAME} | about | {"scores": scores | counts | parts}


def contest(seed, **completions):
    """All entrants on one seed, an hour each unless it is said otherwise; `_` is for a blank."""
    named = {
        name.replace("_", " ").replace(" turns", ", with turns"): each for name, each in completions.items()
    }
    return [record(each, named.get(each, 3600), seed=seed) for each in ENTRANTS]


def judged(records):
    """Kind → what was chosen, and its completion by that of the exact solvers."""
    rows = [line.strip("| ").split(" | ") for line in claim_tables(records).splitlines()[2:6]]
    return {kind: (chosen, ratio) for _, kind, chosen, ratio, *_ in rows}


def test_what_is_chosen_on_one_half_is_judged_on_the_other():
    found = judged([*contest(0, sjf=1800), *contest(1, sjf=7200, easy=900)])

    # On the first seed sjf is best, easy on the second: each is judged where the other was chosen.
    assert found["rules that stop nothing"] == ("easy; sjf", "1.50 (2.00)")
    assert found["exact solvers"] == ("auto, default", "1.00")


def test_ratios_to_the_exact_solvers_are_a_median_and_the_worst():
    found = judged([*contest(0, greedy_turns=900), *contest(1, greedy_turns=1800)])

    assert found["greedy"] == ("greedy, with turns", "0.38 (0.50)")


def test_only_whole_contests_count_and_the_last_run_of_each():
    whole = [*contest(0), *contest(1)]

    assert claim_tables([*contest(0, srsf=1), *whole, record("srsf", 1, seed=2)]) == claim_tables(whole)


def test_lower_bounds_are_marked():
    first = [record(each, 600, at_least=each == "las") for each in ENTRANTS]

    shown = claim_tables([*first, *contest(1)])

    assert [line.split(" | ")[1] for line in shown.splitlines() if "≥" in line] == ["las"]


def test_every_entrant_is_of_one_kind():
    assert len(set(ENTRANTS)) == len(ENTRANTS) == sum(len(kind.entrants) for kind in KINDS)


@pytest.mark.slow
def test_traces_without_data_are_left_out(tmp_path):
    path = tmp_path / "philly.csv"
    path.write_text(PHILLY)

    assert [each.name for each in contests([0], openb=None, philly=None)] == ["synthetic"]
    assert [each.name for each in contests([0], openb=None, philly=path)] == ["synthetic", "Philly"]


@pytest.mark.slow
@pytest.mark.timeout(300)
def test_all_are_measured_over_the_same_jobs(tmp_path, monkeypatch):
    (found,) = contests([3], openb=None, philly=None)
    short = replace(found, clock=EpochClock(3600, 3600))
    # tests/planner/simulate has the processes of runs.
    monkeypatch.setattr(compare_runs, "run_in_child", apart_in_this_process)

    measured = measure(short, log_file=tmp_path / "log", at_a_time=1)

    assert [each["entrant"] for each in measured] == list(ENTRANTS)
    assert len({each["scores"]["jobs"] for each in measured}) == 1
    logged = read(Path(tmp_path / "log"), greedy_claim.NAME)
    assert [each["scores"] for each in logged] == [each["scores"] for each in measured]
