from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gpuplan.models.cluster import Cluster, Gpu, MigInstance, NodeGpus
from gpuplan.models.eligibility.free_resources import free_resources_by_node
from gpuplan.models.plan.plan import JobCounts
from gpuplan.models.plan.solution import DesiredState
from gpuplan.planner.analysis.job_changes import PlanChanges
from gpuplan.planner.analysis.metrics import (
    allocation_ratio,
    compute_metrics,
    fragmentation_ratio,
    hourly_cost,
    jain_index,
)
from tests.support.builders.build import job, node, placement, pool, queue, replica, snapshot
from tests.support.builders.solution_builders import target
from tests.support.harness.verify_helpers import sliced
from tests.support.seeds import examples
from tests.support.strategies.placement_strategies import legal_placements
from tests.support.strategies.snapshot_strategies import snapshots


def nodes_of(*nodes):
    return Cluster(nodes=nodes)


def fragments(cluster, placements):
    return fragmentation_ratio(cluster, free_resources_by_node(cluster.nodes, placements))


def with_gpus(count, *details):
    gpus = NodeGpus(model="H100-80GB", count=count, details=details)
    return node().model_copy(update={"gpus": gpus})


def test_allocation_counts_shares_and_whole_gpus():
    placements = [placement("a", replica(gpus=[0, 1])), placement("b", replica("n1", gpus=[0], milli=500))]

    assert allocation_ratio(nodes_of(node(gpus=4), node("n1", gpus=1)), placements) == 0.5


def test_gpus_without_possible_users_are_not_counted():
    half_broken = with_gpus(2, Gpu(index=1, healthy=False))
    down = node("n1", ready=False)
    placements = [placement("a", replica(gpus=[0, 1])), placement("b", replica("n1", gpus=[0]))]

    assert allocation_ratio(nodes_of(half_broken, down), placements) == 1


def test_mig_slices_count_by_their_compute_slices():
    sliced_gpu = with_gpus(1, Gpu(index=0, mig=(MigInstance(profile="3g.40gb", start=0),)))
    held = sliced(replica(), (0, "3g.40gb", 0))

    assert allocation_ratio(nodes_of(sliced_gpu), [placement("a", held)]) == pytest.approx(3 / 7, abs=0.001)


def test_overfull_gpus_count_once():
    placements = [placement("a", replica(gpus=[0])), placement("b", replica(gpus=[0]))]

    assert allocation_ratio(nodes_of(node(gpus=2)), placements) == 0.5


def test_a_cluster_without_gpus_has_ratios_of_zero():
    assert allocation_ratio(nodes_of(node(gpus=0)), []) == 0
    assert fragments(nodes_of(node(gpus=0)), []) == 0


@pytest.mark.parametrize(
    ("gpus", "taken", "ratio"),
    [
        (8, [], 0),
        (8, [0], 1),
        (4, [], 0),
        (4, [0], 1),
        (16, [0], 7 / 15),
        (16, range(8), 0),
        (8, range(8), 0),
    ],
)
def test_free_gpus_outside_blocks_of_eight_are_fragments(gpus, taken, ratio):
    placements = [placement("a", replica(gpus=taken))]

    assert fragments(nodes_of(node(gpus=gpus)), placements) == pytest.approx(ratio, abs=1e-6)


def test_the_rest_of_a_shared_gpu_is_a_fragment():
    placements = [placement("a", replica(gpus=[0], milli=500))]

    # 7.5 of 15.5 free GPUs are beside the share.
    assert fragments(nodes_of(node(), node("n1")), placements) == pytest.approx(7.5 / 15.5, abs=1e-6)


def test_an_unhealthy_gpu_makes_the_block_smaller_not_the_rest_useless():
    assert fragments(nodes_of(with_gpus(8, Gpu(index=3, healthy=False))), []) == 0


def test_nothing_is_free_where_nothing_may_start():
    free, cordoned = node("n0"), node("n1", cordoned=True)
    placements = [placement("a", replica("n1", gpus=[0]))]

    assert fragments(nodes_of(free, cordoned), placements) == 0


