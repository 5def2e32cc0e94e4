"""A cluster that chooses GPUs is seen with the plan's indices, and nothing else about it changes."""

from __future__ import annotations

import random
from collections import Counter

import pytest

from gpuplan.models.cluster import Gpu
from gpuplan.models.placement import GpuShare
from gpuplan.planner.apply.plan_view import hold_the_same_but_for_gpu_indices, with_expected_gpus
from tests.support.builders.build import job, node, placement, replica, snapshot
from tests.support.builders.plan_builders import plan_of

UNPINNED = [node("n0"), node("n1")]
UNPINNED = [
    each.model_copy(update={"gpus": each.gpus.model_copy(update={"pinned": False})}) for each in UNPINNED
]


def held(world):
    return {each.job: each.replicas for each in world.running_placements}


def on(name, *gpus, **more):
    return replica(name, gpus=gpus, **more)


def world(**placed):
    """Jobs that run on these replicas, or wait if there are none."""
    jobs = [job(name, gpus=2, replicas=len(at) or 1, at=at or None) for name, at in placed.items()]
    return snapshot(nodes=UNPINNED, jobs=jobs)


PLAN = plan_of(world(a=[], v=[on("n0", 0, 1)]), placement("a", on("n0", 2, 3)))


def test_a_job_that_landed_on_other_gpus_is_seen_where_it_was_planned():
    live = world(a=[on("n0", 6, 7)], v=[on("n0", 0, 1)])

    assert held(with_expected_gpus(live, PLAN)) == {"a": (on("n0", 2, 3),), "v": (on("n0", 0, 1),)}


def test_what_another_job_holds_is_seen_elsewhere_if_the_plan_expects_these_gpus_for_one_of_its_own():
    live = world(a=[on("n0", 6, 7)], v=[on("n0", 0, 1)], x=[on("n0", 2, 3)])

    seen = held(with_expected_gpus(live, PLAN))

    assert seen["a"] == (on("n0", 2, 3),)
    assert seen["x"] == (on("n0", 6, 7),)


def test_a_job_on_another_node_or_with_another_size_is_seen_as_it_is():
    for live in (world(a=[on("n1", 6, 7)]), world(a=[on("n0", 5, 6, 7)])):
        assert with_expected_gpus(live, PLAN) == live


def test_nothing_is_renamed_where_gpus_are_pinned():
    live = world(a=[on("n0", 6, 7)])
    nodes = tuple(
        each.model_copy(update={"gpus": each.gpus.model_copy(update={"pinned": True})}) for each in UNPINNED
    )
    pinned = live.model_copy(update={"cluster": live.cluster.model_copy(update={"nodes": nodes})})

    assert with_expected_gpus(pinned, PLAN) is pinned
    assert held(with_expected_gpus(pinned, PLAN, pinned=False)) == {"a": (on("n0", 2, 3),)}


def test_an_unhealthy_gpu_is_not_exchanged_for_a_healthy_one():
    sick = UNPINNED[0].gpus.model_copy(update={"details": (Gpu(index=2, healthy=False),)})
    nodes = (UNPINNED[0].model_copy(update={"gpus": sick}), UNPINNED[1])
    live = world(a=[on("n0", 6, 7)])
    live = live.model_copy(update={"cluster": live.cluster.model_copy(update={"nodes": nodes})})

    ((seen,),) = held(with_expected_gpus(live, PLAN)).values()

    assert {each.index for each in seen.gpus} & {2} == set()
    assert {each.index for each in seen.gpus} & {3} == {3}


def shuffled(live, draw):
    """The same cluster, with the GPUs of each node in another order."""
    orders = {each.name: draw.sample(range(8), 8) for each in live.cluster.nodes}

    def other(one):
        gpus = tuple(
            GpuShare(index=orders[one.node][part.index], milli=part.milli) for part in reversed(one.gpus)
        )
        return one.model_copy(update={"gpus": gpus})

    jobs = tuple(
        each.model_copy(
            update={
                "running": each.running.model_copy(
                    update={"replicas": tuple(map(other, reversed(each.running.replicas)))}
                )
            }
        )
        if each.running
        else each
        for each in live.jobs
    )
    return live.model_copy(update={"jobs": jobs}).canonical()


@pytest.mark.slow
def test_a_cluster_with_shuffled_gpus_is_seen_as_if_they_were_not():
    seen = Counter()
    for seed in range(300):
        draw = random.Random(seed)
        free = {each.name: draw.sample(range(8), 8) for each in UNPINNED}
        jobs = []
        for number in range(draw.randint(1, 6)):
            size, count = draw.choice((1, 1, 2, 3)), draw.choice((1, 1, 2))
            places = [draw.choice(("n0", "n1")) for _ in range(count)]
            if all(len(free[name]) >= size * places.count(name) for name in places):
                at = [on(name, *(free[name].pop() for _ in range(size))) for name in places]
                jobs.append(job(f"j{number}", gpus=size, replicas=count, at=at))
        base = snapshot(nodes=UNPINNED, jobs=jobs)
        live = shuffled(base, draw)
        extra = with_expected_gpus(live, plan_of(base), set())

        assert extra == base, seed
        seen["shuffled"] += live != base
        assert all(
            hold_the_same_but_for_gpu_indices(one, other)
            for one, other in zip(live.running_placements, base.running_placements, strict=True)
        )
    assert seen["shuffled"] > 200
