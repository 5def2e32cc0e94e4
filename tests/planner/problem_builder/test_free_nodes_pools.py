"""Pools in the question: nodes that may be opened, and nodes that may be given back."""

from __future__ import annotations

from datetime import timedelta

from gpuplan.models.policy.policy import Policy
from gpuplan.planner.problem_builder import build_problem
from tests.support.builders import build

PRICED = build.node("s", price_per_hour=2.5, rack="r", ready_at=build.NOW + timedelta(hours=1))


def posed(*jobs, policy=None, **more):
    return build_problem(
        build.snapshot(jobs=jobs, **{"nodes": [build.node("n0")]} | more), Policy(**policy or {})
    )


def names(problem, indices):
    return [problem.nodes[index].name for index in indices]


def test_nodes_a_pool_may_be_given_stand_last_in_a_group_of_their_own():
    problem = posed(build.job(gpus=8, replicas=9), pools=[build.pool("spot", template=PRICED, most=3)])

    (option,) = problem.pools
    assert [node.name for node in option.nodes] == ["s-1", "s-2", "s-3"]
    assert {(node.pool, node.ready_at, node.rack) for node in option.nodes} == {("spot", None, "r")}
    assert [node.name for node in problem.nodes] == ["n0", "s-1", "s-2", "s-3"]
    assert [(group.pool, names(problem, group.nodes)) for group in problem.groups] == [
        (None, ["n0"]),
        (0, ["s-1", "s-2", "s-3"]),
    ]
    assert problem.classes[0].options[0].groups == (0, 1)
    assert problem.nodes[1].gpus == (1000,) * 8
    # An hour at 2.5, 100 points a unit, and 5 for the change itself.
    assert option.opening_points == 255


def test_new_nodes_of_a_pool_with_names_take_those_that_no_node_has():
    up = build.node("c2", pool="spot")
    pools = [build.pool("spot", template=PRICED, most=3, names=("c1", "c2", "c3"))]
    problem = posed(build.job(gpus=8, replicas=9), nodes=[build.node("n0"), up], pools=pools)

    assert [node.name for node in problem.pools[0].nodes] == ["c1", "c3"]


def test_there_is_no_question_of_more_nodes_than_replicas_or_than_the_maximum_leaves():
    nodes = [build.node("n0"), build.node("n1", pool="spot", cordoned=True)]

    def opened(job, **more):
        options = posed(job, nodes=nodes, pools=[build.pool(**more)]).pools
        return [len(option.nodes) for option in options]

    assert opened(build.job(gpus=1, replicas=2), most=1_000_000) == [2]
    assert opened(build.job(gpus=1, replicas=(2, 9)), most=5) == [4]
    assert opened(build.job(gpus=1), most=1) == []
    assert opened(build.job(gpus=1, gpu_models={"T4": 1})) == []
    assert opened(build.job(gpus=1, held=True)) == []


def test_new_names_are_the_first_free_ones():
    nodes = [build.node("x-2"), build.node("n0")]
    pools = [build.pool(name, template=build.node("x"), most=2) for name in ("b", "a")]

    options = posed(build.job(gpus=8, replicas=9), nodes=nodes, pools=pools).pools

    assert {option.name: [node.name for node in option.nodes] for option in options} == {
        "a": ["x-1", "x-3"],
        "b": ["x-4", "x-5"],
    }


def test_no_node_with_gpus_is_opened_for_jobs_without():
    pools = [build.pool("big"), build.pool("plain", template=build.node("p", gpus=0))]

    problem = posed(build.job(cpus=1), pools=pools)

    assert [option.name for option in problem.pools] == ["plain"]
    problem = posed(build.job("c", cpus=1), build.job("g", gpus=1), pools=pools)
    by_name = {job_class.jobs[0]: job_class for job_class in problem.classes}
    assert [problem.groups[group].pool for group in by_name["c"].options[0].groups] == [None, 1]
    assert [problem.groups[group].pool for group in by_name["g"].options[0].groups] == [None, 0]


def test_scaling_is_the_policys_choice():
    nodes = [build.node("n0", pool="spot")]
    pools = [build.pool("spot", template=PRICED)]
    policy = {"pools": {"scale_up": False, "scale_down": False}}

    problem = posed(build.job(gpus=1), nodes=nodes, pools=pools, policy=policy)

    assert (problem.pools, problem.nodes[0].closing_points) == ((), None)


def test_empty_nodes_of_a_pool_may_be_given_back_down_to_its_minimum():
    nodes = [
        build.node("a", pool="spot"),
        build.node("b", pool="spot"),
        build.node("c", pool="spot", cordoned=True),
        build.node("d"),
    ]

    problem = posed(nodes=nodes, pools=[build.pool("spot", template=PRICED, least=1)])

    assert [node.closing_points for node in problem.nodes] == [245, 245, None]
    assert (names(problem, problem.pools[0].closable), problem.pools[0].most_closed) == (["a", "b"], 2)


def test_a_pool_at_its_minimum_keeps_its_nodes():
    nodes = [build.node("a", pool="spot")]

    assert posed(nodes=nodes, pools=[build.pool("spot", template=PRICED, least=1)]).pools == ()


def test_a_node_that_saves_nothing_is_given_back_only_where_fragments_are_priced():
    nodes, pools = [build.node("a", pool="spot")], [build.pool("spot")]

    assert posed(nodes=nodes, pools=pools).nodes[0].closing_points is None
    priced = posed(nodes=nodes, pools=pools, policy={"prices": {"fragmentation": 1}})
    assert priced.nodes[0].closing_points == -5


def test_a_node_that_no_job_can_leave_is_not_given_back():
    nodes = [build.node(name, pool="spot") for name in "abc"]
    jobs = [
        build.job("firm", gpus=1, preemptible=False, at=[build.replica("a", gpus=(0,))]),
        build.job("lax", gpus=1, at=[build.replica("b", gpus=(0,))]),
    ]
    pools = [build.pool("spot", template=PRICED, most=3)]

    still = posed(*jobs, nodes=nodes, pools=pools)
    moving = posed(*jobs, nodes=nodes, pools=pools, policy={"disruption": {"migrate": True}})

    assert names(still, still.pools[0].closable) == ["c"]
    assert names(moving, moving.pools[0].closable) == ["b", "c"]


def test_a_mig_layout_of_a_template_is_there_from_the_start():
    template = build.node("m", mig={0: [("3g.40gb", 0)]})

    problem = posed(build.job(mig={"3g.40gb": 1}), pools=[build.pool("m", template=template)])

    assert [gpu.idle for gpu in problem.nodes[1].mig] == [build.layout(("3g.40gb", 0))]
