"""`gpuplan explain` as people use it: with a plan, with a snapshot, as JSON, and with a wrong name."""

from __future__ import annotations

import json

import pytest

from tests.support.builders import build


def a_job(plan_file, type_):
    actions = json.loads(plan_file.read_text())["actions"]
    return next(action["job"] for action in actions if action["type"] == type_)


def test_a_saved_plan_and_its_source_tell_the_same(gpuplan, quickstart, plan_file):
    name = a_job(plan_file, "wait")

    saved = gpuplan("explain", plan_file, name)
    planned = gpuplan("explain", quickstart, name, "--solver", "greedy")

    assert saved.code == 0
    assert saved.out == planned.out
    assert saved.out.startswith(f"Job {name} waits\n")


def test_json_is_one_document(gpuplan, plan_file):
    name = a_job(plan_file, "start")

    shown = gpuplan("explain", plan_file, name, "--json")

    document = json.loads(shown.out)
    assert (document["job"], document["action"]) == (name, "start")


def test_an_unknown_job_is_bad_input_with_a_suggestion(gpuplan, plan_file):
    name = a_job(plan_file, "start")

    shown = gpuplan("explain", plan_file, f"{name}x")

    assert shown.code == 24
    assert shown.out == ""
    assert f"no job, queue or node has the name '{name}x'" in shown.err
    assert f"Maybe '{name}' was meant" in shown.err


def test_a_plan_that_was_tampered_with_is_refused(gpuplan, plan_file, tmp_path):
    document = json.loads(plan_file.read_text()) | {"seed": 7}
    forged = tmp_path / "forged.json"
    forged.write_text(json.dumps(document))

    assert gpuplan("explain", forged, "x").code == 23


def test_what_is_no_plan_is_read_as_a_snapshot(gpuplan, tmp_path):
    path = tmp_path / "bad.json"
    path.write_text("[1, 2")

    assert gpuplan("explain", path, "x").code == 24
    assert gpuplan("explain", tmp_path / "none.json", "x").code == 24


def test_queues_and_nodes_are_explained_too(gpuplan, plan_file):
    assert gpuplan("explain", plan_file, "research").out.startswith("Queue research\n")
    assert gpuplan("explain", plan_file, "node/h100-1").out.startswith("Node h100-1\n")
    assert json.loads(gpuplan("explain", plan_file, "queue/research", "--json").out)["queue"] == "research"
    assert json.loads(gpuplan("explain", plan_file, "h100-1", "--json").out)["node"] == "h100-1"


def test_what_would_help_is_told_in_text_and_json(gpuplan, plan_file):
    text = gpuplan("explain", plan_file, "ablation").out
    document = json.loads(gpuplan("explain", plan_file, "ablation", "--json").out)

    assert "raise the quota of queue research by 1.4 to 18.4" in text
    assert max(map(len, text.splitlines())) <= 80
    assert {part["kind"] for each in document["remedies"]["found"] for part in each["parts"]} >= {"quota"}


def test_ascii_has_no_other_characters(gpuplan, plan_file):
    for name in ("ablation", "train-ranker", "research", "h100-1"):
        assert gpuplan("explain", plan_file, name, "--ascii").out.isascii()


def test_a_plan_of_another_major_version_is_refused(gpuplan, plan_file, tmp_path):
    document = json.loads(plan_file.read_text()) | {"format_version": "9.0"}
    foreign = tmp_path / "foreign.json"
    foreign.write_text(json.dumps(document))

    shown = gpuplan("explain", foreign, "x")

    assert shown.code == 24
    assert "expected format_version 1.x" in shown.err


@pytest.mark.parametrize("slots", [1, 12])
def test_a_job_of_three_months_is_explained(gpuplan, tmp_path, slots):
    """Seconds and points are not counted as things are, of which there are a million at most."""
    held = [build.replica(gpus=range(8))]
    jobs = [
        build.job("r", gpus=8, at=held, expected_duration="2000h"),
        build.job("a", gpus=8, expected_duration="2200h", weight=100),
    ]
    world = build.snapshot(nodes=[build.node()], jobs=jobs)
    (tmp_path / "snapshot.json").write_text(json.dumps(world.document()))

    (tmp_path / "policy.yaml").write_text(f"horizon: {{slots: {slots}}}")
    policy = ("--policy", tmp_path / "policy.yaml")

    shown = gpuplan("explain", tmp_path / "snapshot.json", "a", "--solver", "greedy", *policy)

    assert shown.code == 0, shown.err
    assert shown.out.startswith("Job a waits\n")
