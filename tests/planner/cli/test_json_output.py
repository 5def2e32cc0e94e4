"""`--json`: one document on standard output and nothing else."""

from __future__ import annotations

import json

import pytest


@pytest.fixture
def ask(gpuplan):
    """Exit code and document of a command with --json."""

    def run(*words):
        shown = gpuplan(*words, "--json")
        assert shown.err == ""
        return shown.code, json.loads(shown.out)

    return run


def test_a_valid_source_with_its_figures_and_warnings(ask, tmp_path):
    (tmp_path / "s.yaml").write_text(
        "taken_at: 2026-11-20T12:00:00Z\ncluster: {nodes: [{name: n, gpus: {model: A, count: 2}}]}\n"
        "queues: [{name: q}]\n"
        "jobs: [{name: j, queue: q, request: {gpus: 4}, submitted_at: 2026-11-20T11:00:00Z}]\n"
    )

    code, found = ask("validate", "s.yaml")

    assert code == 0
    (warning,) = found.pop("warnings")
    assert warning.startswith("job 'j': no node is large enough")
    assert found == {
        "valid": True,
        "damaged": [],
        "nodes": 1,
        "gpus": 2,
        "queues": 1,
        "running": 0,
        "waiting": 1,
    }


def test_all_problems_of_a_source_with_their_places(ask, tmp_path):
    (tmp_path / "s.yaml").write_text("taken_at: soon\ncluster: {nodes: []}\nqueues: []\njobs: 3\n")

    code, found = ask("validate", "s.yaml")

    assert code == 24
    assert not found["valid"]
    assert {problem["place"] for problem in found["problems"]} == {"s.yaml:1", "s.yaml:4"}


def test_a_verified_plan(ask, plan_file, quickstart):
    code, found = ask("verify", plan_file, quickstart)

    assert (code, found["verified"], found["violations"]) == (0, True, [])
    assert found["terms"] == found["stated_terms"] == {"completion": found["objective"]}


def test_the_simulated_cluster(ask, quickstart):
    state = ("--state", "c.db")

    assert ask("simulated", "create", quickstart, *state)[1] == {"state": "c.db", "nodes": 6, "jobs": 10}
    assert ask("simulated", "advance", "1h", *state)[1]["now"] == "2026-11-20T13:00:00Z"
    assert ask("simulated", "fail", "h100-1", *state)[1]["waiting_again"] == ["embed-docs"]
    assert ask("simulated", "return", "h100-1", *state)[1] == {"state": "c.db", "up": "h100-1"}


@pytest.mark.slow
def test_findings_of_doctor(ask):
    code, found = ask("doctor")

    assert code == 0
    works = {each["subject"]: each["works"] for each in found["findings"]}
    assert works["python"] is True
    assert False not in works.values()


@pytest.fixture
def apply(gpuplan, quickstart, plan_file):
    """The command that applies a plan to a simulated cluster that exists."""
    assert gpuplan("simulated", "create", quickstart, "--state", "c.db").code == 0
    place = ("--state", "c.db", "--audit", "a.jsonl")
    return ("apply", plan_file, "--executor", "simulated", *place)


def test_an_apply_with_each_action_and_its_audit_log(ask, apply, plan_file):
    starts = [each["id"] for each in json.loads(plan_file.read_text())["actions"] if each["type"] == "start"]

    code, found = ask(*apply, "--auto-approve")
    assert (code, found["complete"], found["done"], found["not_done"]) == (0, True, starts, [])
    assert ask(*apply, "--auto-approve", "--resume")[1]["done_before"] == starts

    code, verified = ask("audit", "verify", "a.jsonl")
    records = ask("audit", "show", "a.jsonl")[1]["records"]
    assert (code, verified["records"], verified["last_hash"]) == (0, len(records), records[-1]["hash"])


def test_an_apply_that_would_ask_is_a_usage_error(gpuplan, apply):
    shown = gpuplan(*apply, "--json")

    assert (shown.code, shown.out) == (2, "")
    assert "--auto-approve" in shown.err
