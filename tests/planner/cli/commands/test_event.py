"""`gpuplan event`: on a simulated cluster and on a snapshot, and with wrong options."""

from __future__ import annotations

import json

import pytest


@pytest.fixture
def cluster(gpuplan, quickstart):
    gpuplan("simulated", "create", quickstart)


def reservations(gpuplan):
    found = json.loads(gpuplan("snapshot", "--from", "simulated").out)["cluster"]
    return found.get("reservations", []), [each["name"] for each in found["nodes"] if each.get("drain")]


@pytest.mark.usefixtures("cluster")
def test_a_notice_is_recorded_answered_and_applied(gpuplan):
    (name,) = [
        each["name"]
        for each in json.loads(gpuplan("snapshot", "--from", "simulated").out)["cluster"]["nodes"]
    ][:1]

    shown = gpuplan("event", "simulated", "spot-notice", "--node", name, "--at", "+120s", "-o", "plan.json")

    assert shown.code == 0, shown.err
    (window,), drained = reservations(gpuplan)
    assert (window["name"], window["kind"], window["nodes"]) == (f"spot-notice-{name}", "maintenance", [name])
    assert drained == [name]
    assert gpuplan("apply", "plan.json", "--executor", "simulated", "--auto-approve").code == 0


def test_a_snapshot_is_planned_and_not_changed(gpuplan, quickstart):
    before = {path.name: path.read_bytes() for path in quickstart.iterdir() if path.is_file()}
    node = json.loads(gpuplan("plan", quickstart, "--json").out)["nodes"][0]["name"]

    shown = gpuplan(
        "event", quickstart, "maintenance", "--node", node, "--at", "+2m", "--until", "+2h", "--json",
        "--detailed-exitcode",
    )  # fmt: skip

    plan = json.loads(shown.out)
    assert shown.code == 10
    assert [each["name"] for each in plan["snapshot"]["cluster"]["reservations"]] == [f"maintenance-{node}"]
    assert plan["solution"]["solver"] == "greedy"
    assert {path.name: path.read_bytes() for path in quickstart.iterdir() if path.is_file()} == before


@pytest.mark.parametrize("at", ["soon", "120", "+", "+2x", "12:00"])
def test_a_time_that_is_none_is_a_usage_error(gpuplan, quickstart, at):
    shown = gpuplan("event", quickstart, "spot-notice", "--node", "n1", "--at", at)

    assert shown.code == 2
    assert "expected +120s, or a time such as 2026-11-20T18:00:00Z" in " ".join(shown.err.split())


def test_a_notice_for_an_unknown_node_changes_nothing(gpuplan, cluster):
    del cluster
    before = reservations(gpuplan)

    shown = gpuplan("event", "simulated", "spot-notice", "--node", "nope", "--at", "+120s")

    assert shown.code == 1
    assert "no node has the name nope" in shown.err
    assert reservations(gpuplan) == before


def test_a_host_takes_no_notices(gpuplan):
    shown = gpuplan("event", "local", "spot-notice", "--node", "n", "--at", "+1h")

    assert shown.code == 2
    assert "A host takes no notices: expected simulated, slurm or a snapshot" in " ".join(shown.err.split())


def test_a_maintenance_without_an_end_says_what_to_give(gpuplan, quickstart):
    shown = gpuplan("event", quickstart, "maintenance", "--node", "a100-1", "--at", "+4h")

    assert shown.code == 1
    assert "Give `--until`." in shown.err


def test_jobs_that_run_on_for_now_are_told_with_the_next_step(gpuplan, quickstart):
    gpuplan("plan", quickstart, "-o", "plan.json")
    gpuplan("apply", "plan.json", "--executor", "simulated", "--auto-approve")

    shown = gpuplan("event", "simulated", "maintenance", "--node", "a100-1", "--at", "+4h", "--until", "+6h")

    assert "preempt" not in shown.out
    assert "captioner runs on for now" in " ".join(shown.err.split())
    assert "notebook" not in shown.err


@pytest.mark.parametrize(
    ("command", "step"),
    [
        (("simulated", "advance", "1h"), "`gpuplan simulated create SOURCE` makes one"),
        (("history",), "`gpuplan run` writes it"),
        (("search-log", "nofile"), "`gpuplan plan --search-log FILE` writes one."),
        (("audit", "show"), "`gpuplan apply` writes it"),
    ],
)
def test_what_is_missing_is_told_with_the_command_that_makes_it(gpuplan, command, step):
    shown = gpuplan(*command)

    assert shown.code != 0
    assert step in shown.err
