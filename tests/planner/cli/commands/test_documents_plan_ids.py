"""Ids of `gpuplan history` stand for the plan files of a run."""

from __future__ import annotations

import pytest


@pytest.fixture
def plan_id(gpuplan, quickstart):
    """The id of a plan that a run has kept, as `history` prints it."""
    assert gpuplan("run", quickstart, "--epochs", "1", "--solver", "greedy").code == 0
    row = gpuplan("history").out.splitlines()[1]
    return row.split()[3]


def test_an_id_works_wherever_a_plan_file_does(gpuplan, quickstart, plan_id):
    assert len(plan_id) == 8
    assert f"Plan {plan_id}" in gpuplan("show", plan_id).out
    assert f"Diff of plan {plan_id}" in gpuplan("diff", plan_id).out
    assert gpuplan("verify", plan_id, quickstart).code == 0
    assert gpuplan("explain", plan_id, "train-base").code == 0
    applied = gpuplan("apply", plan_id, "--executor", "simulated", "--auto-approve")
    assert (applied.code, "Apply complete" in applied.out) == (0, True)


def test_the_beginning_of_an_id_is_enough(gpuplan, plan_id):
    assert f"Plan {plan_id}" in gpuplan("show", plan_id[:4]).out


def test_an_id_that_no_plan_has_is_refused_with_what_to_do(gpuplan, plan_id):
    other = "0" * 8 if plan_id != "0" * 8 else "1" * 8

    shown = gpuplan("show", other)

    assert shown.code == 2
    assert "gpuplan history" in shown.err


def test_a_file_of_that_name_comes_first(gpuplan, plan_file, tmp_path, plan_id):
    plan_file.rename(tmp_path / plan_id)

    assert gpuplan("show", plan_id).code == 0


def test_an_ambiguous_beginning_is_refused(gpuplan, tmp_path, plan_id):
    (kept,) = (tmp_path / ".gpuplan" / "plans").glob("0*.json")
    (kept.parent / f"000002-{plan_id[:4]}ffff.json").write_bytes(kept.read_bytes())

    shown = gpuplan("show", plan_id[:4])

    assert shown.code == 2
    assert "several plans" in shown.err
