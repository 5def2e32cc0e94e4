"""Each change of jobs does what it says and nothing else."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpuplan.models.dependency import Dependency
from tests.support.builders.build import job, queue, snapshot
from tests.support.harness.patch_helpers import after, on


def test_jobs_count_more_or_are_let_go():
    world = snapshot(jobs=[job("a", held=True, user="ada", weight=2), job("b", user="bob")])

    made = after(
        world,
        {
            "change": "set_jobs",
            "jobs": {"user": "ada"},
            "weight_factor": 1.5,
            "priority": 3,
            "held": False,
        },
    ).job_by_name

    assert (made["a"].weight_milli, made["a"].priority, made["a"].held) == (3000, 3, False)
    assert made["b"] == world.job_by_name["b"]


def test_jobs_come_and_go():
    world = snapshot(jobs=[on("n0"), job("b")])
    new = {"name": "new", "queue": "q", "submitted_at": "2026-11-20T11:00:00Z", "request": {"gpus": 1}}

    made = after(
        world, {"change": "add_jobs", "jobs": [new]}, {"change": "remove_jobs", "jobs": {"names": ["r"]}}
    )

    assert [each.name for each in made.jobs] == ["b", "new"]


@given(st.integers(1, 9), st.sampled_from((0, 0.25, 0.5, 1, 1.5, 2, 2.25, 10)), st.integers(0, 3))
def test_demand_is_scaled_to_the_nearest_job(count, factor, seed):
    world = snapshot(jobs=[on("n0"), *(job(f"w{index}", gpus=1) for index in range(count))])
    change = {"change": "scale_demand", "factor": factor, "seed": seed}

    made = after(world, change)

    waiting = [each for each in made.jobs if not each.running]
    assert abs(len(waiting) - factor * count) <= 0.5
    assert made == after(world, change)
    assert len(made.jobs) - len(waiting) == 1


@pytest.mark.parametrize("factor", [0.5, 1.5])
def test_jobs_that_start_together_are_scaled_together(factor):
    world = snapshot(jobs=[job(f"{half}-{pair}", co_start=pair) for pair in "abcdef" for half in ("x", "y")])

    made = after(world, {"change": "scale_demand", "factor": factor}).job_by_name

    assert len(made) == factor * len(world.jobs)
    assert {name.replace("x-", "y-") for name in made} == {name for name in made if name.startswith("y-")}


def test_copies_stand_to_each_other_as_their_originals_do():
    world = snapshot(
        jobs=[
            on("n0", job_name="runs"),
            job("a", co_start="pair"),
            job("b", co_start="pair"),
            job("c", depends_on=(Dependency(job="a"), Dependency(job="runs"))),
        ]
    )

    made = after(world, {"change": "scale_demand", "factor": 3}).job_by_name

    for number in (1, 2):
        assert made[f"a-copy-{number}"].co_start == made[f"b-copy-{number}"].co_start == f"pair-copy-{number}"
        assert [each.job for each in made[f"c-copy-{number}"].depends_on] == [f"a-copy-{number}", "runs"]


def test_only_one_queue_may_be_scaled():
    world = snapshot(jobs=[job("a"), job("b", queue="p")], queues=[queue(), queue("p")])

    made = after(world, {"change": "scale_demand", "factor": 2, "queue": "p"})

    assert [each.name for each in made.jobs] == ["a", "b", "b-copy-1"]
