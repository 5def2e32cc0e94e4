"""The benchmark of long waits: as much work as it says, and questions that can be failed."""

from __future__ import annotations

import pytest

from benchmarks import starvation
from benchmarks.starvation import DAYS, LOAD, Wait, overtaken, tables, trace_of, waited_on

HOUR = 3600
DAY = 24 * HOUR


def wait(came, started, hours=1.0, *, gpus=1, over=True):
    return Wait(gpus, round(hours * HOUR), came * HOUR, started * HOUR, over)


@pytest.mark.slow
def test_jobs_ask_for_as_much_more_than_there_is_as_it_says():
    trace = trace_of(3)

    asked = sum(each.duration * each.job.request.gpus * each.job.gang.maximum for each in trace.coming)
    gpus = sum(node.gpu_count for node in trace.start.cluster.nodes)
    assert LOAD <= asked / (gpus * DAYS * DAY) < LOAD * 1.05
    assert trace_of(3) == trace_of(3) != trace_of(4)


def test_a_shorter_job_may_overtake_that_came_within_the_doublings_between_them():
    """Eight hours are three doublings of one: with a doubling of 12 hours it may come 36 hours later."""
    first = wait(0, 100, hours=8)

    assert overtaken([first, wait(30, 40)], 12 * HOUR) == 0
    assert overtaken([first, wait(60, 70)], 12 * HOUR) == 2
    assert overtaken([first, wait(60, 110)], 12 * HOUR) == 0
    assert overtaken([first, wait(60, 70, gpus=2)], 12 * HOUR) == 0


def test_the_first_of_those_that_starve_waits_on_from_when_those_before_it_have_started():
    assert waited_on([wait(0, 50), wait(1, 200)], 100 * HOUR) == 99 * HOUR
    assert waited_on([wait(0, 150), wait(1, 200)], 100 * HOUR) == 50 * HOUR
    assert waited_on([wait(0, 50), wait(1, 60)], 100 * HOUR) <= 0


def test_a_table_has_each_policy_once_and_the_longest_wait_of_all():
    names = [f"{gpus} {band}" for gpus in starvation._SIZES for band in starvation._BANDS]
    measured = {"utilization": 0.9, "completion": 7200, "exceeded": 0.5, "starved": 2, "waited_on": 3600}
    measured["again"] = [3600.0, 7200.0, 36000.0]
    record = {"case": "as shipped", "seed": 0, "longest": dict.fromkeys(names, 36000.0), **measured}

    shown = tables([record, record])

    assert (
        "| as shipped | 0 | 2.0 h | 90.0 % | 10 h | 0.5 doublings | 2 | 1.0 h | 3 | 2.0 h, 10.0 h, 10.0 h |"
        in shown
    )
    assert shown.count("| as shipped | 0 | below 1 h |") == 1
