"""Apply checks first and asks afterwards: a question is put only about what can be done."""

from __future__ import annotations

import itertools
import json
import os
import shutil
from datetime import timedelta
from pathlib import Path

import pytest

from gpuplan.models.errors import PartlyAppliedError
from gpuplan.models.policy.policy import Policy
from gpuplan.planner.apply.audit_log import AuditLog
from gpuplan.planner.apply.promises import steps_of
from gpuplan.planner.epoch import plan_epoch
from gpuplan.planner.executors.simulated import SimulatedCluster
from gpuplan.planner.plan_file.plan_file import load_plan, save_plan
from tests.support.builders.audit_log_builders import ACTOR, log_of
from tests.support.builders.build import NOW, cluster, job, snapshot
from tests.support.doubles.interrupted_apply import preempting
from tests.support.output.golden import figures
from tests.support.samples.apply_world import carry_out, stop_after

APPLY = ("apply", "plan.json", "--executor", "simulated", "--state", "c.db", "--audit", "a.jsonl")


@pytest.fixture
def asked(monkeypatch):
    """The questions that were put, each answered with yes."""
    questions = []

    def answer(prompt):
        questions.append(prompt)
        return "yes"

    monkeypatch.setattr("builtins.input", answer)
    return questions


@pytest.fixture
def planned(tmp_path, monkeypatch):
    """Saves greedy's plan of a world, each a minute after the one before."""
    monkeypatch.chdir(tmp_path)
    minutes = itertools.count()

    def plan(name="prod", *, nodes=2):
        jobs = [job("a", gpus=2), job("b", gpus=2), job("c", gpus=2)]
        world = snapshot(nodes=cluster(nodes), name=name, jobs=jobs)
        made = plan_epoch(
            world, Policy(solvers=()), seed=0, created_at=NOW + timedelta(minutes=next(minutes))
        )
        save_plan(made, tmp_path / "plan.json")
        return made

    return plan


def test_a_plan_that_can_be_applied_is_asked_about_and_applied(gpuplan, planned, asked):
    planned()

    shown = gpuplan(*APPLY)

    assert (shown.code, len(asked)) == (0, 1)
    assert "Apply complete: 3 starts." in shown.out


def test_a_stale_plan_is_not_asked_about(gpuplan, planned, asked):
    planned()
    gpuplan(*APPLY)
    changed = planned()
    gpuplan("simulated", "advance", "1m", "--state", "c.db")

    shown = gpuplan(*APPLY)

    assert (shown.code, len(asked)) == (21, 1)
    assert figures(shown.err).startswith(f"{changed.plan_id} 3")
    assert "job a is already running" in shown.err


def test_a_plan_that_is_applied_says_so_at_once(gpuplan, planned, asked):
    plan = planned()
    gpuplan(*APPLY)

    shown = gpuplan(*APPLY)

    assert (shown.code, len(asked)) == (0, 1)
    assert figures(shown.out) == f"{plan.plan_id} 3"


def test_a_plan_for_a_cluster_of_another_name_names_both(gpuplan, planned, asked):
    planned("test", nodes=3)
    gpuplan(*APPLY)
    plan = planned("prod")

    shown = gpuplan(*APPLY)

    assert (shown.code, len(asked)) == (21, 1)
    assert figures(shown.err) == f"{plan.plan_id} 2 n0 n1 3 n0 n1 n2"
    _, expected, found, _ = shown.err.splitlines()
    assert ("cluster prod" in expected, "cluster test" in found) == (True, True)


def test_a_plan_for_a_cluster_that_has_none_of_its_nodes_is_for_another_one(gpuplan, planned, asked):
    SimulatedCluster.create("c.db", snapshot(nodes=[cluster(9)[8]])).close()
    planned("cluster")

    shown = gpuplan(*APPLY)

    assert (shown.code, asked) == (21, [])
    assert figures(shown.err).endswith(" 2 n0 n1 1 n8")


