"""Nodes of the problem: free amounts, MIG layouts, and what joins GPUs."""

from __future__ import annotations

from gpuplan.models.cluster import Gpu, QosClass
from gpuplan.models.problem.problem import MigGpu
from tests.support.builders import build
from tests.support.builders.problem_builders import posed


def test_free_amounts_are_what_running_jobs_leave_and_never_negative():
    running = build.job("r", at=[build.replica("n0", gpus=(1,), milli=300, cpus=40, memory_gib=8)])
    (node,) = posed(nodes=[build.node("n0", gpus=2, cpus=32, memory_gib=64)], jobs=[running]).nodes

    assert node.gpus == (1000, 700)
    assert node.amounts == (0, 56 * 1024, 0)


def test_overcommitted_cpu_and_memory_count_for_less_in_shapes_and_on_nodes():
    running = build.job("r", cpus=3, qos="best_effort", at=[build.replica("n0", cpus=3, memory_gib=8)])
    jobs = [
        running,
        build.job("firm", cpus=4, memory_gib=2),
        build.job("lax", cpus=10, memory_gib=2, qos="burstable"),
    ]
    problem = posed(
        nodes=[build.node("n0", gpus=0, cpus=32, memory_gib=64)],
        jobs=jobs,
        overcommit={"best_effort": {"cpus": 2, "memory": 4}, "burstable": {"cpus": 3}},
    )

    assert problem.nodes[0].amounts == (32_000 - 1_500, 62 * 1024, 0)
    firm, lax = problem.classes
    assert (firm.shape.amounts, firm.asked) == ((4_000, 2048, 0), ())
    assert (lax.shape.amounts, lax.asked) == ((3_334, 2048, 0), (10_000, 2048, 0))


def test_equal_charges_of_different_requests_are_different_classes():
    jobs = [build.job("a", cpus=1), build.job("b", cpus=2, qos=QosClass.BURSTABLE)]

    assert len(posed(jobs=jobs, overcommit={"burstable": {"cpus": 2}}).classes) == 2


def test_mig_layouts_are_told_apart_by_use():
    layout = [("3g.40gb", 4), ("1g.10gb", 0), ("2g.20gb", 2)]
    nodes = [
        build.node(
            "n0",
            gpus=4,
            mig={1: layout, 2: []},
            details=(Gpu(index=3, healthy=False, mig=()),),
        )
    ]
    running = build.job("r", mig={"1g.10gb": 1}, at=[build.replica("n0", mig=[(1, "1g.10gb", 0)])])

    (node,) = posed(nodes=nodes, jobs=[running]).nodes

    assert node.gpus == (1000, 0, 0, 0)
    assert node.mig == (
        MigGpu(1, idle=build.layout(("2g.20gb", 2), ("3g.40gb", 4)), used=build.layout(("1g.10gb", 0))),
        MigGpu(2, idle=(), used=()),
    )


def test_what_joins_gpus_is_told_where_it_is_known():
    joined = build.node("a", gpus=3, details=(Gpu(index=1, nvlink=0, numa=1), Gpu(index=2, numa=0)))

    found = posed(nodes=[joined, build.node("b")]).nodes

    assert [node.gpu_groups for node in found] == [((-1, -1), (0, 1), (-1, 0)), ()]