def test_equal_parts_of_demand_are_fair():
    world = snapshot(
        queues=[queue("p"), queue("q")],
        jobs=[job("a", gpus=2, queue="p"), job("b", gpus=2, queue="p"), job("c", gpus=4), job("d", gpus=4)],
    )
    equal = [placement("a", replica(gpus=[0, 1])), placement("c", replica("n1", gpus=range(4)))]
    one_sided = [*equal, placement("b", replica(gpus=[2, 3]))]

    assert jain_index(world, equal) == 1
    assert jain_index(world, one_sided) == 0.9  # 1 and ½: (3/2)² / (2 · 5/4)
    assert jain_index(world, equal[:1]) == 0.5


def test_only_queues_that_demand_gpus_take_part():
    world = snapshot(
        queues=[queue("p"), queue("q"), queue("idle")],
        jobs=[
            job("a", gpus=1, at=[replica(gpus=[0])]),
            job("b", cpus=1, queue="p"),
            job("c", gpus=8, queue="p", held=True),
        ],
    )

    assert jain_index(world, world.running_placements) == 1


def test_no_service_at_all_is_fair():
    assert jain_index(snapshot(jobs=[job("a", gpus=1)]), []) == 1


def test_ready_nodes_cost_whether_busy_or_not():
    nodes = [
        node(price_per_hour=0.1),
        node("n1", price_per_hour=0.2, cordoned=True),
        node("n2", price_per_hour=5, ready=False),
    ]

    assert hourly_cost(nodes_of(*nodes)) == 0.3


def test_running_jobs_demand_what_they_held_or_hold():
    world = snapshot(
        queues=[queue("p"), queue("q")],
        jobs=[
            job("a", gpus=4, queue="p", at=[replica(gpus=range(4))]),
            job("b", gpus=1, replicas=(1, 4), at=[replica("n1", gpus=[0])]),
        ],
    )
    grown = placement("b", *(replica("n1", gpus=[index]) for index in range(4)))

    stopped, both = jain_index(world, [grown]), jain_index(world, [grown, world.running_placements[0]])

    assert (stopped, both) == (0.5, 1)


def test_nodes_that_come_and_go_count_in_the_figures_after():
    old = node("old", gpus=4, pool="spot", price_per_hour=2)
    spot = pool("spot", template=node("spot", gpus=8, pool="spot", price_per_hour=5))
    new = spot.template.model_copy(update={"name": "spot-1"})
    world = snapshot(
        nodes=[old],
        pools=[spot],
        jobs=[job("a", gpus=4), job("v", gpus=1, at=[replica("old", gpus=[0])])],
    )
    goal = target(
        world, placement("a", replica("spot-1", gpus=range(4))), stopped=["v"], added=[new], removed=["old"]
    )

    found = compute_metrics(PlanChanges(world, goal))

    assert (found.gpu_allocation_ratio_before, found.gpu_allocation_ratio) == (0.25, 0.5)
    assert (found.hourly_cost_before, found.hourly_cost) == (2, 5)
    assert found.jobs == JobCounts(running=1, started=1, waiting=1, preempted=1)


@pytest.mark.slow
@settings(max_examples=examples(100))
@given(st.data())
def test_ratios_are_those_of_the_placements_and_starts_only_add(data):
    world = data.draw(snapshots(mig=True))
    placements = tuple(data.draw(legal_placements(world)))

    found = compute_metrics(PlanChanges(world, DesiredState(placements)))

    cluster = PlanChanges(world, DesiredState(placements)).cluster
    assert found.gpu_allocation_ratio == allocation_ratio(cluster, placements)
    assert found.gpu_allocation_ratio_before == allocation_ratio(world.cluster, world.running_placements)
    assert found.fragmentation_ratio == fragments(cluster, placements)
    assert 0 <= found.gpu_allocation_ratio_before <= found.gpu_allocation_ratio <= 1
    assert 0 <= found.fragmentation_ratio <= 1
    assert 1 / len(world.queues) - 1e-6 <= found.jain_index <= 1
    assert found.jobs.running + found.jobs.waiting == len(world.jobs)
