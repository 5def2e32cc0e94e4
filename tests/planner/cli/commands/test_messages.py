"""What `gpuplan apply` asks and tells, in messages.golden.txt; other tests assert exit codes and counts."""

from __future__ import annotations

from pathlib import Path

import pytest

from gpuplan.models.errors import PartlyAppliedError
from gpuplan.planner.apply.audit_log import AuditLog
from gpuplan.planner.executors.simulated import SimulatedCluster
from gpuplan.planner.plan_file.plan_file import save_plan
from tests.support.builders.build import job, snapshot
from tests.support.output.golden import golden
from tests.support.samples import all_actions, promise_plans
from tests.support.samples.apply_world import carry_out, stop_after

NOTHING = promise_plans.promising(snapshot(jobs=[job("a")]))


def test_the_sentences_of_apply(gpuplan, monkeypatch):
    monkeypatch.setattr("gpuplan.planner.plan_file.plan_file.contradictions", lambda _: ())
    monkeypatch.setattr("builtins.input", lambda _: "no")
    monkeypatch.setenv("COLUMNS", "80")
    told = []

    def apply(plan, name, *more):
        save_plan(plan, "plan.json")
        options = ("--executor", "simulated", "--state", f"{name}.db", "--audit", f"{name}.jsonl")
        shown = gpuplan("apply", "plan.json", *options, *more)
        # A question follows the plan after an empty line.
        last = shown.out.rpartition("\n\n")[2].replace(plan.plan_id, "7c1e")
        told.append(f"apply {' '.join((name, *more))} ({shown.code})\n{last}{shown.err}")

    apply(NOTHING, "nothing")
    apply(all_actions.PLAN, "all")
    apply(all_actions.PLAN, "all", "--auto-approve")
    apply(all_actions.PLAN, "all")
    apply(promise_plans.PLAN, "promises")
    with (
        SimulatedCluster.create(Path("promises.db"), promise_plans.WORLD) as live,
        pytest.raises(PartlyAppliedError),
    ):
        carry_out(live, AuditLog(Path("promises.jsonl")), plan=promise_plans.PLAN, stop=stop_after(1))
    apply(promise_plans.PLAN, "promises", "--resume")
    apply(promise_plans.PLAN, "promises", "--resume", "--auto-approve")
    apply(promise_plans.PLAN, "promises")
    apply(promise_plans.PROMISES_ONLY, "only", "--auto-approve")
    apply(promise_plans.promising(promise_plans.WORLD), "clear", "--auto-approve")

    found = "\n".join(told)
    assert found == golden(Path(__file__).with_name("messages.golden.txt"), found)
