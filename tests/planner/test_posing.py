"""The question asked is the snapshot's: who may go where, what is free, who is like whom."""

from __future__ import annotations

from datetime import timedelta

import build
import instances
import pytest

from planner.models.cluster import Gpu, Level, QosClass, Taint
from planner.models.job import Toleration
from planner.models.policy import Policy, Profile
from planner.models.problem_jobs import Option, Role, Togetherness
from planner.models.problem_nodes import MigGpu
from planner.posing import pose


def posed(policy=None, **more):
    return pose(build.snapshot(**more), Policy(**policy or {}))


def names(problem, groups):
    return {problem.nodes[index].name for group in groups for index in problem.groups[group].nodes}


def allowed(problem, number=0):
    """Names of the nodes that a class may use."""
    return names(problem, [group for option in problem.classes[number].options for group in option.groups])


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
        {"anti_affinity": [{"labels": {"app": "nobody"}}]},
        {"qos": "burstable"},
        {"preemptible": False},
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
def test_nodes_are_told_apart_only_by_what_somebody_asks_for(one, asked):
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
        build.job("x", gpus=8, queue="c"),
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


def test_data_and_wishes_are_priced_by_group_and_replica():
    nodes = [
        build.node("a", zone="near", labels={"disk": "nvme"}),
        build.node("b", zone="near"),
        build.node("c", zone="far", labels={"disk": "nvme"}),
        build.node("d", zone="else"),
    ]
    job = build.job(
        gpus=1,
        datasets=["x", "y"],
        preferred_nodes=[
            {"match": {"key": "disk", "values": ["nvme"]}, "points": 7},
            {"match": {"key": "slow", "operator": "DoesNotExist"}, "points": 1000},
        ],
    )
    data = [
        {"name": "x", "zones": {"near": 0, "far": 2.5}, "elsewhere": 1},
        {"name": "y", "zones": {"near": 0, "far": 0.504}, "elsewhere": 0.25},
    ]
    problem = posed(nodes=nodes, jobs=[job], datasets=data)

    (only,) = problem.classes
    assert {name: points for group, points in only.node_points for name in names(problem, [group])} == {
        "b": -7,
        "c": -300,
        "d": -125 - 7,
    }


@pytest.mark.parametrize(
    ("fields", "expected"),
    [
        ({"locality": {"required": "rack"}}, Togetherness(required=Level.RACK)),
        ({"locality": {"required": "rack", "preferred": "rack"}}, Togetherness(required=Level.RACK)),
        (
            {"locality": {"required": "zone", "preferred": "rack"}},
            Togetherness(required=Level.ZONE, preferred=Level.RACK),
        ),
        ({"spread": {"level": "zone", "max": 2}}, Togetherness(spread=Level.ZONE, most=2)),
        ({"spread": {"max": 3}}, Togetherness()),
        ({"replicas": 1, "locality": {"required": "rack"}, "spread": {"max": 1}}, Togetherness()),
    ],
)
def test_together_is_what_so_many_replicas_can_feel(fields, expected):
    (only,) = posed(jobs=[build.job(**{"gpus": 1, "replicas": 3} | fields)]).classes

    assert only.together == expected


def test_a_preferred_level_without_a_price_is_none():
    job = build.job(gpus=1, replicas=2, locality={"preferred": "rack"})

    (only,) = posed(jobs=[job], policy={"prices": {"domain": 0}}).classes

    assert only.together == Togetherness()


def test_domains_are_given_for_the_levels_in_use():
    nodes = [
        build.node("a", rack="r", zone="y"),
        build.node("b", rack="r", zone="z"),
        build.node("c", zone="y"),
        build.node("d", zone="y"),
        build.node("e", rack="r", zone="y"),
    ]
    jobs = [
        build.job("near", gpus=1, replicas=2, locality={"required": "rack"}),
        build.job(
            "apart", gpus=1, anti_affinity=[{"labels": {"app": "x"}, "level": "zone"}], labels={"app": "x"}
        ),
    ]

    domains = dict(posed(nodes=nodes, jobs=jobs).domains)

    assert domains == {Level.RACK: (0, 1, 2, 3, 0), Level.ZONE: (0, 1, 0, 0, 0)}


def test_profile_is_that_of_the_workload_class():
    jobs = [build.job("a", gpus=1, workload_class="serve"), build.job("b", gpus=2)]

    found = posed(jobs=jobs, policy={"profiles": {"serve": "spread"}}).classes

    assert [one.profile for one in found] == [Profile.SPREAD, Profile.PACK]


def test_charges_are_the_prices_of_the_policy():
    charges = posed(policy={"prices": {"domain": 3, "repartition": 4}, "mig": {"repartition": False}}).charges

    assert (charges.domain, charges.repartition, charges.may_repartition) == (3, 4, False)
    assert charges.switch_mode is None
    assert posed(policy={"mig": {"switch_mode": True}}).charges.switch_mode == 100


def test_options_of_gangs_pay_for_the_whole_and_of_elastic_ones_by_replica():
    jobs = [build.job("firm", gpus=1, replicas=4), build.job("lax", gpus=1, replicas=(2, 4))]

    firm, lax = posed(jobs=jobs).classes

    assert (firm.options[0].points, lax.options[0].points) == (400, 100)


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


def test_a_start_is_no_incumbents():
    (only,) = posed(jobs=[build.job(gpus=1)]).classes

    assert (only.role, only.incumbent, only.options) == (
        Role.START,
        None,
        (Option(build.MODEL, (0,), 100),),
    )
