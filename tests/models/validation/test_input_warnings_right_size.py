"""What GPUs were seen to do, and jobs that could do with less."""

from __future__ import annotations

import pytest

from gpuplan.models.health.measurement import Measurement
from gpuplan.models.validation.input_warnings import RightSizeRules, oversized_jobs
from tests.support.builders.build import job, node, replica, snapshot
from tests.support.output.golden import figures


def seen(index, utilization, mib=40_000, *, on="n0", period=60):
    return Measurement(node=on, index=index, utilization=utilization, memory_mib=mib, period=period)


def told(*measured, gpus=(0, 1), rules=None, **request):
    """Names and numbers of the sentence about a job on some GPUs of n0; None if there is no sentence."""
    held = job("a", at=[replica("n0", gpus=gpus)], **(request or {"gpus": len(gpus)}))
    found = list(oversized_jobs(snapshot(nodes=[node()], jobs=[held], measured=measured), rules))
    assert len(found) <= 1
    return figures(found[0]) if found else None


def test_a_job_that_works_on_all_its_gpus_is_as_large_as_it_should_be():
    assert told(seen(0, 90), seen(1, 3)) is None


def test_a_job_that_does_nothing_is_told():
    assert told(seen(0, 0), seen(1, 2)) == "a 2 1m"


def test_gpus_of_a_job_on_which_it_does_nothing_are_named():
    assert told(seen(0, 90), seen(1, 1)) == "a 1 2 1m 1 n0 1"


def test_a_gpu_that_is_used_little_in_time_and_memory_may_be_shared():
    assert told(seen(0, 20, 8_000), gpus=(0,)) == "a 20 8 000 81 559 1m 0.25 2g.20gb"
    assert told(seen(0, 26, 8_000), gpus=(0,)) is None
    assert told(seen(0, 20, 30_000), gpus=(0,)) is None
    assert told(seen(0, 20, None), gpus=(0,)) is None


@pytest.mark.parametrize(
    ("utilization", "mib", "size"),
    [
        (3, 1_000, "0.05 1g.10gb"),
        (11, 8_000, "0.15 1g.10gb"),  # 13.2 % is less than a seventh
        (12, 8_000, "0.15 2g.20gb"),
        (3, 9_000, "0.15 1g.20gb"),  # 10,800 MiB are more than an eighth
        (25, 20_000, "0.3 3g.40gb"),
    ],
)
def test_the_smallest_size_with_a_reserve_is_told(utilization, mib, size):
    assert told(seen(0, utilization, mib), gpus=(0,)).endswith(f"1m {size}")


@pytest.mark.parametrize(
    "measured",
    [
        (),
        (seen(0, 0),),
        (seen(0, 0), seen(1, None)),
        (seen(0, 0), seen(1, 0, period=29)),
        (seen(0, 0), seen(1, 0, on="n1")),
    ],
)
def test_what_is_not_measured_long_enough_on_each_gpu_is_not_judged(measured):
    assert told(*measured) is None


def test_shares_and_mig_instances_are_not_judged():
    shared = job("a", milli=500, at=[replica("n0", gpus=(0,), milli=500)])
    sliced = job("b", mig={"3g.40gb": 1}, at=[replica("n0", mig=[(1, "3g.40gb", 0)])])
    world = snapshot(nodes=[node()], jobs=[shared, sliced], measured=(seen(0, 0), seen(1, 0)))

    assert list(oversized_jobs(world)) == []


def test_all_replicas_count_together():
    gang = job("a", gpus=1, replicas=2, at=[replica("n0", gpus=(0,)), replica("n1", gpus=(0,))])
    world = snapshot(nodes=[node("n0"), node("n1")], jobs=[gang], measured=(seen(0, 0), seen(0, 80, on="n1")))

    assert figures(next(oversized_jobs(world))) == "a 1 2 1m 0 n0 1"


def test_limits_are_the_rules():
    rules = RightSizeRules(least_period=61, idle_percent=2, small_percent=25)

    assert told(seen(0, 0), seen(1, 0), rules=rules) is None
    assert told(seen(0, 5), gpus=(0,), rules=RightSizeRules(idle_percent=5)) == "a 1m"


def test_measurements_are_sorted_and_of_no_effect_on_nodes_and_jobs():
    some = (seen(1, 5), seen(0, 7))
    world = snapshot(nodes=[node()], measured=some)

    assert world.canonical().measured == some[::-1]
    assert world.cluster == snapshot(nodes=[node()]).cluster
    assert "measured" not in snapshot(nodes=[node()]).document()
