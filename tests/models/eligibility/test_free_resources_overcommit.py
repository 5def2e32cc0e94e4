"""Overcommit: what a replica counts for by its class of service."""

from __future__ import annotations

import pytest

from gpuplan.models.cluster import Cluster, QosClass
from gpuplan.models.eligibility.free_resources import charged_cpu_memory
from tests.support.builders import build

CLUSTER = Cluster(
    nodes=(build.node("n0", gpus=0, cpus=10, memory_gib=10),),
    overcommit={
        "burstable": {"cpus": 1.5},
        "best_effort": {"cpus": 4, "memory": 3},
        "guaranteed": {"cpus": 9},
    },
)


@pytest.mark.parametrize(
    ("qos", "expected"),
    [("guaranteed", (1001, 1024)), ("burstable", (668, 1024)), ("best_effort", (251, 342))],
)
def test_a_replica_counts_for_its_amounts_by_its_class_rounded_up(qos, expected):
    replica = build.replica(cpus=1.001, memory_gib=1)

    assert charged_cpu_memory(replica, QosClass(qos), CLUSTER) == expected


def test_a_class_without_overcommit_counts_in_full():
    bare = CLUSTER.model_copy(update={"overcommit": {}})

    assert charged_cpu_memory(build.replica(cpus=4), QosClass.BEST_EFFORT, bare) == (4000, 0)


def test_a_request_is_charged_as_what_it_will_hold():
    job = build.job(cpus=1.001, memory_gib=1)

    assert charged_cpu_memory(job.request, QosClass.BEST_EFFORT, CLUSTER) == (251, 342)
