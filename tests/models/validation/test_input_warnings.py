"""Warnings: what a snapshot may state and was hardly meant."""

from __future__ import annotations

import pytest

from gpuplan.models.gang import Gang
from gpuplan.models.validation.input_warnings import input_warnings
from tests.support.builders.build import cluster, job, node, pool, queue, replica, snapshot
from tests.support.output.golden import figures


def warnings(**world):
    return input_warnings(snapshot(**world))


def test_a_world_in_which_everything_fits_has_none():
    assert warnings(nodes=cluster(2), jobs=[job("a", gpus=8), job("b", milli=500), job("c", cpus=4)]) == ()


def test_a_gpu_model_that_no_node_has():
    (found,) = warnings(nodes=cluster(2), jobs=[job("a", gpus=1, gpu_models={"B300": 1})])

    assert figures(found) == "a B300 H100-80GB"


def test_a_gpu_model_that_only_a_pool_has_is_none():
    pools = [pool(template=node("spare", model="A100-80GB"))]

    assert warnings(nodes=cluster(1), pools=pools, jobs=[job("a", gpus=1, gpu_models={"A100-80GB": 1})]) == ()


@pytest.mark.parametrize(
    ("asked", "told"),
    [
        ({"gpus": 9}, "9 GPUs"),
        ({"gpus": 1, "cpus": 10_000}, "10000 CPUs"),
        ({"gpus": 1, "memory_gib": 100_000}, "102,400,000 MiB"),
        ({"mig": {"9g.90gb": 1}}, "1 x 9g.90gb"),
        ({"gpus": 1, "resources": {"rdma": 1}}, "1 rdma"),
    ],
)
def test_a_replica_that_no_node_can_hold(asked, told):
    (found,) = warnings(nodes=cluster(2), jobs=[job("a", **asked)])

    assert figures(found).startswith("a ")
    assert told in found


def test_a_running_job_gives_no_warning():
    """It runs, so it fits, whatever the node looks like now."""
    world = {"nodes": cluster(1), "jobs": [job("a", gpus=1, gpu_models={"B300": 1}, at=[replica(gpus=[0])])]}

    assert warnings(**world) == ()


def test_quotas_beyond_the_cluster():
    queues = [queue("a", nominal=10), queue("b", nominal=10)]

    (found,) = warnings(nodes=cluster(2), queues=queues)

    assert figures(found) == "20 16"


def test_pools_at_their_maximum_count_for_quotas():
    queues = [queue("a", nominal=10), queue("b", nominal=10)]
    more = [pool(template=node("spare"), most=1)]

    assert warnings(nodes=cluster(2), queues=queues, pools=more) == ()


def test_quotas_of_one_gpu_model():
    queues = [queue("a", **{"A100-80GB": 1})]

    (found,) = warnings(nodes=cluster(2), queues=queues)

    assert figures(found) == "1 A100-80GB 0"


def test_a_guarantee_of_a_parent_includes_those_of_its_children():
    queues = [
        queue("all", nominal=0, guarantee=16),
        queue("a", parent="all", nominal=8, guarantee=8),
        queue("b", parent="all", nominal=8, guarantee=8),
    ]

    assert warnings(nodes=cluster(2), queues=queues) == ()


def test_a_job_that_scales_on_a_gpu_model_where_it_cannot_run():
    gang = Gang(min=1, max=4, scaling_by_model={"H100": {1: 1, 4: 3}, "H100-80GB": {1: 1, 4: 3}})
    one = job("a", gpus=1).model_copy(update={"gang": gang})

    (found,) = warnings(nodes=cluster(2), jobs=[one])

    assert figures(found) == "a H100 H100-80GB"


@pytest.mark.parametrize(
    ("gang", "told"),
    [
        ({"min": 4, "max": 4, "scaling": {1: 1, 4: 3}}, "a 4"),
        ({"min": 1, "max": 4, "scaling": {1: 1, 4: 3, 8: 5}}, "a 8 4"),
        ({"min": 1, "max": 4, "scaling_by_model": {"H100-80GB": {1: 1, 16: 9}}}, "a 16 4"),
    ],
)
def test_speeds_that_no_plan_uses(gang, told):
    one = job("a", gpus=1).model_copy(update={"gang": Gang.model_validate(gang)})

    (found,) = warnings(nodes=cluster(2), jobs=[one])

    assert figures(found) == told


@pytest.mark.parametrize(
    "gang",
    [
        {"min": 1, "max": 4, "scaling": {1: 1, 4: 3}},
        {"min": 4, "max": 4, "scaling_by_model": {"H100-80GB": {4: 3}}},
    ],
    ids=["all used", "by model"],
)
def test_speeds_that_plans_use(gang):
    one = job("a", gpus=1).model_copy(update={"gang": Gang.model_validate(gang)})

    assert warnings(nodes=cluster(2), jobs=[one]) == ()


def test_quotas_of_cpu_cores_and_memory_beyond_the_cluster():
    queues = [queue("a", cpus=100, memory="600Gi"), queue("b", cpus=100, memory="600Gi")]

    cores, memory = warnings(nodes=cluster(2), queues=queues)

    assert figures(cores) == "200 192"
    assert figures(memory) == "1200 1024"
    assert warnings(nodes=cluster(3), queues=queues) == ()
