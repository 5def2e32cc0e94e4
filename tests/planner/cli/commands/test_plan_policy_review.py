"""`gpuplan diff --policy` as people and continuous integration use it."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

pytestmark = pytest.mark.slow

SCENARIO = Path(__file__).parents[4] / "scenarios" / "preempt-for-priority"
GREEDY = ("--solver", "greedy")


@pytest.fixture
def policies(tmp_path):
    old, new = tmp_path / "old.yaml", tmp_path / "new.yaml"
    old.write_text("disruption: {preempt: false}")
    new.write_text("disruption: {preempt: true}")
    return old, new


def test_a_change_that_matters_ends_with_ten(gpuplan, policies):
    old, new = policies

    shown = gpuplan("diff", "--policy", old, new, SCENARIO, *GREEDY, "--detailed-exitcode")

    assert shown.code == 10
    assert "disruption.preempt  off → on" in shown.out
    assert max(map(len, shown.out.splitlines())) <= 80


def test_a_change_that_does_not_matter_ends_with_nought(gpuplan, policies):
    old, _ = policies

    assert gpuplan("diff", "--policy", old, old, SCENARIO, *GREEDY, "--detailed-exitcode").code == 0


def test_without_the_option_a_change_is_no_failure(gpuplan, policies):
    assert gpuplan("diff", "--policy", *policies, SCENARIO, *GREEDY).code == 0


def test_json_is_one_document(gpuplan, policies):
    shown = gpuplan("diff", "--policy", *policies, SCENARIO, *GREEDY, "--json")

    assert [each["path"] for each in json.loads(shown.out)["knobs"]] == ["disruption.preempt"]


def test_a_review_needs_something_to_plan(gpuplan, policies):
    shown = gpuplan("diff", "--policy", *policies)

    assert shown.code == 2
    assert "SOURCE" in shown.err


def test_a_policy_that_cannot_be_read_is_bad_input(gpuplan, policies, tmp_path):
    assert gpuplan("diff", "--policy", tmp_path / "none.yaml", policies[1], SCENARIO).code == 24
