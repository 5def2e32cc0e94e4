"""`gpuplan whatif`, `fit`, `capacity` and `sweep` as people use them."""

from __future__ import annotations

import io
import json

import pytest

from gpuplan.planner.cli.plan_request import count_progress
from tests.support.output.terminal_screen import blank

SCENARIOS = ("lose-rack", "more-nodes", "other-quota", "tenfold")


@pytest.fixture
def burst(quickstart):
    return quickstart.parent / "burst-scale-up"


def shipped(quickstart, *names):
    return [quickstart / f"scenario.{name}.yaml" for name in names]


@pytest.mark.slow
def test_shipped_scenarios_come_out_as_they_expect(gpuplan, quickstart):
    shown = gpuplan("whatif", quickstart, *shipped(quickstart, *SCENARIOS))

    assert shown.code == 0, shown.out
    assert shown.err == ""
    assert "4 scenarios, " in shown.out
    for name in SCENARIOS:
        assert name in shown.out


@pytest.mark.slow
def test_an_unchanged_world_is_planned_as_plan_does(gpuplan, quickstart, tmp_path):
    nothing = tmp_path / "nothing.yaml"
    nothing.write_text("name: nothing\n")

    planned = json.loads(gpuplan("plan", quickstart, "--json", "--deterministic").out)
    shown = gpuplan("whatif", quickstart, nothing, "--json", "--deterministic", "--jobs", "1")

    found = json.loads(shown.out)
    assert shown.code == 0
    assert found["base"]["figures"]["plan_id"] == planned["plan_id"]
    assert found["scenarios"][0]["figures"]["plan_id"] == planned["plan_id"]
    assert found["scenarios"][0]["differences"] == {}


@pytest.mark.slow
def test_an_expectation_that_is_not_met_ends_with_1(gpuplan, quickstart, tmp_path):
    scenario = tmp_path / "s.yaml"
    scenario.write_text("name: s\nexpectations: [{jobs_running: '>= 40'}]\n")

    shown = gpuplan("whatif", quickstart, scenario, "--solver", "greedy", "--ascii")

    assert shown.code == 1
    assert "s: expected jobs_running >= 40; found 6" in shown.out
    assert shown.out.isascii()


def test_what_is_wrong_with_scenarios_is_bad_input(gpuplan, quickstart, tmp_path):
    scenario = tmp_path / "s.yaml"
    scenario.write_text("name: s\nchanges:\n  - {change: fail_nodes, nodes: {names: [h100-9]}}\n")

    shown = gpuplan("whatif", quickstart, scenario)

    assert shown.code == 24
    assert shown.out == ""
    assert f"{scenario}:3: changes[0]: there is no node 'h100-9'." in shown.err
    assert "Maybe" in shown.err


@pytest.mark.slow
def test_a_report_is_written(gpuplan, quickstart, tmp_path):
    page = tmp_path / "page.html"

    shown = gpuplan(
        "whatif", quickstart, *shipped(quickstart, "other-quota"), "--solver", "greedy", "--report", page
    )

    assert shown.code == 0
    assert "other-quota" in page.read_text()


@pytest.mark.parametrize(
    "arguments",
    [
        [],
        ["s.yaml", "--sensitivity"],
        ["--sensitivity", "--steps", "0"],
        ["--sensitivity", "--steps", "a"],
        ["--sensitivity", "--report", "x.html"],
        ["s.yaml", "--steps", "1"],
        ["s.yaml", "--like", "h100-1"],
        ["s.yaml", "--scheduler", "tcp://127.0.0.1:1"],
        ["s.yaml", "--engine", "dask"],
    ],
)
def test_options_that_do_not_go_together_are_refused(gpuplan, quickstart, arguments):
    assert gpuplan("whatif", quickstart, *arguments).code == 2


@pytest.mark.slow
def test_the_value_of_more_nodes_is_told(gpuplan, quickstart):
    shown = gpuplan("whatif", quickstart, "--sensitivity", "--steps", "1", "--like", "a100-1", "--jobs", "2")

    assert shown.code == 0
    assert "4 × A100-40GB    1        +0       +0" in shown.out
    assert gpuplan("whatif", quickstart, "--sensitivity", "--like", "a100-9").code == 24


