"""What a plan says where higher priorities come first."""

from __future__ import annotations

import pytest

from gpuplan.models.policy.policy import Drift, Policy
from gpuplan.planner.apply.apply import apply_plan
from gpuplan.planner.apply.audit_log import AuditLog
from gpuplan.planner.epoch import plan_epoch
from gpuplan.planner.executors.simulated import SimulatedCluster
from gpuplan.planner.render.plan.header import header_lines
from gpuplan.planner.render.style import Style
from gpuplan.solvers import exact_run
from tests.support.builders import build
from tests.support.doubles.broken_solvers import apart_in_this_process
from tests.support.output.golden import figures


@pytest.fixture
def planned(monkeypatch):
    """Plans under the two orders."""
    monkeypatch.setattr(exact_run, "run_in_child", apart_in_this_process)

    def plan(snapshot, order="tiers"):
        policy = build.by_value(priority={"order": order}, solvers=("cpsat",))
        return plan_epoch(snapshot, policy, seed=0, created_at=build.NOW)

    return plan


def crowded(**large):
    jobs = [build.job("large", gpus=8, priority=1, **large), build.job("small", gpus=1, priority=10)]
    queues = [build.queue("q", nominal=8)]
    return build.snapshot(nodes=build.cluster(2 if large else 1), jobs=jobs, queues=queues)


def test_job_that_waits_behind_a_higher_priority_says_so(planned):
    (waiting,) = planned(crowded()).waiting

    assert waiting.reason.code == "WaitingForQuota"
    remark = waiting.reason.text.rpartition("; ")[2]
    assert figures(remark) == "1 1"
    assert "comes after small" in remark


def test_by_weights_nothing_is_said_of_an_order(planned):
    (waiting,) = planned(crowded(), "weights").waiting

    assert waiting.job == "small"
    assert "comes after" not in waiting.reason.text


def test_plan_tells_what_each_priority_brings_and_what_its_bound_means(planned):
    plan = planned(crowded())

    (stage,) = plan.solution.stages
    text = " ".join(header_lines(plan, Style(width=80), verbose=False))

    assert (stage.priority, stage.points, stage.proven) == (10, 1100, True)
    assert (plan.solution.status, plan.solution.gap) == ("OPTIMAL", 0)
    assert "priority: 10 brings 1,100 points;" in text


def test_plan_of_one_priority_has_no_stages(planned):
    assert planned(crowded(), "weights").solution.stages == ()
    assert "stages" not in planned(crowded(), "weights").model_dump_json()


def test_a_plan_is_applied_though_a_job_of_higher_priority_came_since(tmp_path):
    world = build.snapshot(nodes=[build.node(gpus=1)], jobs=[build.job("low", gpus=1)])
    plan = plan_epoch(world, Policy(solvers=()), seed=0, created_at=build.NOW)
    came = world.model_copy(update={"jobs": (*world.jobs, build.job("high", gpus=1, priority=9))})

    with SimulatedCluster.create(tmp_path / "cluster.db", came) as live:
        log = AuditLog(tmp_path / "audit.jsonl")
        apply_plan(plan, live, log, actor="ann@login1", now=lambda: build.NOW, drift_mode=Drift.PRECONDITIONS)

        assert [placement.job for placement in live.snapshot().running_placements] == ["low"]
