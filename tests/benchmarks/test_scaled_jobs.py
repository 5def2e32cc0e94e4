"""The benchmark of jobs that scale: the same work whatever the sizes, and ratios to the sizes asked for."""

from __future__ import annotations

import pytest

from benchmarks.scaled_jobs import SHAPES, SIZES, tables, trace
from gpuplan.models.policy.policy import Policy

POLICY = Policy(solvers=())


def works(size, shape):
    """Seconds of one replica on the slowest GPU model, by job."""
    jobs = trace(0.7, 1, size, POLICY, SHAPES[shape]).coming
    return {
        each.job.name: each.duration
        * each.job.gang.speed_milli(each.job.gang.maximum)
        * max(each.job.gpu_models.values())
        for each in jobs
    }


@pytest.mark.slow
@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("size", SIZES)
def test_jobs_have_the_same_work_at_every_size(size, shape):
    # The shortest jobs take a few seconds, and durations are whole seconds.
    assert works(size, shape) == pytest.approx(works("chosen", shape), rel=0.05)


@pytest.mark.slow
@pytest.mark.parametrize("shape", SHAPES)
def test_only_chosen_sizes_leave_a_choice(shape):
    for size in SIZES:
        for each in trace(1.2, 2, size, POLICY, SHAPES[shape]).coming:
            assert each.job.gang.elastic == (size == "chosen")


def test_a_table_shows_the_median_and_the_largest_by_the_sizes_asked_for():
    figures = {"p95": 10.0, "makespan": 10.0, "restarts": 3}
    records = [
        {"load": 0.7, "seed": seed, "size": size, "goal": "completion", "completion": completion} | figures
        for seed, pair in {1: (5, 10), 3: (8, 10), 5: (12, 10)}.items()
        for size, completion in zip(("chosen", "asked"), pair, strict=True)
    ]

    shown = tables(records)

    assert "| 0.7 | chosen | `completion` | 0.80 (1.20) | 1.00 (1.00) |" in shown
    assert "| 0.7 | asked | `completion` | 1.00 (1.00) |" in shown
