from __future__ import annotations

from gpuplan.models.policy.policy import Policy, Prices
from gpuplan.models.queue import Queue, Quota
from tests.support.builders import build
from tests.support.harness.solved_model import solved

PRICE = 100_000


def queues(guarantee):
    """Queue a with a guarantee and queue b without."""
    return (
        Queue(name="a", quota=Quota(nominal=16, guarantee=guarantee)),
        Queue(name="b", quota=Quota(nominal=16)),
    )


def test_what_cannot_be_given_is_missing_in_whole_gpus():
    jobs = [build.job("x", queue="a", gpus=8, weight=0)]
    nodes = build.cluster(1, gpus=4)

    assert solved(build.snapshot(nodes=nodes, jobs=jobs, queues=queues(8))).points == -8 * PRICE


def test_no_queue_is_owed_more_than_is_asked_for():
    jobs = [build.job("x", queue="a", milli=500, weight=0)]
    nodes = build.cluster(1, gpus=0)

    assert solved(build.snapshot(nodes=nodes, jobs=jobs, queues=queues(8))).points == -PRICE


def test_guarantee_comes_before_weight():
    owed = build.job("owed", queue="a", gpus=4)
    rich = build.job("rich", queue="b", gpus=4, weight=100)

    answer = solved(build.snapshot(nodes=build.cluster(1, gpus=4), jobs=[owed, rich], queues=queues(4)))

    assert answer.placed == {"owed": 1}


def test_borrower_is_reclaimed_by_a_job_of_equal_priority():
    borrower = build.job("borrower", queue="b", gpus=4, at=[build.replica("n0", gpus=range(4))])
    owed = build.job("owed", queue="a", gpus=4)
    lenders = (queues(4)[0], Queue(name="b"))

    answer = solved(build.snapshot(nodes=build.cluster(1, gpus=4), jobs=[owed, borrower], queues=lenders))

    assert answer.stopped == {"borrower"}
    assert answer.placed == {"owed": 1}


def test_price_of_zero_owes_nothing():
    jobs = [build.job("x", queue="a", gpus=8, weight=0)]
    policy = Policy(prices=Prices(guarantee=0))

    assert solved(build.snapshot(nodes=[], jobs=jobs, queues=queues(8)), policy).points == 0
