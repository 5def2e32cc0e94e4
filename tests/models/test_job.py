"""Jobs: the speed on each GPU model, and what their documents keep."""

from __future__ import annotations

from gpuplan.models.job import Progress
from tests.support.builders.build import job


def test_a_job_on_a_model_it_may_not_use_runs_at_its_slowest():
    picky = job(gpu_models={"A": 1, "B": 4})

    assert [picky.speed_milli(model) for model in ("B", "A", "T4", None)] == [1000, 250, 250, 1000]


def test_a_document_keeps_that_a_job_has_had_no_service():
    known, untold = Progress(completed=60, served=0), Progress(completed=60)

    assert [Progress(**each.document()) for each in (known, untold)] == [known, untold]
    assert known.fingerprint() != untold.fingerprint()
