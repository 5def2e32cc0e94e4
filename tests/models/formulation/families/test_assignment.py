from __future__ import annotations

from tests.support.builders import build
from tests.support.harness.family_rows import most, rows

TWO_MODELS = [build.node("a", model="H100-80GB"), build.node("b", model="A100-80GB")]


def test_equal_jobs_on_gpu_models_of_two_speeds_are_placed_once_each():
    speeds = {"H100-80GB": 1, "A100-80GB": 0.5}
    jobs = [build.job(name, gpus=1, gpu_models=speeds) for name in "xyz"]
    snapshot = build.snapshot(nodes=TWO_MODELS, jobs=jobs)

    (row,) = rows(snapshot, "assignment")

    assert row.upper == 3
    assert len(row.columns) == 2
    assert most(snapshot, "assignment") == 3


def test_models_that_pay_alike_are_one_tier_and_need_no_row():
    snapshot = build.snapshot(nodes=TWO_MODELS, jobs=[build.job(name, gpus=1) for name in "xyz"])

    assert rows(snapshot, "assignment") == []
    assert most(snapshot) == 3


def test_gang_counts_once_however_many_replicas_it_has():
    snapshot = build.snapshot(jobs=[build.job("x", gpus=1, replicas=4)])

    assert most(snapshot, "assignment") == 4


def test_job_no_node_can_take_has_no_row():
    assert rows(build.snapshot(jobs=[build.job(gpus=9)]), "assignment") == []
