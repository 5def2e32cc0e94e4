"""Power caps of nodes and racks in the problem."""

from __future__ import annotations

from tests.support.builders import build
from tests.support.builders.problem_builders import posed


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
