"""`gpuplan simulate` as people use it: alone, side by side, as JSON and CSV, and with wrong options."""

from __future__ import annotations

import csv
import json
import shutil
from pathlib import Path
from threading import Lock

import pytest

from gpuplan.planner.simulate import compare_runs
from tests.support.doubles.broken_solvers import apart_in_this_process

pytestmark = pytest.mark.slow

POLICY = "solvers: []\nobjective: {goal: value}\nweights: {basis: job}\n"
PHILLY = "timestamp,duration,num_gpus,cluster\n2017-10-09 07:00:00,600,1,vc\n2017-10-09 07:20:00,60,16,vc\n"
SHORT = ("--every", "1h", "--epochs", "2", "--solver", "greedy")


@pytest.fixture(autouse=True)
def _runs_in_this_process(monkeypatch):
    """One after the other; tests/planner/simulate has their processes."""
    alone = Lock()

    def run(*arguments):
        with alone:
            return apart_in_this_process(*arguments)

    monkeypatch.setattr(compare_runs, "run_in_child", run)


@pytest.fixture
def trace(tmp_path):
    path = tmp_path / "philly.csv"
    path.write_text(PHILLY)
    return path


def rows(name):
    return list(csv.DictReader(Path(name).read_text(encoding="utf-8").splitlines()))


def test_the_jobs_of_a_snapshot_are_replayed(gpuplan, quickstart):
    shown = gpuplan("simulate", quickstart, *SHORT)

    assert shown.code == 0, shown.err
    assert shown.out.startswith("Simulation of 8 jobs on 6 nodes with 36 GPUs\n")
    assert "greedy: 2 epochs in 1h, until the time was over\n" in shown.out
    assert shown.err == ""


def test_json_is_one_document_with_scores_and_series(gpuplan, quickstart, trace):
    shown = gpuplan("simulate", quickstart, "--arrivals", trace, *SHORT, "--json")

    document = json.loads(shown.out)
    (run,) = document["runs"]
    assert document["added_queues"] == ["vc"]
    assert [epoch["at"] for epoch in run["epochs"]] == ["2026-11-20T12:00:00Z", "2026-11-20T13:00:00Z"]
    assert run["scores"]["jobs"] == 10
    assert set(run["scores"]["wait"]["p95"]) == {"value", "at_least"}


def test_policies_and_solvers_stand_side_by_side_over_the_same_jobs(gpuplan, quickstart, tmp_path, trace):
    (tmp_path / "alike.yaml").write_text(POLICY)
    (tmp_path / "default.yaml").write_text("solvers: []\n")
    policies = ("--policy", tmp_path / "alike.yaml", "--policy", tmp_path / "default.yaml")

    shown = gpuplan(
        "simulate", quickstart, *policies, "--arrivals", trace, *SHORT, "--solver", "auto", "--json"
    )

    runs = json.loads(shown.out)["runs"]
    assert [run["name"] for run in runs] == ["alike greedy", "alike auto", "default greedy", "default auto"]
    assert {run["scores"]["jobs"] for run in runs} == {10}


def test_series_and_scores_are_written_as_csv(gpuplan, quickstart):
    gpuplan("simulate", quickstart, *SHORT, "--csv", "series.csv", "--scores", "scores.csv")

    series = rows("series.csv")
    scores = {row["score"]: row for row in rows("scores.csv")}
    assert [(row["run"], row["number"]) for row in series] == [("greedy", "0"), ("greedy", "1")]
    assert int(series[0]["started"]) > 0
    assert scores["wait_p50"]["at_least"] in ("True", "False")
    assert float(scores["jobs"]["value"]) == 8


def test_ascii_shows_nothing_beyond(gpuplan, quickstart):
    shown = gpuplan("simulate", quickstart, *SHORT, "--ascii")

    assert shown.out.isascii()
    assert ">= " in shown.out


def test_estimates_load_and_window_are_taken(gpuplan, quickstart, trace):
    options = ("--arrivals", trace, "--skip", "10m", "--load", "2", "--estimates", "3", "--submit-for", "1h")

    shown = gpuplan("simulate", quickstart, *options, *SHORT, "--json")

    assert json.loads(shown.out)["runs"][0]["scores"]["jobs"] == 9


@pytest.mark.parametrize(
    ("options", "word"),
    [
        (("--for", "1h", "--epochs", "2"), "give one of them"),
        (("--every", "0s"), "--every"),
        (("--estimates", "0.5"), "expected exact, none, or a factor"),
        (("--estimates", "often"), "expected exact, none, or a factor"),
        (("--epochs", "0"), "--epochs"),
        (("--load", "0"), "--load"),
    ],
)
def test_wrong_options_are_usage_errors(gpuplan, quickstart, options, word):
    shown = gpuplan("simulate", quickstart, *options)

    assert shown.code == 2
    assert word in shown.err


