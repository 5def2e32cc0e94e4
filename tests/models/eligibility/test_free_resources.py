"""What is free: whole amounts, charges of running jobs, and MIG instances slice by slice."""

from __future__ import annotations

import pytest

from gpuplan.models.cluster import Cluster
from gpuplan.models.eligibility.free_resources import FreeResources, free_resources_by_node
from tests.support.builders import build

CLUSTER = Cluster(
    nodes=(build.node("n0", gpus=0, cpus=10, memory_gib=10),),
    overcommit={
        "burstable": {"cpus": 1.5},
        "best_effort": {"cpus": 4, "memory": 3},
        "guaranteed": {"cpus": 9},
    },
)


def test_what_is_free_follows_the_charges_of_the_jobs_that_run():
    jobs = [
        build.job("a", qos="best_effort", cpus=4, at=[build.replica(cpus=4, memory_gib=3)]),
        build.job("b", cpus=4, at=[build.replica(cpus=4, memory_gib=3)]),
    ]
    world = build.snapshot(nodes=CLUSTER.nodes, jobs=jobs, overcommit=CLUSTER.overcommit)

    full = free_resources_by_node(world.cluster.nodes, world.running_placements)["n0"]
    left = free_resources_by_node(world.cluster.nodes, world.running_placements, snapshot=world)["n0"]

    assert (full.cpu_milli, full.memory_mib) == (2000, 4 * 1024)
    assert (left.cpu_milli, left.memory_mib) == (5000, 6 * 1024)


def test_a_replica_fits_by_what_it_is_charged():
    free = FreeResources.of(CLUSTER.nodes[0])
    replica = build.replica(cpus=40, memory_gib=10)

    assert not free.holds(replica)
    assert free.holds(replica, charge=(10_000, 10 * 1024))


@pytest.mark.parametrize(
    ("wanted", "fits"),
    [
        ([(0, "1g.10gb", 0)], True),
        ([(0, "1g.10gb", 4)], False),
        ([(0, "1g.10gb", 6)], False),
        ([(0, "4g.40gb", 0)], True),
        ([(0, "7g.80gb", 0)], False),
        ([(1, "7g.80gb", 0)], True),
        ([(0, "1g.10gb", 0), (0, "1g.10gb", 1)], True),
        ([(0, "2g.20gb", 0), (0, "1g.10gb", 1)], False),
    ],
)
def test_an_instance_takes_its_memory_slices(wanted, fits):
    free = FreeResources.of(build.node(mig={0: [("3g.40gb", 4)], 1: []}))
    free.take(build.replica(mig=[(0, "3g.40gb", 4)]))

    assert free.holds(build.replica(mig=wanted)) == fits


def test_replicas_on_unknown_nodes_are_passed_over():
    placement = build.placement("a", build.replica("gone", cpus=4))

    assert free_resources_by_node(CLUSTER.nodes, [placement])["n0"].cpu_milli == 10_000
