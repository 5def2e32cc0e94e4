"""`plan --search-log` and `search-log`, as people use them."""

from __future__ import annotations

import json

import pytest


@pytest.fixture
def logged(gpuplan, quickstart, tmp_path):
    """The log of a search, and the plan that it led to."""
    shown = gpuplan("plan", quickstart, "--search-log", "search.jsonl", "-o", "plan.json")
    assert (shown.code, shown.err) == (0, "")
    return tmp_path / "search.jsonl", json.loads((tmp_path / "plan.json").read_text())


def test_a_search_is_logged_from_the_question_to_the_plan(logged):
    log, plan = logged
    lines = [json.loads(line) for line in log.read_text().splitlines()]

    assert lines[0]["event"] == "began"
    assert list(lines[0]["solvers"]) == ["milp", "cpsat"]
    assert lines[0]["solvers"]["milp"].startswith("highspy 1.")
    assert (lines[0]["nodes"], lines[0]["waiting"]) == (6, 9)
    known = [line for line in lines if line["event"] == "milestone"]
    assert known
    assert [line["seconds"] for line in known] == sorted(line["seconds"] for line in known)
    assert lines[-1]["event"] == "finished"
    assert lines[-1]["plan"] == plan["plan_id"]
    assert lines[-1]["objective"] == plan["solution"]["objective"] == known[-1]["objective"]


def test_the_log_is_shown_as_a_table(gpuplan, logged):
    log, plan = logged

    shown = gpuplan("search-log", log)

    assert shown.code == 0
    assert "9 waiting jobs on 6 nodes" in shown.out
    assert "SECONDS  STAGE" in shown.out
    assert f"Plan {plan['plan_id'][:8]} is {plan['solution']['solver']}'s" in " ".join(shown.out.split())


@pytest.mark.slow
def test_the_gap_is_drawn(gpuplan, logged, tmp_path):
    assert gpuplan("search-log", logged[0], "-o", "gap.svg").code == 0

    assert "</svg>" in (tmp_path / "gap.svg").read_text()


def test_a_picture_of_another_kind_is_a_usage_error(gpuplan, logged):
    shown = gpuplan("search-log", logged[0], "-o", "gap.pdf")

    assert shown.code == 2
    assert ".svg or .png" in shown.err


def test_what_is_no_log_is_bad_input(gpuplan, logged, tmp_path):
    assert gpuplan("search-log", tmp_path / "plan.json").code == 24
    assert gpuplan("search-log", "nowhere.jsonl").code == 24


def test_a_log_that_cannot_be_written_is_told_before_the_search(gpuplan, quickstart):
    shown = gpuplan("plan", quickstart, "--search-log", "no/where.jsonl")

    assert (shown.code, shown.out) == (1, "")
    assert "no/where.jsonl cannot be written" in shown.err


def test_a_full_disk_costs_the_log_and_not_the_plan(gpuplan, quickstart):
    shown = gpuplan("plan", quickstart, "--solver", "greedy", "--search-log", "/dev/full")

    assert shown.code == 0
    assert "Plan: 5 to start" in shown.out
    assert shown.err == "The search log /dev/full is not complete: No space left on device.\n"
