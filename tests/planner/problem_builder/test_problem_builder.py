"""The problem of a snapshot: which job may go where, and which jobs are alike."""

from __future__ import annotations

from datetime import timedelta

import pytest

from gpuplan.models.affinity import Toleration
from gpuplan.models.cluster import Taint
from gpuplan.models.problem.jobs import ClassRole, Option
from gpuplan.planner.problem_builder import build_problem
from tests.support.builders import build
from tests.support.builders.problem_builders import allowed, posed
from tests.support.strategies import instances


def test_equal_jobs_are_one_class_oldest_first():
    jobs = [
        build.job("b", gpus=1),
        build.job("c", gpus=1, user="else"),
        build.job("a", gpus=1, waited=timedelta(hours=1)),
    ]

    (only,) = posed(jobs=jobs).classes

    assert only.jobs == ("a", "b", "c")


MATCH = {"key": "zone", "values": ["a"]}


@pytest.mark.parametrize(
    "other",
    [
        {"gpus": 2},
        {"gpus": 0, "mig": {"1g.10gb": 1}},
        {"cpus": 1},
        {"memory_gib": 1},
        {"resources": {"rdma/hca": 1}},
        {"priority": 1},
        {"weight": 2},
        {"queue": "p"},
        {"replicas": 2},
        {"gpu_models": {build.MODEL: 1}},
        {"node_selector": {"zone": "a"}},
        {"tolerations": (Toleration(key="x"),)},
        {"affinity": [MATCH]},
        {"preferred_nodes": [{"match": MATCH, "points": 5}]},
        {"regions": ["eu", ""]},
        {"datasets": ["d"]},
        {"workload_class": "inference"},
        {"anti_affinity": [{"labels": {"app": "x"}}]},
        {"labels": {"app": "x"}},
        {"waited": timedelta(days=1)},
    ],
)
def test_jobs_that_differ_in_anything_that_matters_are_classes_of_their_own(other):
    nodes = build.cluster(2, labels={"zone": "a"}, resources={"rdma/hca": 1})
    carrier = build.job("c", gpus=3, labels={"app": "x"}, anti_affinity=[{"labels": {"app": "x"}}])
    jobs = [build.job("a", gpus=1), build.job("b", **{"gpus": 1} | other), carrier]

    problem = posed(
        nodes=nodes,
        queues=[build.queue("q"), build.queue("p")],
        jobs=jobs,
        datasets=[{"name": "d"}],
        policy={"profiles": {"inference": "spread"}},
    )

    assert [one.jobs for one in problem.classes] == [("a",), ("b",), ("c",)]


@pytest.mark.parametrize(
    "other",
    [
        {"user": "else"},
        {"labels": {"app": "y"}},
        {"workload_class": "inference"},
        {"locality": {"required": "rack", "preferred": "zone"}},
        {"spread": {"max": 1}},
        {"anti_affinity": [{"labels": {"app": "unknown"}}]},
        {"qos": "burstable"},
        {"preemptible": False},
        {"preemptions": 3},
        {"time_slicing": True},
        {"deadline": build.NOW},
    ],
)
def test_what_makes_no_difference_to_a_single_replica_makes_no_class(other):
    jobs = [build.job("a", gpus=1), build.job("b", gpus=1, **other)]

    assert len(posed(jobs=jobs).classes) == 1


def test_held_and_running_jobs_do_not_start():
    jobs = [
        build.job("held", gpus=1, held=True),
        build.job("runs", gpus=1, at=[build.replica(gpus=(0,))]),
    ]

    assert posed(jobs=jobs).classes == ()


@pytest.mark.parametrize("slots", [1, 2])
def test_a_job_that_alone_breaks_a_limit_of_its_queue_does_not_start_there(slots):
    above = build.queue("above", nominal=0, **{build.MODEL: 0})
    queue = build.queue(nominal=3, parent="above", borrowing=0, **{build.MODEL: 2})
    nodes = [build.node("n0"), build.node("old", model="V100-32GB"), build.node("cpu", gpus=0)]
    jobs = [
        build.job("three", gpus=1, replicas=3),
        build.job("two-or-more", gpus=1, replicas=(2, 5)),
        build.job("four", gpus=4),
        build.job("none", cpus=4),
    ]

    found = posed({"horizon": {"slots": slots}}, nodes=nodes, queues=[above, queue], jobs=jobs).classes

    models = {each.jobs: {option.gpu_model for option in each.options} for each in found}
    assert models == {
        ("three",): {"V100-32GB"},
        ("two-or-more",): {build.MODEL, "V100-32GB"},
        ("none",): {None},
    }


