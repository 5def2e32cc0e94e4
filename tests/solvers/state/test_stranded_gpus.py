"""Which node strands least: relative to whole nodes, and for what is scarce in the cluster."""

from __future__ import annotations

import pytest

from gpuplan.solvers.heuristics.greedy import greedy
from gpuplan.solvers.params.placement import FillOrder, GreedyParams, PlacementParams
from tests.support.builders import build
from tests.support.builders.problem_builders import posed

KEEPS = {"disruption": {"preempt": False, "migrate": False, "resize": False}}


def chosen(nodes, jobs, name="new"):
    """The node of a job in greedy's plan; running jobs stay."""
    problem = posed(KEEPS, nodes=nodes, jobs=jobs)
    ledger = greedy(problem)
    (placed,) = (each for each in ledger.placed.values() if name in problem.classes[each.job_class].jobs)
    return problem.nodes[placed.sites[0].node].name


def two_nodes(**more):
    return [build.node(name, gpus=4, cpus=40, memory_gib=400, **more) for name in ("n0", "n1")]


def running(name, node, *, gpus, cpus):
    at = [build.replica(node, gpus=range(gpus), cpus=cpus)] if gpus else [build.replica(node, cpus=cpus)]
    return build.job(name, gpus=gpus, cpus=cpus, at=at)


def test_a_node_of_which_running_jobs_took_the_cores_strands_its_gpus():
    # n0 has 2 GPUs and 8 of 40 cores left, n1 has 2 and 20: relative to what is free both would be balanced.
    jobs = [running("r0", "n0", gpus=2, cpus=32), running("r1", "n1", gpus=2, cpus=20)]

    assert chosen(two_nodes(), [*jobs, build.job("new", gpus=1, cpus=1)]) == "n0"
    assert chosen(two_nodes(), [*jobs, build.job("new", gpus=0, cpus=4)]) == "n1"


@pytest.mark.parametrize(("cores", "node"), [(2, "n1"), (18, "n0")])
def test_cores_are_not_stranded_where_jobs_ask_for_more_of_them_than_of_the_gpus(cores, node):
    # n0 has 3 GPUs and 30 cores left, n1 has 1 GPU and 20. A GPU with 5 cores strands no GPU on either; on n1
    # it leaves 15 cores without a GPU. Without need for cores the tightest node, n1, is best.
    jobs = [running("r0", "n0", gpus=1, cpus=10), running("r1", "n1", gpus=3, cpus=20)]
    waiting = [build.job(f"w{number}", gpus=1, cpus=cores, priority=0) for number in range(2)]

    assert chosen(two_nodes(), [*jobs, build.job("new", gpus=1, cpus=5, priority=9), *waiting]) == node


def test_a_job_that_runs_anywhere_leaves_the_model_that_others_name():
    nodes = [build.node("n0", model="A"), build.node("n1", model="B")]
    new = build.job("new", gpus=1, cpus=1)
    names_a = build.job("r", gpus=1, cpus=1, gpu_models={"A": 1}, at=[build.replica("n0", gpus=[0], cpus=1)])

    assert chosen(nodes, [new]) == "n0"
    assert chosen(nodes, [new, names_a]) == "n1"


def test_scarcity_counts_the_demand_of_jobs_that_cannot_run_everywhere_by_gpu():
    nodes = [
        build.node("n0", model="A", gpus=8),
        build.node("n1", model="B", gpus=4),
        build.node("n2", model="C", gpus=4),
    ]
    jobs = [
        build.job("a", gpus=4, gpu_models={"A": 1}),
        build.job("bc", gpus=2, gpu_models={"B": 1, "C": 1}, replicas=2),
        build.job("c", gpus=1, gpu_models={"C": 1}),
        build.job("any", gpus=8),
        build.job("cores", cpus=4),
    ]

    groups = posed(nodes=nodes, jobs=jobs).groups

    # Demand per GPU: A 4/8, B 4/8, C 4/8 + 1/4.
    assert {group.gpu_model: group.scarcity for group in groups} == {"A": 0.667, "B": 0.667, "C": 1.0}


def test_of_several_fill_orders_the_best_plan_counts_where_not_all_jobs_fit():
    # Two shares of 450 fill a GPU; in turns, shares of 600 take half of the GPUs first.
    shares = [build.job(f"s{number:02d}", milli=450, cpus=1) for number in range(16)]
    wide = [build.job(f"w{number:02d}", milli=600, cpus=1) for number in range(16)]
    problem = posed(KEEPS, nodes=[build.node(gpus=8, cpus=64)], jobs=[*shares, *wide])
    in_turns = PlacementParams(greedy=GreedyParams(crowded_share=2.0))

    best, turns = greedy(problem, thorough=True), greedy(problem, thorough=True, params=in_turns)

    assert best.objective > turns.objective
    assert best.params.greedy.fill_order is not FillOrder.TURNS
