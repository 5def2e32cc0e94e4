"""What Prometheus reads: every metric with its labels, counted once, shown whole."""

from __future__ import annotations

import urllib.request
from datetime import timedelta

import pytest
from prometheus_client.parser import text_string_to_metric_families

from gpuplan.models.dependency import FinishedJob, JobOutcome
from gpuplan.models.errors import PlannerError
from gpuplan.models.plan.actions import Preempt, changes_of
from gpuplan.planner.apply.outcome import ApplyOutcome, FailedAction
from gpuplan.planner.service.prometheus import _GAUGES, MetricsRegistry, epoch_gauges, serve_metrics
from tests.support.builders.build import NOW, job, placement, replica, snapshot
from tests.support.builders.solution_builders import drafted
from tests.support.doubles.periodic_service import Bench
from tests.support.output.metric_names import PLAN, exported, full_exposition, record

CONVENTIONS = {
    "gpuplan_plan_duration_seconds_bucket": {"backend", "status", "le"},
    "gpuplan_solver_gap_ratio": set(),
    "gpuplan_solver_fallback_total": {"reason"},
    "gpuplan_plan_actions": {"type"},
    "gpuplan_apply_actions_total": {"type", "result"},
    "gpuplan_gpus": {"state", "gpu_product"},
    "gpuplan_gpu_utilization_ratio": set(),
    "gpuplan_queue_pending_jobs": {"queue", "reason"},
    "gpuplan_wait_time_seconds_bucket": {"le"},
    "gpuplan_queue_dominant_share_ratio": {"queue"},
    "gpuplan_queue_quota_usage_ratio": {"queue"},
    "gpuplan_fairness_jain_index": set(),
    "gpuplan_fragmentation_ratio": {"gang_size"},
    "gpuplan_preemptions_total": {"reason"},
    "gpuplan_lost_gpu_seconds_total": set(),
    "gpuplan_hourly_cost_dollars": set(),
    "gpuplan_deadline_at_risk_jobs": set(),
    "gpuplan_build_info": {"version", "python"},
}
"""Names and labels that dashboards are written against."""


def value(exposition, name, **labels):
    found = [
        sample.value
        for family in text_string_to_metric_families(exposition.text())
        for sample in family.samples
        if sample.name == name and sample.labels == labels
    ]
    assert len(found) <= 1
    return found[0] if found else None


def test_every_agreed_metric_is_exported_with_its_labels():
    found = exported(full_exposition().text())

    assert {name: found.get(name) for name in CONVENTIONS} == CONVENTIONS


def test_names_keep_the_rules_of_prometheus():
    for family in text_string_to_metric_families(full_exposition().text()):
        assert family.name.startswith("gpuplan_")
        assert family.documentation
        if family.type == "counter":
            assert all(sample.name.endswith("_total") for sample in family.samples)
        else:
            assert not family.name.endswith("_total")


def test_each_gauge_that_is_declared_is_shown():
    found = exported(full_exposition().text())

    assert {name: found.get(name) for name in _GAUGES} == {
        name: set(labels) for name, (_, labels) in _GAUGES.items()
    }


def test_actions_count_once_they_are_done():
    exposition = MetricsRegistry("1", every=60)
    first, second, *_ = changes_of(PLAN.actions)

    exposition.applied(PLAN, ApplyOutcome((first.id,), failures=(FailedAction(second.id, "no room"),)))

    assert value(exposition, "gpuplan_apply_actions_total", type=first.type, result="done") == 1
    assert value(exposition, "gpuplan_apply_actions_total", type=second.type, result="failed") == 1


def test_a_preemption_counts_with_its_reason_and_what_was_lost():
    exposition = MetricsRegistry("1", every=60)
    (stop,) = (action for action in PLAN.actions if isinstance(action, Preempt))
    assert value(exposition, "gpuplan_preemptions_total", reason="MakesRoom") == 0

    exposition.applied(PLAN, ApplyOutcome((stop.id,)))

    assert value(exposition, "gpuplan_preemptions_total", reason="MakesRoom") == 1
    # sweep-117 ran for an hour on eight GPUs without a checkpoint.
    assert value(exposition, "gpuplan_lost_gpu_seconds_total") == 8 * 3600


def failed_plans(exposition):
    return value(exposition, "gpuplan_plan_duration_seconds_count", backend="none", status="FAILED")


def test_only_a_search_without_a_plan_counts_as_one_that_failed(tmp_path):
    one = Bench(tmp_path, snapshot(jobs=[job("a", gpus=1)]))
    read = one.reader

    def unreadable():
        raise PlannerError("no such file")

    one.reader = unreadable
    one.epochs(1)
    assert failed_plans(one.metrics) is None

    one.reader = lambda: read().model_copy(update={"queues": None})
    one.epochs(1)
    one.close()
    assert failed_plans(one.metrics) == 1


