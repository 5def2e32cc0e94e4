"""Which reason a waiting job has: held, no node for it, quotas; and which jobs share one."""

from __future__ import annotations

import pytest

from gpuplan.models.affinity import NodeMatch, PreferredNodes, Spread, Toleration
from gpuplan.models.cluster import Gpu, NodeGpus, Taint
from gpuplan.models.plan.reason import ReasonCode
from gpuplan.models.policy.policy import Policy
from gpuplan.planner.waiting.diagnose import waiting_reasons
from tests.support.builders.build import (
    NOW,
    by_value,
    cluster,
    job,
    node,
    placement,
    pool,
    queue,
    replica,
    snapshot,
)
from tests.support.builders.solution_builders import target
from tests.support.harness.verify_helpers import asking
from tests.support.harness.waiting_reasons import (
    MAY_DO_NOTHING,
    reason_of,
    running,
    told,
    why,
)


def test_a_held_job_is_held_whatever_else_is_in_its_way():
    assert why(job(gpus=100, held=True)) == (ReasonCode.HELD, {})


def test_gpu_models_that_the_cluster_lacks_are_named():
    nodes = [node(model="T4"), node("n1", model="L4")]

    assert told(job(gpus=1, gpu_models=["H200", "B200"]), nodes=nodes) == (
        ReasonCode.NO_MATCHING_NODE,
        "B200 H200 L4 T4",
    )


def test_refusals_are_counted_the_commonest_first():
    nodes = [
        *cluster(3, cordoned=True),
        node("m0", taints=(Taint(key="infra"),)),
        node("m1", taints=(Taint(key="infra"),)),
        node("d0", ready=False),
        node("c0", gpus=0),
    ]

    code, numbers = why(job(gpus=1), nodes=nodes)

    assert code is ReasonCode.NO_MATCHING_NODE
    assert list(numbers.items()) == [
        ("node is cordoned", 3),
        ("taint infra is not tolerated", 2),
        ("node has no GPUs", 1),
    ]
    assert told(job(gpus=1), nodes=nodes)[1] == "3 2 1 1"


def test_a_cluster_without_nodes_says_so():
    assert reason_of(job(gpus=1), nodes=[]).text.endswith("no nodes")
    assert why(job(gpus=1), nodes=[]) == (ReasonCode.NO_MATCHING_NODE, {})


@pytest.mark.parametrize(
    ("request_", "needed", "largest"),
    [
        ({"gpus": 16}, 16, 8),
        ({"cpus": 97}, 97, 96),
        ({"memory_gib": 1024}, 1024 << 10, 512 << 10),
    ],
)
def test_a_replica_larger_than_every_empty_node_matches_none(request_, needed, largest):
    assert why(job(**request_)) == (
        ReasonCode.NO_MATCHING_NODE,
        {"needed": needed, "largest": largest},
    )


def test_countable_resources_and_disk_are_named():
    nodes = [node(resources={"rdma/hca": 4}, disk_mib=1024)]

    lacks_resource = reason_of(asking(job(), resources={"rdma/hca": 8}), nodes=nodes)
    assert lacks_resource.numbers == {"needed": 8, "largest": 4}
    assert lacks_resource.text.count("rdma/hca") == 2
    assert why(asking(job(), disk_mib=2048), nodes=nodes)[1] == {"needed": 2048, "largest": 1024}


def test_a_replica_may_be_too_large_only_in_combination():
    nodes = [node(gpus=8, cpus=32), node("n1", gpus=2, cpus=128)]

    assert told(job(gpus=8, cpus=64), nodes=nodes) == (ReasonCode.NO_MATCHING_NODE, "8 64 2")


def test_unhealthy_gpus_do_not_count_as_room():
    half = NodeGpus(model="H100-80GB", count=2, details=(Gpu(index=0, healthy=False),))

    assert (
        why(job(gpus=2), nodes=[node().model_copy(update={"gpus": half})])[0] is ReasonCode.NO_MATCHING_NODE
    )