def test_a_running_job_may_move_though_its_queue_allows_less_by_now():
    """No job would be new there."""
    running = build.job("r", gpus=4, at=[build.replica("n0", gpus=range(4))])
    waiting = build.job("w", gpus=1)

    found = posed(
        {"disruption": {"migrate": True}}, queues=[build.queue(nominal=3)], jobs=[running, waiting]
    ).classes

    assert [each.jobs for each in found if each.role is ClassRole.MOVE] == [("r",)]


def test_nodes_that_take_no_new_jobs_are_left_out():
    nodes = [
        build.node("a"),
        build.node("b", cordoned=True),
        build.node("c", ready=False),
        build.node("d", drain=True),
        build.node("e", ready_at=build.NOW + timedelta(minutes=5)),
    ]

    assert [node.name for node in posed(nodes=nodes).nodes] == ["a", "e"]


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
    assert allowed(problem) == {"a", "b", "e", "f"}


@pytest.mark.parametrize(
    ("one", "asked"),
    [
        ({"labels": {"tier": "gold"}}, {"affinity": [{"key": "tier", "operator": "Exists"}]}),
        (
            {"labels": {"tier": "gold"}},
            {"preferred_nodes": [{"match": {"key": "tier", "operator": "Exists"}, "points": 1}]},
        ),
        ({"region": "eu"}, {"regions": ["eu"]}),
        ({"time_sliced": True}, {}),
        ({"zone": "z"}, {"datasets": ["d"]}),
    ],
)
def test_nodes_are_told_apart_only_by_what_a_job_asks_for(one, asked):
    nodes = [build.node("a", **one), build.node("b")]
    data = [{"name": "d", "zones": {"z": 1}}]

    indifferent = posed(nodes=nodes, jobs=[build.job(gpus=1)], datasets=data)
    asking = posed(nodes=nodes, jobs=[build.job(gpus=1, **asked)], datasets=data)

    assert len(asking.groups) == 2
    assert len(indifferent.groups) == (1 if asked else 2)


def test_filters_keep_jobs_from_nodes():
    nodes = [
        build.node("a", labels={"tier": "gold"}, region="eu"),
        build.node("b", labels={"tier": "iron"}, region="eu"),
        build.node("c", labels={"tier": "gold"}, region="us"),
    ]
    job = build.job(
        gpus=1, affinity=[{"key": "tier", "operator": "NotIn", "values": ["iron"]}], regions=["eu"]
    )

    assert allowed(posed(nodes=nodes, jobs=[job])) == {"a"}


def test_shares_go_to_time_sliced_gpus_only_if_the_job_allows_it():
    nodes = [build.node("a", time_sliced=True), build.node("b")]
    jobs = [
        build.job("firm", milli=500),
        build.job("lax", milli=300, time_slicing=True),
        build.job("whole", gpus=1),
    ]
    problem = posed(nodes=nodes, jobs=jobs)

    assert [allowed(problem, number) for number in range(3)] == [{"b"}, {"a", "b"}, {"a", "b"}]


def test_mig_jobs_go_where_the_gpu_model_offers_every_profile():
    nodes = [
        build.node("a"),
        build.node("b", model="A30-24GB"),
        build.node("c", model="T4"),
        build.node("d", gpus=0),
    ]
    jobs = [
        build.job("both", mig={"1g.10gb": 1, "3g.40gb": 1}),
        build.job("small", mig={"1g.6gb": 2}),
        build.job("split", mig={"1g.10gb": 1, "1g.6gb": 1}),
    ]
    problem = posed(nodes=nodes, jobs=jobs)

    assert [(one.jobs, allowed(problem, number)) for number, one in enumerate(problem.classes)] == [
        (("both",), {"a"}),
        (("small",), {"b"}),
    ]
    assert problem.classes[0].shape.mig == (("1g.10gb", 1), ("3g.40gb", 1))


def test_mig_jobs_use_instances_present_on_a_model_of_unknown_geometry():
    nodes = [
        build.node("a", model="X1", mig={0: [("1g.10gb", 0)]}),
        build.node("b", model="X1", mig={0: [("2g.20gb", 0)]}),
        build.node("c", model="X1"),
    ]

    assert allowed(posed(nodes=nodes, jobs=[build.job(mig={"1g.10gb": 1})])) == {"a"}


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

    assert build_problem(backwards, instances.POLICY) == build_problem(snapshot, instances.POLICY)


def test_a_start_is_no_incumbents():
    (only,) = posed(jobs=[build.job(gpus=1)]).classes

    assert (only.role, only.incumbent, only.options) == (
        ClassRole.START,
        None,
        (Option(build.MODEL, (0,), 100),),
    )