def test_the_wait_of_a_start_is_from_submission():
    world = snapshot(jobs=[job("a", gpus=1, waited=timedelta(minutes=20))])
    plan = drafted(world, placement("a", replica(gpus=[0])))
    exposition = MetricsRegistry("1", every=60)

    exposition.applied(plan, ApplyOutcome(tuple(change.id for change in changes_of(plan.actions))))

    assert value(exposition, "gpuplan_wait_time_seconds_sum") == 1200
    assert value(exposition, "gpuplan_wait_time_seconds_bucket", le="600.0") == 0
    assert value(exposition, "gpuplan_wait_time_seconds_bucket", le="1800.0") == 1


def test_jobs_that_ended_are_counted_once_and_none_from_before_the_run():
    def finished(name, minutes, outcome=JobOutcome.SUCCEEDED):
        at = NOW + timedelta(minutes=minutes)
        return FinishedJob(name=name, queue="q", outcome=outcome, started_at=NOW - HOUR, ended_at=at)

    early, soon = finished("early", -30), finished("soon", 5)
    late = finished("late", 9, JobOutcome.FAILED)
    exposition = MetricsRegistry("1", every=60)
    for minutes, over in ((0, [early]), (5, [early, soon]), (10, [early, soon, late]), (15, [soon, late])):
        world = snapshot(taken_at=NOW + timedelta(minutes=minutes))
        plan = drafted(world.model_copy(update={"finished": tuple(over)}))
        exposition.planned(plan.model_copy(update={"epoch": world.taken_at}), 1.0)

    assert value(exposition, "gpuplan_finished_jobs_total", outcome="succeeded") == 1
    assert value(exposition, "gpuplan_finished_jobs_total", outcome="failed") == 1


HOUR = timedelta(hours=1)


def test_what_is_gone_is_not_shown_any_more():
    exposition = full_exposition()
    assert value(exposition, "gpuplan_queue_pending_jobs", queue="batch", reason="Held") is None
    shown = value(exposition, "gpuplan_plan_actions", type="preempt")

    empty = drafted(snapshot())
    exposition.show(empty, epoch_gauges(empty, applied=True))

    assert shown == 1
    assert value(exposition, "gpuplan_plan_actions", type="preempt") is None
    assert "gpuplan_queue_pending_jobs{" not in exposition.text()


def test_an_unproven_bound_is_no_gap_of_zero():
    exposition = full_exposition()
    solution = PLAN.solution.model_copy(update={"bound": None, "gap": None})

    exposition.show(PLAN.model_copy(update={"solution": solution}), epoch_gauges(PLAN, applied=True))

    assert value(exposition, "gpuplan_solver_gap_ratio") is None
    assert value(exposition, "gpuplan_solver_gap_points") is None


def test_the_gap_of_a_plan_that_changes_nothing_is_one_in_points_alone():
    exposition = full_exposition()
    solution = PLAN.solution.model_copy(update={"objective": 0, "bound": 1_235_007, "gap": 1_235_007.0})

    exposition.show(PLAN.model_copy(update={"solution": solution}), epoch_gauges(PLAN, applied=True))

    assert value(exposition, "gpuplan_solver_gap_ratio") is None
    assert value(exposition, "gpuplan_solver_gap_points") == 1_235_007


def test_trouble_is_shown_beside_what_was_true_before():
    exposition = full_exposition()

    exposition.not_planned(1.0)
    exposition.epoch(record(policy_error="broken", skipped_ticks=3), failures=4)

    assert value(exposition, "gpuplan_policy_file_ok") == 0
    assert value(exposition, "gpuplan_failures_in_a_row") == 4
    assert value(exposition, "gpuplan_skipped_ticks_total") == 3
    assert value(exposition, "gpuplan_gpu_utilization_ratio") is not None
    assert value(exposition, "gpuplan_plan_duration_seconds_count", backend="none", status="FAILED") == 1


def test_metrics_are_served_on_loopback():
    exposition = full_exposition()
    port = serve_metrics(exposition, "127.0.0.1", 0)

    with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=10) as answer:
        assert answer.read().decode() == exposition.text()

    with pytest.raises(PlannerError, match=f"metrics cannot be served at 127.0.0.1:{port}"):
        serve_metrics(exposition, "127.0.0.1", port)


def test_the_file_for_node_exporter_is_replaced_in_one_step(tmp_path):
    path = tmp_path / "gpuplan.prom"
    exposition = full_exposition()

    exposition.write(path)
    exposition.write(path)

    assert path.read_text() == exposition.text()
    assert [found.name for found in tmp_path.iterdir()] == ["gpuplan.prom"]


def test_two_runs_in_one_process_share_nothing():
    one, other = full_exposition(), MetricsRegistry("1", every=60)

    assert value(one, "gpuplan_epochs_total", outcome="applied") == 1
    assert value(other, "gpuplan_epochs_total", outcome="applied") == 0
