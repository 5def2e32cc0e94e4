"""The question asked is the snapshot's: what is free on nodes, and what racks and queues may still hold."""

from __future__ import annotations

from gpuplan.models.cluster import Gpu, QosClass
from gpuplan.models.problem.nodes import MigGpu
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


def test_power_caps_of_nodes_are_a_resource_if_one_of_them_binds():
    nodes = [
        build.node("a", gpus=8, watts=700, power_cap_watts=2000),
        build.node("b", gpus=8, watts=700),
        build.node("c", gpus=0, power_cap_watts=5),
        build.node("d", gpus=8, power_cap_watts=5),
    ]
    jobs = [
        build.job("r", gpus=1, at=[build.replica("a", gpus=(0,))], preemptible=False),
        build.job("s", milli=250),
        build.job("m", mig={"1g.10gb": 2}),
    ]

    problem = posed(nodes=nodes, jobs=jobs)

    assert problem.resources[3:] == ("GPU power in thousandths of GPUs",)
    assert [node.amounts[3] for node in problem.nodes] == [1857, 8000, 0, 8000]
    assert {one.jobs[0]: one.shape.amounts[3] for one in problem.classes} == {"s": 250, "m": 284}
    assert len(posed(nodes=nodes[1:], jobs=[build.job(gpus=1)]).resources) == 3


def test_power_caps_of_racks_leave_what_all_running_jobs_of_the_rack_do_not_draw():
    nodes = [
        build.node("a", rack="r", zone="z", watts=700),
        build.node("b", rack="r", zone="z", watts=400, cordoned=True),
        build.node("c", rack="r", watts=700),
        build.node("d", rack="r", zone="z", gpus=4, watts=300),
        build.node("e", rack="s", zone="z", watts=10),
    ]
    jobs = [
        build.job("x", gpus=1, at=[build.replica("a", gpus=(0,))]),
        build.job("y", milli=500, at=[build.replica("b", gpus=(0,), milli=500)]),
    ]

    problem = posed(
        nodes=nodes,
        jobs=jobs,
        rack_power=[
            {"rack": "r", "zone": "z", "watts": 2000},
            {"rack": "s", "zone": "z", "watts": 80},  # all there is: binds nothing
        ],
    )

    (cap,) = problem.power_caps
    assert [problem.nodes[index].name for index in cap.nodes] == ["a", "d"]
    assert (cap.watts, cap.left) == ((700, 300), 2_000_000 - 700_000 - 200_000)


def test_a_rack_beyond_its_cap_has_nothing_left():
    nodes = [build.node("a", rack="r", watts=700)]
    runs = build.job("x", gpus=2, at=[build.replica("a", gpus=(0, 1))])

    (cap,) = posed(nodes=nodes, jobs=[runs], rack_power=[{"rack": "r", "watts": 1000}]).power_caps

    assert cap.left == -400_000


def test_limit_below_what_runs_is_raised_to_it():
    running = build.job("r", at=[build.replica("n0", gpus=range(4))])

    (budget,) = posed(queues=[build.queue("q", nominal=3)], jobs=[running]).budgets

    assert (budget.limit, budget.own) == ((4000,), (4000,))


def test_a_queue_is_owed_its_guarantee_as_far_as_it_and_those_below_ask():
    queues = [
        build.queue("all"),
        build.queue("a", parent="all", nominal=8, guarantee=6),
        build.queue("b", parent="a"),
        build.queue("c", parent="all", nominal=8, guarantee=2),
        build.queue("d", parent="all", nominal=8, guarantee=2),
    ]
    jobs = [
        build.job("r", gpus=1, queue="b", at=[build.replica("n0", gpus=(0,))]),
        build.job("w", gpus=1, queue="b", replicas=(1, 3)),
        build.job("h", gpus=4, queue="b", held=True),
        build.job("x", gpus=2, replicas=(1, 4), queue="c"),
        build.job("z", gpus=8, queue="d"),
        build.job("y", cpus=8, queue="d"),
    ]

    problem = posed(queues=queues, jobs=jobs)

    assert [
        (found.resource, [problem.queues[index] for index in found.queues], found.owed, found.own)
        for found in problem.guarantees
    ] == [("", ["a", "b"], 4000, 1000), ("", ["c"], 2000, 0)]


def test_a_guarantee_of_one_model_counts_demand_that_may_use_it():
    quota = {"nominal": 8, "guarantee": 8}
    queues = [build.queue("q").model_validate({"name": "q", "gpu_models": {build.MODEL: quota}})]
    nodes = [build.node("a"), build.node("t", model="T4")]
    jobs = [
        build.job("any", gpus=1),
        build.job("named", gpus=2, gpu_models={build.MODEL: 1, "T4": 1}),
        build.job("other", gpus=4, gpu_models={"T4": 1}),
        build.job("runs", gpus=1, at=[build.replica("t", gpus=(0,))]),
        build.job("here", gpus=1, at=[build.replica("a", gpus=(0,))]),
    ]

    (found,) = posed(queues=queues, nodes=nodes, jobs=jobs).guarantees

    assert (found.resource, found.owed, found.own) == (build.MODEL, 4000, 1000)
