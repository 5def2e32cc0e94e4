"""Apply of changes of many kinds as people see it: the question, the account, the exit code."""

from __future__ import annotations

import json

import pytest

from gpuplan.models.errors import StalePlanError
from gpuplan.planner.plan_file.plan_file import save_plan
from tests.support.output.golden import figures
from tests.support.samples.all_actions import MOVING, PLAN, WORLD


@pytest.fixture
def made_by_hand(tmp_path, monkeypatch):
    """A plan file with changes of all ten kinds."""
    monkeypatch.setattr("gpuplan.planner.plan_file.plan_file.contradictions", lambda _: ())
    save_plan(PLAN, tmp_path / "plan.json")
    return tmp_path / "plan.json"


KINDS = (
    "3 starts, 1 growth, 1 shrink, 2 migrations, 1 preemption, 1 node {to add}, 1 MIG layout {to change}, "
    "1 node {to cordon}, 2 nodes {to drain} and 1 node {to remove}"
)


def one_line(text):
    return " ".join(text.split())


def test_the_question_counts_each_kind_of_change(gpuplan, made_by_hand, monkeypatch):
    monkeypatch.setattr("builtins.input", lambda _: "no")
    monkeypatch.setenv("COLUMNS", "80")

    shown = gpuplan("apply", made_by_hand, "--executor", "simulated")

    asked = KINDS.replace("{", "").replace("}", "")
    assert shown.code == 1
    assert f": {asked}? Only 'yes'" in one_line(shown.out)
    assert max(map(len, shown.out.splitlines())) <= 80


def test_the_account_tells_each_kind_of_change(gpuplan, made_by_hand):
    shown = gpuplan("apply", made_by_hand, "--executor", "simulated", "--auto-approve")

    done = KINDS
    for before, after in (
        ("to change", "changed"),
        ("to cordon", "cordoned"),
        ("to drain", "drained"),
        ("to add", "added"),
        ("to remove", "removed"),
    ):
        done = done.replace(f"{{{before}}}", after)
    assert shown.code == 0, shown.err
    assert f": {done}. " in shown.out
    assert shown.out.endswith(" .gpuplan/audit.jsonl\n")
    audited = gpuplan("audit", "show").out
    assert "migrate mover from old to n1" in audited
    assert "remove old from pool cloud" in audited


def test_a_plan_applied_again_has_nothing_left_to_do(gpuplan, made_by_hand):
    gpuplan("apply", made_by_hand, "--executor", "simulated", "--auto-approve")

    again = gpuplan("apply", made_by_hand, "--executor", "simulated", "--auto-approve")

    assert again.code == 0
    assert figures(again.out) == f"{PLAN.plan_id} 14"


def test_what_is_planned_applied_and_planned_again_comes_to_rest(gpuplan, tmp_path):
    (tmp_path / "world.json").write_text(json.dumps(WORLD.document()))
    (tmp_path / "policy.json").write_text(json.dumps(MOVING.document()))
    policy = ("--policy", "policy.json")
    assert gpuplan("plan", "world.json", *policy, "-o", "plan.json", "--detailed-exitcode").code == 10

    applied = gpuplan("apply", "plan.json", "--executor", "simulated", "--auto-approve")

    assert applied.code == 0, applied.err
    # A new node is being provisioned, and what starts there runs only from then on.
    gpuplan("snapshot", "--from", "simulated", "-o", "after.json")
    again = gpuplan("plan", "after.json", *policy, "--detailed-exitcode")
    assert again.code == 0, again.err
    assert "No changes" in again.out
    gpuplan("simulated", "advance", "10m")
    gpuplan("snapshot", "--from", "simulated", "-o", "later.json")
    assert gpuplan("validate", "later.json").code == 0


def test_a_plan_without_changes_names_the_command_that_makes_a_cluster(gpuplan, tmp_path):
    (tmp_path / "idle.json").write_text(json.dumps(WORLD.model_copy(update={"jobs": ()}).document()))
    (tmp_path / "still.json").write_text('{"pools": {"scale_down": false}}')
    gpuplan("plan", "idle.json", "--policy", "still.json", "-o", "plan.json")

    applied = gpuplan("apply", "plan.json", "--executor", "simulated", "--auto-approve")

    assert applied.code == 0
    assert "No changes" in applied.out
    assert "gpuplan simulated create SOURCE" in applied.out


def test_a_refused_apply_leaves_no_new_cluster_behind(gpuplan, tmp_path, monkeypatch):
    def refuse(*_, **__):
        raise StalePlanError("stale")

    (tmp_path / "world.json").write_text(json.dumps(WORLD.document()))
    gpuplan("plan", "world.json", "-o", "plan.json")
    monkeypatch.setattr("gpuplan.planner.apply.apply.apply_plan", refuse)

    assert gpuplan("apply", "plan.json", "--executor", "simulated", "--auto-approve").code == 21
    assert not (tmp_path / ".gpuplan" / "simulated.db").exists()
