"""Promises as people see them: the question, the account, the exit codes, and `--after`."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from gpuplan.planner.executors.simulated import SimulatedCluster
from gpuplan.planner.plan_file.plan_file import save_plan
from gpuplan.planner.sources.files import snapshot_text
from tests.support.builders.build import job, snapshot
from tests.support.output.golden import figures
from tests.support.samples.promise_plans import (
    B_LATER,
    C_LATER,
    PLAN,
    PROMISES_ONLY,
    WORLD,
    promises_in,
    promising,
)

APPLY = ("--executor", "simulated", "--state", "c.db")
AFTER = {"b": B_LATER, "c": C_LATER}


@pytest.fixture
def saved(tmp_path, monkeypatch):
    """Saves a plan made by hand."""
    monkeypatch.setattr("gpuplan.planner.plan_file.plan_file.contradictions", lambda _: ())

    def save(plan):
        save_plan(plan, tmp_path / "plan.json")
        return tmp_path / "plan.json"

    return save


def kept(path="c.db"):
    with SimulatedCluster(path) as live:
        return promises_in(live)


@pytest.mark.parametrize(
    ("plan", "asked"),
    [
        (PLAN, ": 1 start; record 2 promises?"),
        (PROMISES_ONLY, ": record 2 promises?"),
        (promising(WORLD), ": clear all promises?"),
    ],
)
def test_the_question_names_the_promises(gpuplan, saved, monkeypatch, plan, asked):
    monkeypatch.setattr("builtins.input", lambda _: "no")

    shown = gpuplan("apply", saved(plan), *APPLY)

    assert shown.code == 1
    assert f"{asked} Only 'yes'" in " ".join(shown.out.split())


@pytest.mark.parametrize(
    ("plan", "account", "promises"),
    [
        (PLAN, ": 1 start; 2 promises recorded.", AFTER),
        (PROMISES_ONLY, ": no changes; 2 promises recorded.", AFTER),
        (promising(WORLD), ": no changes; promises cleared.", {}),
    ],
)
def test_the_account_tells_the_promises(gpuplan, saved, plan, account, promises):
    shown = gpuplan("apply", saved(plan), *APPLY, "--auto-approve")

    assert shown.code == 0, shown.err
    assert account in shown.out
    assert kept() == promises
    assert "promises" in gpuplan("audit", "show").out


def test_what_was_done_before_is_told_as_steps(gpuplan, saved):
    path = saved(PLAN)
    gpuplan("apply", path, *APPLY, "--auto-approve")

    again = gpuplan("apply", path, *APPLY, "--auto-approve")

    assert again.code == 0
    assert figures(again.out) == f"{PLAN.plan_id} 2"


def test_a_newer_snapshot_shows_a_withdrawn_promise_until_the_plan_is_carried_out(gpuplan, saved):
    path, told = saved(PLAN), []

    def shown(world):
        Path("now.json").write_text(snapshot_text(world))
        found = gpuplan("diff", path, "now.json", "--json")
        assert found.code == 0, found.err
        told.append({each["job"] for each in json.loads(found.out)["promises"] if each["live"]})

    shown(WORLD)
    gpuplan("apply", path, *APPLY, "--auto-approve")
    with SimulatedCluster("c.db") as live:
        shown(live.snapshot())

    assert told == [{"d"}, {"b", "c"}]


def test_a_plan_with_nothing_to_change_or_promise_is_not_applied(gpuplan, saved):
    shown = gpuplan("apply", saved(promising(snapshot(jobs=[job("a")]))), *APPLY)

    assert shown.code == 0
    assert "No changes" in shown.out


def test_a_plan_after_another_knows_its_promises(gpuplan, saved, tmp_path, monkeypatch):
    asked = []

    def planned(world, *_, **__):
        asked.append({each.name: each.promise for each in world.jobs if each.promise})
        return promising(world)

    monkeypatch.setattr("gpuplan.planner.epoch.plan_epoch", planned)
    forgetful = WORLD.model_copy(
        update={"jobs": tuple(each.model_copy(update={"promise": None}) for each in WORLD.jobs)}
    )
    (tmp_path / "now.json").write_text(snapshot_text(forgetful))

    assert gpuplan("plan", "now.json", "--json").code == 0
    assert gpuplan("plan", "now.json", "--json", "--after", saved(PLAN)).code == 0

    assert asked == [{}, AFTER]


def test_what_is_no_plan_or_was_tampered_with_is_refused_as_an_earlier_one(gpuplan, saved, tmp_path):
    (tmp_path / "now.json").write_text(snapshot_text(WORLD))
    path = saved(PLAN)
    assert gpuplan("plan", "now.json", "--after", "none.json").code == 24
    assert gpuplan("plan", "now.json", "--after", "now.json").code == 24

    path.write_text(path.read_text().replace('"2026-11-20T13:00:00Z"', '"2026-11-20T12:30:00Z"'))

    shown = gpuplan("plan", "now.json", "--after", path)
    assert shown.code == 23
    assert "the plan was changed after it was made" in shown.err


def test_promises_alone_are_no_changes_to_the_exit_code(gpuplan, tmp_path, monkeypatch):
    monkeypatch.setattr("gpuplan.planner.epoch.plan_epoch", lambda *_, **__: PROMISES_ONLY)
    (tmp_path / "now.json").write_text(json.dumps(WORLD.document()))

    assert gpuplan("plan", "now.json", "--json", "--detailed-exitcode").code == 0