def test_how_many_more_fit_is_told(gpuplan, quickstart):
    shown = gpuplan("fit", quickstart, "captioner")

    assert shown.code == 0
    assert "8 more fit beside what runs, disturbing no job; 9 do not (proven by counting)." in shown.out
    assert "One more would wait: Resources" in shown.out


def test_a_job_may_come_from_a_file(gpuplan, quickstart, tmp_path):
    wanted = tmp_path / "job.yaml"
    wanted.write_text(
        "name: mine\nqueue: products\nsubmitted_at: 2026-11-20T12:00:00Z\n"
        "request: {gpus: 2}\ngpu_models: [A100-40GB]\n"
    )

    found = json.loads(gpuplan("fit", quickstart, "--file", wanted, "--json").out)

    assert (found["fits"], found["at_most"], found["nodes"]) == (2, 2, {"a100-1": 2})


def test_a_job_that_there_is_not_is_bad_input(gpuplan, quickstart, tmp_path):
    wanted = tmp_path / "job.yaml"
    wanted.write_text("name: mine\nqueue: product\nsubmitted_at: 2026-11-20T12:00:00Z\n")

    unknown = gpuplan("fit", quickstart, "captionr")
    astray = gpuplan("fit", quickstart, "--file", wanted)

    assert (unknown.code, astray.code) == (24, 24)
    assert "Maybe 'captioner' was meant." in unknown.err
    assert "which the snapshot does not have" in astray.err
    assert gpuplan("fit", quickstart).code == 2
    assert gpuplan("capacity", quickstart, "captionr", "rendr").err.count("no job has the name") == 2


def test_the_cheapest_nodes_are_told(gpuplan, burst):
    shown = gpuplan("capacity", burst, "--waiting")

    assert shown.code == 20
    assert shown.out.startswith("5 of 6 jobs run with 6 nodes more, for 76.80 an hour, disturbing no job.\n")
    assert "No other nodes are cheaper (proven), what their interruptions" in shown.out
    assert "1 job cannot run:\n  index: Resources" in shown.out


def test_jobs_for_which_there_is_room_need_no_nodes(gpuplan, quickstart):
    shown = gpuplan("capacity", quickstart, "train-ranker", "distill")

    assert shown.code == 0
    assert shown.out == "2 jobs run on what is free: no nodes are needed.\n"
    assert gpuplan("capacity", quickstart).code == 2


@pytest.mark.slow
def test_a_sweep_is_a_table_and_a_picture(gpuplan, quickstart, tmp_path):
    picture = tmp_path / "sweep.svg"

    shown = gpuplan(
        *("sweep", quickstart, "quota:research=8,16", "demand=1,2"),
        *("--pareto", "jobs_waiting,objective", "--solver", "greedy", "-o", picture),
    )

    assert shown.code == 0
    assert len([line for line in shown.out.splitlines() if line.strip()[:2] in ("8 ", "16")]) == 4
    assert " *" in shown.out
    assert picture.read_bytes().startswith(b"<?xml")


@pytest.mark.parametrize(
    ("arguments", "code"),
    [
        (["a.b=1"], 24),
        (["demand"], 24),
        (["demand=1", "--pareto", "objective"], 2),
        (["demand=1", "--pareto", "objective,beauty"], 2),
        (["demand=1", "-o", "picture.gif"], 2),
        ([], 2),
    ],
)
def test_sweeps_that_make_no_sense_are_refused(gpuplan, quickstart, arguments, code):
    assert gpuplan("sweep", quickstart, *arguments).code == code


@pytest.mark.slow
def test_the_schema_of_a_scenario_is_printed(gpuplan):
    assert json.loads(gpuplan("schema", "scenario").out)["title"] == "gpuplan scenario"


class Terminal(io.StringIO):
    def isatty(self):
        return True


def test_a_bar_counts_what_is_done_and_goes_away(monkeypatch):
    terminal = Terminal()
    monkeypatch.setattr("sys.stderr", terminal)
    monkeypatch.setenv("TERM", "xterm")

    with count_progress(2) as ended:
        ended("base")
        ended("more")

    assert "planning: more is done" in terminal.getvalue()
    assert "2/2" in terminal.getvalue()
    assert blank(terminal.getvalue().replace("\x1b[0m", ""))


def test_in_a_pipe_nothing_is_shown(monkeypatch, capsys):
    with count_progress(1) as ended:
        ended("base")

    assert capsys.readouterr().err == ""