def test_a_node_is_as_large_as_what_is_whole_of_it():
    """It is not told by another of the same model and count."""
    broken = node(details=(Gpu(index=7, healthy=False),))
    holder = running("r", replica("n1", gpus=[0]))

    assert why(job(gpus=8), holder, nodes=[broken, node("n1")])[0] is ReasonCode.FRAGMENTED


@pytest.mark.parametrize("name", ["cpu_milli", "memory_mib", "disk_mib", "resources"])
def test_a_node_is_as_large_as_everything_it_offers(name):
    """Nor by another that differs in one thing alone."""
    wanted = {name: {"rdma/hca": 4} if name == "resources" else 50_000}
    small = node(cpus=40, memory_gib=40, disk_mib=40_000, resources={"rdma/hca": 2})
    large = small.model_copy(update={"name": "n1", **wanted})
    holder = running("r", replica("n1", gpus=range(8)))

    assert why(asking(job(gpus=1), **wanted), holder, nodes=[small, large])[0] is ReasonCode.FRAGMENTED


def test_a_job_above_its_queues_limit_can_never_start():
    queues = [queue(nominal=8), queue("idle", nominal=100)]

    assert why(job(gpus=8, replicas=2), queues=queues) == (
        ReasonCode.EXCEEDS_MAX_QUOTA,
        {"queue": "q", "gpu_model": "", "used": 0, "limit": 8, "needed": 16},
    )


def test_the_limit_in_the_way_may_be_further_up():
    queues = [queue("root", nominal=8), queue(parent="root", nominal=2)]

    numbers = why(job(gpus=8, replicas=2), queues=queues)[1]
    assert (numbers["queue"], numbers["limit"]) == ("root", 10)


def test_a_job_waits_for_quota_that_others_use():
    holder = running("r", replica(gpus=range(6)))

    assert why(job(gpus=4), holder, queues=[queue(nominal=8)]) == (
        ReasonCode.WAITING_FOR_QUOTA,
        {"queue": "q", "gpu_model": "", "used": 6, "limit": 8, "needed": 4},
    )


def test_jobs_that_the_plan_starts_use_quota_too():
    starts = job("s", gpus=8)

    assert why(
        job(gpus=1), starts, started=[placement("s", replica(gpus=range(8)))], queues=[queue(nominal=8)]
    ) == (ReasonCode.WAITING_FOR_QUOTA, {"queue": "q", "gpu_model": "", "used": 8, "limit": 8, "needed": 1})


def test_only_what_a_queue_does_not_keep_counts_above_it():
    queues = [
        queue("root"),
        queue(parent="root", nominal=4, lending=0),
        queue("other", parent="root", nominal=0),
    ]
    holder = running("r", replica(gpus=range(3)))

    assert why(job(gpus=4), holder, queues=queues) == (
        ReasonCode.WAITING_FOR_QUOTA,
        {"queue": "root", "gpu_model": "", "used": 0, "limit": 0, "needed": 3},
    )


def test_quotas_of_gpu_models_leave_the_other_models_open():
    nodes = [node(model="A"), node("n1", model="B", gpus=2)]
    limit_on_a = [queue(A=1)]

    assert why(job(gpus=8, gpu_models=["A"]), nodes=nodes, queues=limit_on_a) == (
        ReasonCode.EXCEEDS_MAX_QUOTA,
        {"queue": "q", "gpu_model": "A", "used": 0, "limit": 1, "needed": 8},
    )
    assert why(job(gpus=2, replicas=2), nodes=nodes, queues=limit_on_a) == (
        ReasonCode.RESOURCES,
        {"needed": 4, "free": 2},
    )


def test_a_job_stopped_by_the_plan_names_the_jobs_that_gain():
    victim = job("a", gpus=8, at=[replica(gpus=range(8))])
    world = snapshot(jobs=[victim])

    found = waiting_reasons(world, Policy(), target(world, stopped=["a"]), preempted={"a": ("b", "c")})

    assert found["a"].code is ReasonCode.PREEMPTED
    assert found["a"].numbers == {"makes_room_for": "b, c"}


