"""Jobs that differ in their name alone are read as if each were validated by itself."""

from __future__ import annotations

import pytest

from gpuplan.models.errors import BadInputError
from gpuplan.models.job import Job
from gpuplan.planner.sources.files import snapshot_of

AT = "2026-11-20T12:00:00Z"
ONE = {"queue": "q", "submitted_at": AT, "expected_duration": "1h", "request": {"gpus": 1, "cpus": 0.5}}
OTHERS = (
    {},
    {"request": {"gpus": 1, "cpus": 1}},
    {"request": {"gpu_milli": 300}},
    {"priority": 3},
    {"replicas": 2},
    {"gpu_models": ["A100-80GB"]},
    {"depends_on": [{"job": "a0"}]},
    {"running": {"started_at": AT, "replicas": [{"node": "n0", "gpus": [{"index": 0, "milli": 1000}]}]}},
)


def document(jobs):
    node = {"name": "n0", "gpus": {"model": "A100-80GB", "count": 8, "memory_mib": 81920}, "cpus": 8}
    return {"taken_at": AT, "cluster": {"nodes": [node]}, "queues": [{"name": "q"}], "jobs": jobs}


def test_each_job_is_what_its_document_states():
    jobs = [
        {"name": f"{letter}{number}"} | ONE | each for number, each in enumerate(OTHERS) for letter in "abc"
    ]
    jobs[-2:] = []  # one job alone may run on that GPU

    found = snapshot_of(document(jobs)).jobs

    expected = [Job.model_validate(job) for job in sorted(jobs, key=lambda job: job["name"])]
    assert list(found) == expected
    assert [job.document() for job in found] == [job.document() for job in expected]
    assert [job.model_fields_set for job in found] == [job.model_fields_set for job in expected]
    assert [job.plain_key for job in found] == [job.plain_key for job in expected]


@pytest.mark.parametrize(
    ("fault", "said"),
    [
        ({"name": "-"}, "name"),
        ({"name": 5}, "name"),
        ({"name": "b", "request": {"gpus": True, "cpus": 0.5}}, "gpus"),
        ({"name": "b", "request": {"gpus": 1.0, "cpus": 0.5}}, "gpus"),
    ],
)
def test_a_fault_beside_a_job_that_is_much_alike_is_found(fault, said):
    with pytest.raises(BadInputError, match=said):
        snapshot_of(document([{"name": "a"} | ONE, ONE | fault]))
