"""Finish-time fairness, makespan and restarts as they are counted by hand."""

from __future__ import annotations

from datetime import timedelta

import pytest

from gpuplan.planner.simulate.replay import replay
from gpuplan.planner.simulate.run_options import EpochClock
from gpuplan.planner.simulate.scorecard import Contention
from tests.support.builders.build import NOW, job, node, replica
from tests.support.harness.baseline_runs import FREE, MINUTE, comes, expecting, scores, trace


def at(minute):
    return NOW + timedelta(minutes=minute)


def test_contention_is_the_mean_demand_over_the_gpus():
    # 8 GPUs asked for from 0 to 60, 16 from 30 on.
    asked = Contention([(at(0), at(60), 8000), (at(30), None, 16000)], gpu_milli=8000)

    assert asked.mean(at(0), at(30)) == pytest.approx(1)
    assert asked.mean(at(0), at(60)) == pytest.approx((30 * 1 + 30 * 3) / 60)
    assert asked.mean(at(60), at(90)) == pytest.approx(2)
    assert asked.mean(at(-60), at(0)) == 0


def test_an_equal_share_is_what_a_job_is_compared_with():
    found = scores("fifo", trace(comes("a", 0, 60), comes("b", 0, 60)))

    # a: an hour, where half of the node would have taken two. b: two hours, contention 2 and then 1: 1.5.
    assert found.finish_time_fairness_max.value == pytest.approx(2 / 1.5)
    assert (found.unfair_share.value, found.unfair_share.at_least) == (0.5, False)


def test_where_there_is_room_for_all_a_job_is_compared_with_itself_alone():
    found = scores("fifo", trace(comes("a", 0, 60, gpus=2), comes("b", 0, 30, gpus=2)))

    assert (found.finish_time_fairness_max.value, found.unfair_share.value) == (1, 0)


def test_jobs_that_ran_from_the_start_contend_and_are_not_scored():
    runs = job("r", gpus=8, at=[replica("n0", gpus=range(8))], expected_duration=90 * MINUTE)

    found = scores("fifo", trace(comes("a", 0, 30), jobs=[runs]))

    # r goes on for 30 minutes; a waits so long and runs as long: contention 2, then 1.
    assert found.finish_time_fairness_max.value == pytest.approx(60 / (30 * 1.5))


def test_jobs_that_are_not_over_make_lower_bounds_of_it():
    found = scores("fifo", trace(comes("a", 0, 20), comes("b", 0, 600)), EpochClock(5 * MINUTE, 60 * MINUTE))

    assert (found.finish_time_fairness_max.value, found.finish_time_fairness_max.at_least) == (0.5, True)
    assert (found.unfair_share.value, found.unfair_share.at_least) == (0, True)
    assert (found.makespan.value, found.makespan.at_least) == (60 * MINUTE, True)


def test_jobs_without_gpus_have_no_share_of_them():
    found = scores("fifo", trace(comes("a", 0, 20, gpus=0, cpus=4), nodes=[node(gpus=0)]))

    assert (found.finish_time_fairness_max, found.unfair_share) == (None, None)


def test_the_makespan_ends_with_the_last_job():
    found = scores("sjf", trace(comes("a", 5, 60), comes("b", 6, 10)))

    assert (found.makespan.value, found.makespan.at_least) == (75 * MINUTE, False)


def test_a_stop_is_kept_with_the_time_of_the_next_start():
    given = trace(comes("long", 0, 60), comes("short", 5, 10), comes("late", 20, 30), physics=FREE)
    clock = EpochClock(5 * MINUTE, 40 * MINUTE, at_events=True)

    lives = replay(given, expecting(FREE), clock, seed=0, baseline="srsf").lives

    assert {life.job.name: life.stops for life in lives} == {
        "long": [(at(5), at(15)), (at(20), None)],
        "short": [],
        "late": [],
    }