@pytest.mark.parametrize("option", ["--csv", "--scores", "--report"])
def test_a_file_that_cannot_be_written_is_refused_before_anything_is_replayed(
    gpuplan, quickstart, option, monkeypatch
):
    monkeypatch.setattr(compare_runs, "run_all_cases", None)

    shown = gpuplan("simulate", quickstart, *SHORT, option, "no/such/folder/file")

    assert (shown.code, shown.out) == (1, "")
    assert "no/such/folder/file cannot be written" in shown.err


def test_what_was_found_is_shown_though_a_file_cannot_be_written_any_more(
    gpuplan, quickstart, tmp_path, monkeypatch
):
    (tmp_path / "there").mkdir()
    hold = compare_runs.run_all_cases

    def and_gone(*given, **more):
        (tmp_path / "there").rmdir()
        return hold(*given, **more)

    monkeypatch.setattr(compare_runs, "run_all_cases", and_gone)
    shown = gpuplan("simulate", quickstart, *SHORT, "--csv", "there/series.csv")

    assert shown.code == 1
    assert "greedy: 2 epochs in 1h" in shown.out
    assert "there/series.csv cannot be written" in shown.err


def test_a_source_without_jobs_is_simulated_too(gpuplan, quickstart, tmp_path):
    source = tmp_path / "empty"
    shutil.copytree(quickstart, source)
    (source / "jobs.yaml").write_text("jobs: []\n")

    shown = gpuplan("simulate", source, "--solver", "greedy", "--report", "r.html")

    assert (shown.code, shown.err) == (0, "")
    assert shown.out.startswith("Simulation of 0 jobs on 6 nodes with 36 GPUs\n")


def test_a_bad_trace_is_bad_input_and_nothing_is_replayed(gpuplan, quickstart, tmp_path):
    path = tmp_path / "bad.csv"
    path.write_text(PHILLY + "never,1,1,vc\n")

    shown = gpuplan("simulate", quickstart, "--arrivals", path)

    assert shown.code == 24
    assert "bad.csv:4: timestamp is 'never'" in shown.err
    assert shown.out == ""


def test_outages_are_of_nodes_that_exist(gpuplan, quickstart, tmp_path):
    path = tmp_path / "outages.csv"
    path.write_text("second,node,event\n60,nowhere,fails\n")

    shown = gpuplan("simulate", quickstart, "--outages", path)

    assert shown.code == 24
    assert "outages.csv:2: node is 'nowhere'; expected a node of the cluster" in shown.err


def test_baselines_stand_beside_solvers_and_are_run_once_whatever_the_policies(gpuplan, quickstart, tmp_path):
    (tmp_path / "alike.yaml").write_text(POLICY)
    (tmp_path / "default.yaml").write_text("solvers: []\n")
    policies = ("--policy", tmp_path / "alike.yaml", "--policy", tmp_path / "default.yaml")

    shown = gpuplan(
        "simulate", quickstart, *policies, *SHORT, "--solver", "easy", "--solver", "srpt", "--json"
    )

    runs = json.loads(shown.out)["runs"]
    assert [run["name"] for run in runs] == ["alike", "default", "easy", "srpt"]
    assert {run["scores"]["jobs"] for run in runs} == {8}
    assert {epoch["solver"] for epoch in runs[2]["epochs"]} == {"easy"}
    assert runs[2]["epochs"][0]["objective"] is None


def test_an_unknown_solver_is_refused_with_those_there_are(gpuplan, quickstart):
    shown = gpuplan("simulate", quickstart, "--solver", "fefo")

    assert shown.code == 2
    assert "'fefo' is none of auto, milp, cpsat, greedy, all-baselines, fifo, fifo-skip, easy" in shown.err


def test_epochs_are_where_something_happens_with_every_event(gpuplan, quickstart, trace):
    options = ("--arrivals", trace, "--solver", "fifo-skip", "--every", "event", "--epochs", "3", "--json")

    document = json.loads(gpuplan("simulate", quickstart, *options).out)

    # One job comes at once and ends at 10 minutes, another one comes at 20.
    times = [epoch["at"] for epoch in document["runs"][0]["epochs"]]
    assert (document["at_events"], document["every"]) == (True, 3600)
    assert times == [f"2026-11-20T12:{minute}:00Z" for minute in ("00", "10", "20")]


@pytest.mark.parametrize(
    ("options", "word"),
    [
        (("--every", "5m", "--min-interval", "30s"), "--min-interval is for epochs at events"),
        (("--every", "5m", "--max-interval", "30s"), "--max-interval is for epochs at events"),
        (("--every", "event", "--min-interval", "2h"), "expected --max-interval of at least --min-interval"),
        (("--every", "event", "--max-interval", "0s"), "expected --max-interval of at least"),
    ],
)
def test_intervals_are_those_between_events(gpuplan, quickstart, options, word):
    shown = gpuplan("simulate", quickstart, *options)

    assert (shown.code, shown.out) == (2, "")
    assert word in shown.err.replace("\n", " ")