def test_a_job_with_room_only_on_new_nodes_tells_their_price():
    gang = job(gpus=8, replicas=2)
    growing = pool("cloud", template=node("cloud", price_per_hour=5), most=2)

    small = why(gang, nodes=[node(), node("cloud-1", pool="cloud")], pools=(pool("cloud", most=1),))
    large = reason_of(gang, nodes=[], pools=(growing,), policy=by_value())

    assert small == (ReasonCode.NOT_CHOSEN, {})
    assert large.code is ReasonCode.NOT_CHOSEN
    assert large.numbers == {"pool": "cloud", "node_points": 500, "points": 1600}


def test_nodes_that_cannot_be_had_do_not_match():
    full = pool("cloud", most=0)

    assert why(job(gpus=8), nodes=[], pools=(full,), policy=Policy())[0] is ReasonCode.NO_MATCHING_NODE


def test_new_gpu_nodes_are_not_for_jobs_without_gpus():
    growing = pool("cloud")

    assert why(job(cpus=4), nodes=[], pools=(growing,), policy=Policy()) == (
        ReasonCode.NO_MATCHING_NODE,
        {"new GPU nodes are not for jobs without GPUs": 1},
    )


def test_a_job_that_costs_more_than_it_brings_says_so():
    picky = job(
        gpus=1,
        replicas=2,
        preferred_nodes=(PreferredNodes(match=NodeMatch(key="a", operator="Exists"), points=150),),
    )

    assert why(picky) == (
        ReasonCode.NOT_CHOSEN,
        {"cost": 300, "points": 200},
    )


TAINTED = Taint(key="dedicated")


@pytest.mark.parametrize(
    "variant",
    [
        job("b", gpus=1, held=True),
        job("b", gpus=1, queue="closed"),
        job("b", gpus=1, replicas=2),
        job("b", gpus=2),
        job("b", milli=500),
        asking(job("b", gpus=1), gpu_memory_mib=10**6),
        asking(job("b"), mig={"1g.10gb": 1}),
        job("b", gpus=1, cpus=1000),
        job("b", gpus=1, memory_gib=1000),
        asking(job("b", gpus=1), disk_mib=1),
        asking(job("b", gpus=1), resources={"rdma/hca": 1}),
        job("b", gpus=1, gpu_models=["T4"]),
        job("b", gpus=1, node_selector={"pool": "a"}),
        job("b", gpus=1, tolerations=(Toleration(key="dedicated"),)),
        job("b", gpus=1, affinity=(NodeMatch(key="disk", values=("ssd",)),)),
        job("b", gpus=1, regions=("eu",)),
        job("b", gpus=1, tolerations=(Toleration(key="dedicated"),), weight=0),
    ],
)
def test_jobs_that_differ_in_one_thing_do_not_share_a_reason(variant):
    nodes = [node(taints=(TAINTED,)), node("n1")]
    full = running("r", replica("n1", gpus=range(8)))
    queues = [queue(), queue("closed", nominal=0)]

    world = snapshot(nodes=nodes, jobs=[job("a", gpus=1), full, variant], queues=queues)

    together = waiting_reasons(world, MAY_DO_NOTHING, target(world))

    assert together["a"] != together["b"]
    assert reason_of(variant, full, nodes=nodes, queues=queues) == together["b"]


def test_gangs_that_differ_in_how_they_must_stand_do_not_share_a_reason():
    gangs = [
        job("a", gpus=1, replicas=2),
        job("b", gpus=1, replicas=2, spread=Spread(most=1)),
        job("c", gpus=1, replicas=(1, 2), spread=Spread(most=1)),
    ]
    world = snapshot(nodes=[node()], jobs=gangs)

    reasons = waiting_reasons(world, MAY_DO_NOTHING, target(world))

    assert [reasons[name].code for name in "abc"] == [
        ReasonCode.NOT_CHOSEN,
        ReasonCode.FRAGMENTED,
        ReasonCode.NOT_CHOSEN,
    ]


def test_thousands_of_equal_jobs_share_one_reason():
    world = snapshot(jobs=[job(f"j{index}", gpus=1, waited=NOW - NOW, held=True) for index in range(2000)])

    reasons = waiting_reasons(world, Policy(), target(world))

    assert len({id(reason) for reason in reasons.values()}) == 1
