"""`gpuplan explain` as people use it: with a plan, with a snapshot, as JSON, and with a wrong name."""

from __future__ import annotations

import json


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
    assert f"no job has the name '{name}x'" in shown.err
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
