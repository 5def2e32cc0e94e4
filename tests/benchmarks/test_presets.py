"""The benchmark of the starter policies: each has a load, and its table names what was measured."""

from __future__ import annotations

import pytest

from benchmarks.presets import LOADS, preset, tables
from gpuplan.planner.sources.files import STARTERS


def test_each_starter_has_a_load():
    assert set(LOADS) == set(STARTERS)


@pytest.mark.slow
@pytest.mark.parametrize("kind", STARTERS)
def test_the_jobs_of_a_seed_are_the_same_each_time(kind):
    policy = preset(kind)

    trace = LOADS[kind].trace(kind, 1, policy)

    assert trace == LOADS[kind].trace(kind, 1, policy) != LOADS[kind].trace(kind, 2, policy)
    assert policy.solvers == ()
    assert min(each.duration for each in trace.coming) >= 60


@pytest.mark.slow
def test_the_load_of_research_is_work_for_six_to_eight_hours():
    for seed in range(9):
        jobs = LOADS["research"].trace("research", seed, preset("research")).coming
        work = sum(each.duration * each.job.request.gpus * each.job.gang.maximum for each in jobs)
        assert len(jobs) == 120
        assert 4 * 3600 < work / 32 < 7.5 * 3600 + 60


def test_a_table_shows_the_median_and_the_largest():
    figures = {"worst": 1.5, "unfair": 0.1, "worst_by_trace": 0.9, "unfair_by_trace": 0.0, "restarts": 3}
    both = [
        {
            "case": "batch",
            "entrant": entrant,
            "seed": seed,
            "makespan": 3600 * seed,
            "completion": 1800,
            "p95": 3600,
        }
        | figures
        | {"services": None, "lost": 1.25}
        for seed in (1, 2, 6)
        for entrant in ("batch", "easy")
    ]

    shown = tables(both)

    assert "| `batch` | 2.00 h (6.00 h) | 0.50 h (0.50 h) |" in shown
    assert "batch, 3 seeds" in shown
    assert "services wait" not in shown
    assert "`sjf`" not in shown
