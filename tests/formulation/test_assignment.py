from __future__ import annotations

import build
from modelling import most, rows


def test_equal_jobs_on_two_gpu_models_are_placed_once_each():
    nodes = [build.node("a", model="H100-80GB"), build.node("b", model="A100-80GB")]
    snapshot = build.snapshot(nodes=nodes, jobs=[build.job(name, gpus=1) for name in "xyz"])

    (row,) = rows(snapshot, "assignment")

    assert row.upper == 3
    assert len(row.columns) == 2
    assert most(snapshot, "assignment") == 3


def test_gang_counts_once_however_many_replicas_it_has():
    snapshot = build.snapshot(jobs=[build.job("x", gpus=1, replicas=4)])

    assert most(snapshot, "assignment", "gang") == 4


def test_job_no_node_can_take_has_no_row():
    assert rows(build.snapshot(jobs=[build.job(gpus=9)]), "assignment") == []
