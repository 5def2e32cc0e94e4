"""Jobs that differ in their name alone: what follows from one of them is computed once, and is the same."""

from __future__ import annotations

from datetime import timedelta
from itertools import product

import pytest

from gpuplan.models.job import Job
from gpuplan.models.policy.policy import Policy
from gpuplan.planner.problem_builder import build_problem
from tests.support.builders import build

USUAL = {"gpus": 1, "expected_duration": 3600}
FIELDS = {
    "queue": ("q", "p"),
    "priority": (0, 2),
    "weight": (1, 2),
    "gpus": (1, 2),
    "replicas": (1, (1, 2)),
    "waited": (timedelta(0), timedelta(hours=9)),
    "expected_duration": (3600, 7200),
}


def test_classes_are_those_of_jobs_that_are_looked_at_one_by_one(monkeypatch):
    kinds = [dict(zip(FIELDS, values, strict=True)) for values in product(*FIELDS.values())]
    jobs = [build.job(f"j{number:03d}", **kinds[number % len(kinds)]) for number in range(2 * len(kinds))]
    snapshot = build.snapshot(jobs=jobs, queues=[build.queue("p"), build.queue("q")])

    found = build_problem(snapshot, Policy())
    monkeypatch.setattr(Job, "plain_key", None)
    one_by_one = build_problem(snapshot.model_copy(), Policy())

    assert found == one_by_one
    assert len(kinds) // 2 < len(found.classes) <= len(kinds)  # some kinds come to the same points


@pytest.mark.parametrize("field", FIELDS)
def test_each_plain_field_is_part_of_the_key(field):
    one, other = (build.job(**USUAL | {field: value}) for value in FIELDS[field])

    assert one.plain_key == build.job("b", **USUAL | {field: FIELDS[field][0]}).plain_key
    assert one.plain_key != other.plain_key


@pytest.mark.parametrize(
    "more",
    [
        {"labels": {"app": "x"}},
        {"gpu_models": {build.MODEL: 1}},
        {"deadline": build.NOW},
        {"co_start": "g"},
        {"held": True},
        {"preemptions": 1},
        {"at": [build.replica(gpus=[0])]},
        {"expected_duration": None},
    ],
)
def test_no_other_job_is_plain(more):
    assert build.job(**USUAL | more).plain_key is None
