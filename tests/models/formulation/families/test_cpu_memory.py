from __future__ import annotations

import pytest

from gpuplan.models.job import ResourceRequest
from tests.support.builders import build
from tests.support.harness.family_rows import most


def test_cores_fit_exactly_and_one_more_does_not():
    nodes = build.cluster(1, gpus=0, cpus=32)

    assert (
        most(build.snapshot(nodes=nodes, jobs=[build.job(f"j{i}", cpus=8) for i in range(4)]), "cpu_memory")
        == 4
    )
    assert (
        most(build.snapshot(nodes=nodes, jobs=[build.job(f"j{i}", cpus=8) for i in range(5)]), "cpu_memory")
        == 4
    )


def test_thousandths_of_a_core_count():
    jobs = [build.job(f"j{i}", cpus=0.501) for i in range(2)]

    assert most(build.snapshot(nodes=build.cluster(1, gpus=0, cpus=1), jobs=jobs), "cpu_memory") == 1


@pytest.mark.parametrize(("cpus", "fit"), [(33, 4), (49, 2), (32, 6)])
def test_replicas_large_for_a_node_are_counted_node_by_node(cpus, fit):
    """Two nodes of 96 cores: two of 33 fit each, one of 49, three of 32."""
    jobs = [build.job(f"j{index}", cpus=cpus) for index in range(8)]

    assert most(build.snapshot(nodes=build.cluster(2, gpus=0, cpus=96), jobs=jobs), "cpu_memory") == fit


def test_memory_and_further_resources_limit_alike():
    request = ResourceRequest(resources={"rdma/hca": 3}, memory_mib=1024)
    jobs = [build.job(f"j{index}").model_copy(update={"request": request}) for index in range(4)]

    assert (
        most(build.snapshot(nodes=build.cluster(2, resources={"rdma/hca": 4}), jobs=jobs), "cpu_memory") == 2
    )
    assert (
        most(build.snapshot(nodes=build.cluster(2, resources={"rdma/hca": 6}), jobs=jobs), "cpu_memory") == 4
    )


def test_what_running_jobs_hold_is_not_free():
    running = build.job("r", cpus=30, at=[build.replica("n0", cpus=30)])
    nodes = build.cluster(1, gpus=0, cpus=32)

    assert most(build.snapshot(nodes=nodes, jobs=[running, build.job("a", cpus=2)])) == 1
    assert most(build.snapshot(nodes=nodes, jobs=[running, build.job("a", cpus=3)])) == 0
