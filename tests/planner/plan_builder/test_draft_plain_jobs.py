"""Plans of jobs that differ in their name alone: what one of them has is computed once, and is the same."""

from __future__ import annotations

from datetime import timedelta
from itertools import product

from gpuplan.models.job import Job
from gpuplan.models.policy.policy import Policy
from gpuplan.planner.epoch import plan_epoch
from gpuplan.planner.plan_file.plan_file import plan_file_text
from tests.support.builders import build

NODES = [
    build.node("n0", gpus=4),
    build.node("n1", gpus=2, model="H100-80GB"),
    build.node("n2", gpus=4),
]
KINDS = {"priority": (0, 2), "waited": (timedelta(0), timedelta(hours=3)), "expected_duration": (3600, 7200)}


def test_a_plan_is_that_of_jobs_that_are_looked_at_one_by_one(monkeypatch):
    kinds = [dict(zip(KINDS, values, strict=True)) for values in product(*KINDS.values())]
    jobs = [build.job(f"j{number:03d}", milli=350, **kinds[number % len(kinds)]) for number in range(40)]
    runs = build.job("runs", gpus=1, at=[build.replica("n0", gpus=[3])], expected_duration=7200)
    snapshot = build.snapshot(nodes=NODES, jobs=[runs, *jobs])
    policy = Policy(solvers=())

    found = plan_epoch(snapshot, policy, seed=0, created_at=snapshot.taken_at)
    monkeypatch.setattr(Job, "plain_key", None)
    other = build.snapshot(nodes=NODES, jobs=[job.model_copy() for job in (runs, *jobs)])
    one_by_one = plan_epoch(other, policy, seed=0, created_at=snapshot.taken_at)

    assert found.plan_id == one_by_one.plan_id
    assert found.metrics.jobs.started
    assert found.waiting
    timed = found.model_copy(update={"solution": one_by_one.solution})
    assert plan_file_text(timed) == plan_file_text(one_by_one)
