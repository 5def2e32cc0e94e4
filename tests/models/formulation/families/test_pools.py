from __future__ import annotations

from gpuplan.models.cluster import Cluster, NodePool
from gpuplan.models.policy.policy import Disruption, Policy
from gpuplan.models.snapshot import Snapshot
from tests.support.builders import build
from tests.support.harness.solved_model import solved


def snapshot(*, existing=0, jobs=(), least=0, most=4, price=1.0):
    """A pool of nodes of four GPUs, so many of which exist."""
    nodes = [
        build.node(f"g-{number + 1}", gpus=4, pool="g", price_per_hour=price) for number in range(existing)
    ]
    template = build.node("g", gpus=4, pool="g", price_per_hour=price)
    pool = NodePool(name="g", template=template, min=least, max=most)
    return Snapshot(
        taken_at=build.NOW,
        cluster=Cluster(nodes=tuple(nodes), pools=(pool,)),
        queues=(build.queue(),),
        jobs=tuple(jobs),
    ).canonical()


def test_node_is_opened_for_work_that_pays_for_it():
    answer = solved(snapshot(jobs=[build.job("a", gpus=4)]))

    assert answer.aggregate.opened == ((0, 1),)
    assert answer.points == 400 - 100 - 5


def test_node_stays_closed_for_work_that_does_not():
    answer = solved(snapshot(jobs=[build.job("a", gpus=4)], price=5.0))

    assert answer.aggregate.opened == ()


def test_no_more_nodes_are_opened_than_the_pool_may_have():
    jobs = [build.job(f"a{number}", gpus=4) for number in range(9)]

    assert solved(snapshot(jobs=jobs, most=3, existing=1)).aggregate.opened == ((0, 2),)


def test_job_without_gpus_opens_no_gpu_node():
    assert solved(snapshot(jobs=[build.job("a", cpus=4, weight=1000)])).aggregate.opened == ()


def test_idle_nodes_are_closed_down_to_the_minimum():
    assert solved(snapshot(existing=3, least=1)).aggregate.closed == ((0, 2),)


def test_node_that_is_needed_is_not_closed():
    assert solved(snapshot(existing=1, jobs=[build.job("a", gpus=4)])).aggregate.closed == ()


def test_two_half_empty_nodes_become_one():
    running = [
        build.job(f"r{number}", gpus=2, at=[build.replica(f"g-{number}", gpus=(0, 1))]) for number in (1, 2)
    ]
    answer = solved(
        snapshot(existing=2, jobs=running, price=9.0), Policy(disruption=Disruption(migrate=True))
    )

    assert len(answer.moved) == 1
    assert answer.aggregate.closed == ((0, 1),)


def test_no_job_is_preempted_so_that_a_node_can_be_closed():
    running = build.job("r", gpus=2, at=[build.replica("g-1", gpus=(0, 1))])

    answer = solved(snapshot(existing=1, jobs=[running], price=1000.0))

    assert (answer.stopped, answer.aggregate.closed) == (set(), ())