def test_a_cluster_without_a_name_may_be_the_one_that_is_meant(gpuplan, planned, asked):
    SimulatedCluster.create("c.db", planned("cluster").snapshot).close()
    planned("prod")

    assert gpuplan(*APPLY).code == 0
    assert len(asked) == 1


def test_a_plan_applied_in_part_is_not_asked_about_unless_it_is_to_be_resumed(gpuplan, planned, asked):
    plan = planned()
    with SimulatedCluster.create("c.db", plan.snapshot) as live, pytest.raises(PartlyAppliedError):
        carry_out(live, AuditLog("a.jsonl"), plan=plan, stop=stop_after(1))

    assert gpuplan(*APPLY).code == 22
    assert asked == []

    shown = gpuplan(*APPLY, "--resume")
    assert (shown.code, len(asked)) == (0, 1)
    assert "2 left of 3 changes: 2 starts?" in shown.out


def test_a_log_that_was_tampered_with_or_is_in_use_is_told_before_anything_is_asked(gpuplan, planned, asked):
    planned()
    log = log_of("a.jsonl")
    with log.writing(actor=ACTOR, now=lambda: NOW):
        busy = gpuplan(*APPLY)
    log.path.write_bytes(log.path.read_bytes().replace(b"a2", b"a9"))
    tampered = gpuplan(*APPLY)

    assert (busy.code, tampered.code, asked) == (1, 23, [])
    assert figures(busy.err).startswith(f"{os.getpid()} ")
    assert "a.jsonl" in busy.err
    assert not Path("c.db").exists()


def test_a_cluster_in_use_is_told_before_anything_is_asked(gpuplan, planned, asked):
    with SimulatedCluster.create("c.db", planned().snapshot) as live, live.exclusively():
        shown = gpuplan(*APPLY)

    assert (shown.code, asked) == (1, [])
    assert figures(shown.err).startswith(f"{os.getpid()} ")
    assert "c.db" in shown.err


def test_a_no_leaves_neither_a_cluster_nor_a_record(gpuplan, planned, monkeypatch):
    planned()
    monkeypatch.setattr("builtins.input", lambda _: "no")

    assert gpuplan(*APPLY).code == 1
    assert not Path("c.db").exists()
    assert not Path("a.jsonl").exists()


def test_after_a_restore_a_new_plan_is_carried_out_and_the_old_one_refused(gpuplan, planned):
    world = planned().snapshot
    SimulatedCluster.create("c.db", world).close()
    shutil.copy("c.db", "copy.db")
    assert gpuplan(*APPLY, "--auto-approve").code == 0
    shutil.copy("plan.json", "old.json")

    shutil.copy("copy.db", "c.db")
    again = planned()
    applied = gpuplan(*APPLY, "--auto-approve")

    assert again.plan_id == load_plan("old.json").plan_id
    assert (applied.code, figures(applied.out)) == (0, "3")
    with SimulatedCluster("c.db") as live:
        assert len(live.snapshot().running_placements) == 3

    shutil.copy("copy.db", "c.db")
    refused = gpuplan("apply", "old.json", *APPLY[2:], "--auto-approve")
    assert refused.code == 1
    assert figures(refused.err) == f"{again.plan_id} 3"
    assert "recorded" in refused.err
    assert gpuplan("audit", "verify", "a.jsonl").code == 0
    uids = {json.loads(line)["plan_uid"] for line in Path("a.jsonl").read_text().splitlines()}
    assert len(uids) == 2


def test_a_plan_of_many_steps_is_asked_about_by_kind(gpuplan, tmp_path, asked, monkeypatch):
    monkeypatch.setattr("gpuplan.planner.plan_file.plan_file.contradictions", lambda _: ())
    plan = preempting(20, 30)
    save_plan(plan, tmp_path / "plan.json")

    shown = gpuplan(*APPLY)

    assert shown.code == 0, shown.err
    assert ": 30 starts and 20 preemptions?" in shown.out
    records = AuditLog("a.jsonl").records()
    assert len([record for record in records if record.outcome]) == len(steps_of(plan))
