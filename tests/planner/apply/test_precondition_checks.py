"""A plan that is not true any more: refused before anything is done, with each thing that changed."""

from __future__ import annotations

import pytest

from gpuplan.models.errors import StalePlanError
from gpuplan.models.policy.policy import Drift
from gpuplan.planner.apply.apply import apply_plan
from gpuplan.planner.apply.outcome import DriftedPlanError
from gpuplan.planner.apply.precondition_checks import DriftItem
from gpuplan.planner.executors.simulated import SimulatedCluster
from tests.support.builders.build import NOW, cluster, job, placement, queue, replica, snapshot
from tests.support.builders.plan_builders import plan_of
from tests.support.output.golden import figures
from tests.support.samples.apply_world import PLAN, WORLD, A, B, C, carry_out, running, steal


def test_a_stale_plan_is_refused_before_anything_is_done(live, log):
    steal(live, B)

    with pytest.raises(DriftedPlanError) as caught:
        carry_out(live, log)
    assert caught.value.exit_code == 21
    (item,) = caught.value.items
    assert (item.subject, item.change) == ("job thief", "now runs on n1")
    assert figures(str(caught.value)) == f"{PLAN.plan_id} 1 n1"
    assert running(live) == {"thief", "runs"}
    assert log.records() == ()


def test_a_stale_plan_tells_each_change(tmp_path, log):
    changed = snapshot(nodes=cluster(2, gpus=1), jobs=[job_ for job_ in WORLD.jobs if job_.name != "c"])
    with (
        SimulatedCluster.create(tmp_path / "other.db", changed) as other,
        pytest.raises(DriftedPlanError) as caught,
    ):
        carry_out(other, log)
    items = caught.value.items
    assert len(items) == 7
    assert str(caught.value).splitlines()[1:-1] == [f"  {item}" for item in items]
    assert (items[0].subject, items[0].change) == ("job c", "is gone")
    assert DriftItem("node n0", "lost 7 GPUs", "8", "1") in items


def test_a_long_list_of_changes_is_cut_in_the_message_and_whole_in_the_error(tmp_path, log):
    jobs = [job(f"j{number}", gpus=1) for number in range(30)]
    places = [placement(f"j{number}", replica(f"n{number}", gpus=[0])) for number in range(30)]
    plan = plan_of(snapshot(nodes=cluster(30), jobs=jobs), *places)
    with (
        SimulatedCluster.create(tmp_path / "other.db", snapshot(nodes=cluster(30))) as other,
        pytest.raises(StalePlanError, match="and 10 more") as caught,
    ):
        carry_out(other, log, plan=plan)
    assert len(caught.value.items) == 30


def test_where_jobs_have_only_left_the_message_tells_how_to_apply_all_the_same(tmp_path, log):
    freed = WORLD.model_copy(update={"jobs": tuple(job_ for job_ in WORLD.jobs if job_.name != "runs")})
    with SimulatedCluster.create(tmp_path / "other.db", freed) as other:
        with pytest.raises(DriftedPlanError, match="--drift preconditions") as caught:
            carry_out(other, log)
        (item,) = caught.value.items
        assert (item.subject, item.change) == ("job runs", "no longer runs on n0")
        assert carry_out(other, log, drift_mode=Drift.PRECONDITIONS).done == ("a1", "a2", "a3")


def test_the_callers_drift_mode_goes_before_the_policys(live, log):
    steal(live, placement("thief", replica("n1", gpus=[6, 7])))

    with pytest.raises(StalePlanError):
        carry_out(live, log)
    assert carry_out(live, log, drift_mode=Drift.PRECONDITIONS).done == ("a1", "a2", "a3")


def test_the_policys_drift_mode_is_kept(live, log):
    policy = PLAN.policy.model_copy(update={"drift": Drift.PRECONDITIONS})
    steal(live, placement("thief", replica("n1", gpus=[6, 7])))

    assert carry_out(live, log, plan=plan_of(WORLD, A, B, C, policy=policy)).done == ("a1", "a2", "a3")


@pytest.mark.parametrize("mode", list(Drift))
def test_quota_that_shrank_since_the_plan_makes_it_stale(tmp_path, log, mode):
    planned = snapshot(jobs=[job("a", gpus=4)], queues=[queue("q", nominal=4)])
    plan = plan_of(planned, placement("a", replica("n0", gpus=range(4))))
    shrunk = planned.model_copy(update={"queues": (queue("q", nominal=3),)})
    with SimulatedCluster.create(tmp_path / "cluster.db", shrunk) as live:
        with pytest.raises(StalePlanError, match=r"quota: queue q: .* 4 GPUs.* 3 GPUs"):
            apply_plan(plan, live, log, actor="me", now=lambda: NOW, drift_mode=mode)

        assert live.snapshot().running_placements == ()
