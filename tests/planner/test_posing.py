"""The question asked is the snapshot's: who may go where, what is free, who is like whom."""

from __future__ import annotations

from datetime import timedelta

import build
import instances
import pytest

from planner.models.cluster import Taint
from planner.models.job import Toleration
from planner.models.policy import Policy
from planner.posing import pose


def posed(**more):
    return pose(build.snapshot(**more), Policy())


def test_equal_jobs_are_one_class_oldest_first():
    jobs = [
        build.job("b", gpus=1),
        build.job("c", gpus=1, user="else"),
        build.job("a", gpus=1, waited=timedelta(hours=1)),
    ]

    (only,) = posed(jobs=jobs).classes

    assert only.jobs == ("a", "b", "c")


@pytest.mark.parametrize(
    "other",
    [
        {"gpus": 2},
        {"cpus": 1},
        {"memory_gib": 1},
        {"priority": 1},
        {"weight": 2},
        {"queue": "p"},
        {"replicas": 2},
        {"gpu_models": {build.MODEL: 1}},
        {"node_selector": {"zone": "a"}},
        {"tolerations": (Toleration(key="x"),)},
        {"waited": timedelta(days=1)},
    ],
)
def test_jobs_that_differ_in_anything_that_matters_are_classes_of_their_own(other):
    nodes = build.cluster(2, labels={"zone": "a"})
    jobs = [build.job("a", gpus=1), build.job("b", **{"gpus": 1} | other)]

    assert len(posed(nodes=nodes, queues=[build.queue("q"), build.queue("p")], jobs=jobs).classes) == 2


def test_held_running_and_unmodelled_jobs_are_not_asked_about():
    jobs = [
        build.job("held", gpus=1, held=True),
        build.job("runs", gpus=1, at=[build.replica(gpus=(0,))]),
        build.job("near", gpus=1, replicas=2, locality={"required": "rack"}),
    ]

    assert posed(jobs=jobs).classes == ()


def test_nodes_that_take_no_new_jobs_are_left_out():
    nodes = [build.node("a"), build.node("b", cordoned=True), build.node("c", ready=False)]

    assert [node.name for node in posed(nodes=nodes).nodes] == ["a"]


def test_groups_follow_gpu_model_count_and_what_selectors_and_taints_tell_apart():
    nodes = [
        build.node("a", labels={"tier": "gold", "rack": "1"}),
        build.node("b", labels={"tier": "gold", "rack": "2"}),
        build.node("c", labels={"tier": "iron"}),
        build.node("d", labels={"tier": "gold"}, taints=(Taint(key="x"),)),
        build.node("e", gpus=4, labels={"tier": "gold"}),
        build.node("f", model="T4", labels={"tier": "gold"}),
    ]
    problem = posed(nodes=nodes, jobs=[build.job(gpus=1, node_selector={"tier": "gold"})])

    groups = {tuple(problem.nodes[index].name for index in group.nodes) for group in problem.groups}

    assert groups == {("a", "b"), ("c",), ("d",), ("e",), ("f",)}
    allowed = {
        problem.nodes[n].name
        for option in problem.classes[0].options
        for g in option.groups
        for n in problem.groups[g].nodes
    }
    assert allowed == {"a", "b", "e", "f"}


def test_faster_gpu_model_comes_first_and_pays_more():
    nodes = [build.node("a", model="T4"), build.node("b", model="H100-80GB")]
    job = build.job(gpus=1, gpu_models={"T4": 1, "H100-80GB": 4})

    (only,) = posed(nodes=nodes, jobs=[job]).classes

    assert [(option.gpu_model, option.points) for option in only.options] == [("H100-80GB", 100), ("T4", 25)]


def test_cpu_only_job_may_use_every_node_as_one_option():
    nodes = [build.node("a"), build.node("b", gpus=0)]

    (only,) = posed(nodes=nodes, jobs=[build.job(cpus=1)]).classes

    assert [(option.gpu_model, len(option.groups)) for option in only.options] == [(None, 2)]


def test_free_amounts_are_what_running_jobs_leave_and_never_negative():
    running = build.job("r", at=[build.replica("n0", gpus=(1,), milli=300, cpus=40, memory_gib=8)])
    (node,) = posed(nodes=[build.node("n0", gpus=2, cpus=32, memory_gib=64)], jobs=[running]).nodes

    assert node.gpus == (1000, 700)
    assert node.amounts == (0, 56 * 1024, 0)


def test_limit_below_what_runs_is_raised_to_it():
    running = build.job("r", at=[build.replica("n0", gpus=range(4))])

    (budget,) = posed(queues=[build.queue("q", nominal=3)], jobs=[running]).budgets

    assert (budget.limit, budget.own) == ((4000,), (4000,))


@pytest.mark.parametrize("seed", range(20))
def test_order_of_input_changes_nothing(seed):
    snapshot = instances.mixed(seed)
    backwards = snapshot.model_copy(
        update={
            "jobs": snapshot.jobs[::-1],
            "queues": snapshot.queues[::-1],
            "cluster": snapshot.cluster.model_copy(update={"nodes": snapshot.cluster.nodes[::-1]}),
        }
    )

    assert pose(backwards, instances.POLICY) == pose(snapshot, instances.POLICY)
