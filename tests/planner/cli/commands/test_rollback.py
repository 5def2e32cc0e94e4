"""`gpuplan rollback`: from an apply back to the cluster before it, and what is said of wrong inputs."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.planner.cli.conftest import QUICKSTART

PREEMPTING = QUICKSTART.parent / "preempt-for-priority"
APPLY = ("--executor", "simulated", "--auto-approve")


@pytest.fixture
def applied(gpuplan):
    """The scenario is planned and applied."""
    assert gpuplan("plan", PREEMPTING, "--solver", "greedy", "-o", "plan.json").code == 0
    assert gpuplan("apply", "plan.json", *APPLY).code == 0


def _running(world):
    return {job["name"]: job["running"]["replicas"] for job in world.get("jobs", ()) if job.get("running")}


def now(gpuplan):
    return json.loads(gpuplan("snapshot", "--from", "simulated").out)


@pytest.mark.usefixtures("applied")
def test_what_was_stopped_runs_again_where_it_ran(gpuplan):
    before = _running(json.loads(gpuplan("plan", PREEMPTING, "--solver", "greedy", "--json").out)["snapshot"])
    made = gpuplan("rollback", "plan.json", "-o", "back.json", "--detailed-exitcode")
    assert made.code == 10, made.err
    assert "undoes plan" in made.out
    assert "Next: gpuplan apply back.json --executor simulated" in made.out
    assert gpuplan("verify", "back.json", _write(now(gpuplan))).code == 0
    assert gpuplan("apply", "back.json", *APPLY).code == 0

    after = _running(now(gpuplan))
    assert {name: after.get(name) for name in before} == before
    again = gpuplan("rollback", "plan.json", "--detailed-exitcode")
    assert again.code == 0
    assert "No changes: " in again.out


def _write(world):
    Path("now.json").write_text(json.dumps(world), encoding="utf-8")
    return "now.json"


@pytest.mark.usefixtures("applied")
def test_json_is_a_plan_that_says_what_stays(gpuplan):
    found = json.loads(gpuplan("rollback", "plan.json", "--json").out)

    assert found["rollback"]["done"] == 5
    assert {each["code"] for each in found["rollback"]["stays"]} == {"WorkLost"}
    assert {action["reason"]["code"] for action in found["actions"] if action["type"] == "start"} == {
        "RolledBack"
    }


@pytest.mark.usefixtures("applied")
def test_a_snapshot_and_the_log_are_enough(gpuplan):
    by_cluster = json.loads(gpuplan("rollback", "plan.json", "--json").out)

    by_log = json.loads(gpuplan("rollback", "plan.json", _write(now(gpuplan)), "--json").out)

    assert by_log["plan_id"] == by_cluster["plan_id"]


@pytest.mark.slow
@pytest.mark.usefixtures("applied")
@pytest.mark.parametrize(
    ("arguments", "code", "message"),
    [
        (("plan.json", "--audit", "none.jsonl"), 1, "no audit log is at none.jsonl: expected the log of the"),
        (("plan.json", "--state", "none.db"), 1, "none.db"),
        (("plan.json", QUICKSTART), 21, "is for another cluster"),
        (("other.json",), 21, "is for another cluster"),
        (("again.json",), 1, "was never applied here: the audit log .gpuplan/audit.jsonl does not have it"),
        (("plan.json", PREEMPTING, "--executor", "simulated"), 2, "--executor is for a cluster; expected no"),
        (("plan.json", "-o", "plan.json"), 1, "plan.json cannot be written: PLAN_FILE reads it"),
        (("nothing.json",), 24, "nothing.json"),
    ],
)
def test_wrong_inputs_are_told(gpuplan, arguments, code, message):
    gpuplan("plan", QUICKSTART, "--solver", "greedy", "-o", "other.json")
    gpuplan("plan", PREEMPTING, "--solver", "greedy", "--seed", "3", "-o", "again.json")

    shown = gpuplan("rollback", *arguments)

    assert shown.code == code, shown.err
    assert message in " ".join(shown.err.split())
    assert shown.out == ""


def test_without_executor_the_cluster_is_of_the_kind_that_the_plan_was_made_for(gpuplan, monkeypatch):
    monkeypatch.setenv("PATH", "")
    world = {
        "taken_at": "2026-11-20T12:00:00Z",
        "cluster": {"nodes": [{"name": "n1", "cpus": 8, "memory_mib": 1024, "labels": {"slurm/node": "n1"}}]},
        "queues": [{"name": "low"}],
    }
    assert gpuplan("plan", _write(world), "-o", "slurm.json").code == 0

    shown = gpuplan("rollback", "slurm.json")

    assert shown.code == 1
    assert "Slurm" in shown.err
    assert "simulated" not in shown.err
