"""Jobs: the speed on each GPU model."""

from __future__ import annotations

from tests.support.builders.build import job


def test_a_job_on_a_model_it_may_not_use_runs_at_its_slowest():
    picky = job(gpu_models={"A": 1, "B": 4})

    assert [picky.speed_milli(model) for model in ("B", "A", "T4", None)] == [1000, 250, 250, 1000]
