from __future__ import annotations

import pytest
from answers import legal_placements
from build import NOW, cluster, job, node, placement, queue, replica, snapshot
from hypothesis import event, given, settings
from hypothesis import strategies as st
from judging import asking
from placing import replica_for
from strategies import snapshots

from planner.models.cluster import Gpu, Level, NodeGpus, Taint
from planner.models.job import LocalityPreference, Toleration
from planner.models.occupancy import NodeFree, free_capacity
from planner.models.placement import GpuShare, Placement, Replica
from planner.models.plan import ReasonCode
from planner.models.policy import Policy
from planner.models.selection import refusal
from planner.models.verifier import verify
from planner.models.violation import Rule
from planner.unmodelled import not_modelled
from planner.waiting import waiting_reasons


def why(waiting, *others, started=(), **world):
    """Code and text of one job's reason while others run or start."""
    world = snapshot(jobs=[waiting, *others], **world)
    reason = waiting_reasons(world, (*world.running_placements, *started))[waiting.name]
    return reason.code, reason.text


def running(name="r", *replicas, **more):
    return job(name, at=replicas, gpus=len(replicas[0].gpus), **more)


def test_a_held_job_is_held_whatever_else_is_in_its_way():
    assert why(job(gpus=100, held=True)) == (ReasonCode.HELD, "held by its user or an operator")


def test_mig_and_required_locality_of_gangs_are_not_modelled():
    mig = asking(job(), mig={"1g.10gb": 2})
    one_rack = job(gpus=8, replicas=2, locality=LocalityPreference(required=Level.NVLINK_ISLAND))

    assert why(mig) == (
        ReasonCode.NOT_MODELLED,
        "asks for MIG instances (1g.10gb), which this version does not plan yet",
    )
    assert why(one_rack) == (
        ReasonCode.NOT_MODELLED,
        "requires all replicas in one nvlink island, which this version does not plan yet",
    )
    assert not_modelled(one_rack.model_copy(update={"gang": job().gang})) is None


def test_gpu_models_that_the_cluster_lacks_are_named():
    assert why(
        job(gpus=1, gpu_models=["H200", "B200"]), nodes=[node(model="T4"), node("n1", model="L4")]
    ) == (
        ReasonCode.NO_MATCHING_NODE,
        "no node has GPU model B200 or H200; the cluster has L4, T4",
    )


def test_refusals_are_counted_the_commonest_first():
    nodes = [
        *cluster(3, cordoned=True),
        node("m0", taints=(Taint(key="infra"),)),
        node("m1", taints=(Taint(key="infra"),)),
        node("d0", ready=False),
        node("c0", gpus=0),
    ]

    assert why(job(gpus=1), nodes=nodes) == (
        ReasonCode.NO_MATCHING_NODE,
        (
            "no node matches: node is cordoned (3 nodes), taint infra is not tolerated (2 nodes), "
            "node has no GPUs (1 node), other reasons (1 node)"
        ),
    )


def test_a_cluster_without_nodes_says_so():
    assert why(job(gpus=1), nodes=[]) == (ReasonCode.NO_MATCHING_NODE, "the cluster has no nodes")


@pytest.mark.parametrize(
    ("request_", "text"),
    [
        ({"gpus": 16}, "one replica needs 16 GPUs; the largest of 2 matching nodes has 8 GPUs"),
        ({"cpus": 97}, "one replica needs 97 CPUs; the largest of 2 matching nodes has 96 CPUs"),
        ({"memory_gib": 1024}, "one replica needs 1,024 GiB; the largest of 2 matching nodes has 512 GiB"),
    ],
)
def test_a_replica_larger_than_every_empty_node_matches_none(request_, text):
    assert why(job(**request_)) == (ReasonCode.NO_MATCHING_NODE, text)


def test_countable_resources_and_disk_are_named():
    nodes = [node(resources={"rdma/hca": 4}, disk_mib=1024)]

    assert why(asking(job(), resources={"rdma/hca": 8}), nodes=nodes)[1].endswith("node has 4 rdma/hca")
    assert why(asking(job(), disk_mib=2048), nodes=nodes)[1] == (
        "one replica needs 2 GiB of disk; the largest of 1 matching node has 1 GiB of disk"
    )


def test_a_replica_may_be_too_large_only_in_combination():
    nodes = [node(gpus=8, cpus=32), node("n1", gpus=2, cpus=128)]

    assert why(job(gpus=8, cpus=64), nodes=nodes) == (
        ReasonCode.NO_MATCHING_NODE,
        "one replica needs 8 GPUs and 64 CPUs; none of 2 matching nodes has all of it",
    )


def test_unhealthy_gpus_do_not_count_as_room():
    half = NodeGpus(model="H100-80GB", count=2, details=(Gpu(index=0, healthy=False),))

    assert (
        why(job(gpus=2), nodes=[node().model_copy(update={"gpus": half})])[0] is ReasonCode.NO_MATCHING_NODE
    )


def test_a_job_above_its_queues_limit_can_never_start():
    queues = [queue(nominal=8), queue("idle", nominal=100)]

    assert why(job(gpus=8, replicas=2), queues=queues) == (
        ReasonCode.EXCEEDS_MAX_QUOTA,
        "needs 16 GPUs; queue q may never hold more than 8 GPUs",
    )


def test_the_limit_in_the_way_may_be_further_up():
    queues = [queue("root", nominal=8), queue(parent="root", nominal=2)]

    assert why(job(gpus=8, replicas=2), queues=queues)[1].endswith(
        "queue root may never hold more than 10 GPUs"
    )


def test_a_job_waits_for_quota_that_others_use():
    holder = running("r", replica(gpus=range(6)))

    assert why(job(gpus=4), holder, queues=[queue(nominal=8)]) == (
        ReasonCode.WAITING_FOR_QUOTA,
        "needs 4 GPUs; queue q uses 6 of 8 GPUs",
    )


def test_jobs_that_the_plan_starts_use_quota_too():
    starts = job("s", gpus=8)

    assert why(
        job(gpus=1), starts, started=[placement("s", replica(gpus=range(8)))], queues=[queue(nominal=8)]
    ) == (ReasonCode.WAITING_FOR_QUOTA, "needs 1 GPU; queue q uses 8 of 8 GPUs")


def test_only_what_a_queue_does_not_keep_counts_above_it():
    queues = [
        queue("root"),
        queue(parent="root", nominal=4, lending=0),
        queue("other", parent="root", nominal=0),
    ]
    holder = running("r", replica(gpus=range(3)))

    assert why(job(gpus=4), holder, queues=queues) == (
        ReasonCode.WAITING_FOR_QUOTA,
        "needs 3 GPUs; queue root uses 0 of 0 GPUs",
    )


def test_quotas_of_gpu_models_leave_the_other_models_open():
    nodes = [node(model="A"), node("n1", model="B", gpus=2)]
    limit_on_a = [queue(A=1)]

    assert why(job(gpus=8, gpu_models=["A"]), nodes=nodes, queues=limit_on_a) == (
        ReasonCode.EXCEEDS_MAX_QUOTA,
        "needs 8 GPUs; queue q may never hold more than 1 A GPU",
    )
    assert why(job(gpus=2, replicas=2), nodes=nodes, queues=limit_on_a) == (
        ReasonCode.RESOURCES,
        "needs 4 GPUs; 2 GPUs free on 1 matching node",
    )


def test_too_little_is_free_in_all():
    holder = running("r", replica(gpus=range(3)))

    assert why(job(gpus=8, replicas=2), holder) == (
        ReasonCode.RESOURCES,
        "needs 16 GPUs; 13 GPUs free on 2 matching nodes",
    )


def test_cpus_can_be_what_is_missing():
    holder = job("r", cpus=90, at=[replica(cpus=90)])

    assert why(job(gpus=1, cpus=7), holder, nodes=[node()]) == (
        ReasonCode.RESOURCES,
        "needs 7 CPUs; 6 CPUs free on 1 matching node",
    )


def test_free_gpus_on_several_nodes_are_fragmented_for_one_replica():
    first, second = running("r", replica(gpus=range(3))), running("s", replica("n1", gpus=range(2)))

    assert why(job(gpus=8), first, second) == (
        ReasonCode.FRAGMENTED,
        "needs 8 GPUs on one node; at most 6 free on one, 11 in all",
    )


def test_a_gang_tells_how_many_of_its_replicas_find_room():
    holders = [running(f"r{index}", replica(f"n{index}", gpus=[0])) for index in range(1, 4)]

    assert why(job(gpus=8, replicas=3), *holders, nodes=cluster(4)) == (
        ReasonCode.FRAGMENTED,
        "needs 3 × 8 GPUs, each on one node; 1 found, at most 8 free, 29 in all",
    )


def test_parts_of_gpus_are_fragmented_for_a_share():
    holders = [running(f"r{index}", replica(gpus=[index], milli=500)) for index in range(2)]

    assert why(job(milli=600), *holders, nodes=[node(gpus=2)]) == (
        ReasonCode.FRAGMENTED,
        "needs 0.6 GPU on one GPU; at most 0.5 free on one, 1 in all",
    )


def test_resources_that_are_free_on_different_nodes_are_fragmented_together():
    gpus_taken = running("r", replica(gpus=range(8)))
    cpus_taken = job("s", cpus=96, at=[replica("n1", cpus=96)])

    assert why(job(gpus=1, cpus=8), gpus_taken, cpus_taken) == (
        ReasonCode.FRAGMENTED,
        "needs 1 GPU and 8 CPUs on one node; 1 node with the first, none with both",
    )


def test_three_resources_may_be_free_in_pairs_only():
    takers = [
        running("r", replica(gpus=range(8))),
        job("s", cpus=96, at=[replica("n1", cpus=96)]),
        job("t", memory_gib=512, at=[replica("n2", memory_gib=512)]),
    ]

    assert why(job(gpus=1, cpus=8, memory_gib=8), *takers, nodes=cluster(3)) == (
        ReasonCode.FRAGMENTED,
        "needs 1 GPU, 8 CPUs and 8 GiB on one node; none has all",
    )


def test_a_gang_may_find_some_of_its_combinations():
    no_cpus = job("s", cpus=96, at=[replica("n1", cpus=96)])

    assert why(job(gpus=8, cpus=40, replicas=2), no_cpus) == (
        ReasonCode.FRAGMENTED,
        "needs 2 × 8 GPUs and 40 CPUs on one node; 2 nodes with the first, 1 with both",
    )


def test_a_gang_does_not_spread_over_gpu_models():
    nodes = [node(model="A"), node("n1", model="B")]

    assert why(job(gpus=8, replicas=2), nodes=nodes) == (
        ReasonCode.RESOURCES,
        "needs 16 GPUs; 8 GPUs free on 1 matching node",
    )


def test_a_job_that_would_fit_is_not_said_to_lack_room():
    worthless = job("b", gpus=1, weight=0)

    assert why(job(gpus=1), worthless)[1] == "would fit, but no place was chosen for it in the time given"
    assert why(worthless, job(gpus=1))[1] == "has weight 0: starting it earns nothing"


def test_an_overfull_gpu_takes_nothing_from_the_others():
    holders = [running(f"r{index}", replica(gpus=[0], milli=600)) for index in range(2)]

    assert "would fit" in why(job(milli=500, replicas=2), *holders, nodes=[node(gpus=2)])[1]


@settings(max_examples=120, deadline=None)
@given(st.data())
def test_reasons_agree_with_the_verifier(data):
    world = data.draw(snapshots())
    placements = tuple(data.draw(legal_placements(world)))

    reasons = waiting_reasons(world, placements)

    placed = {placement.job for placement in placements}
    assert reasons.keys() == world.job_by_name.keys() - placed
    for name, reason in reasons.items():
        event(reason.code)
        assert reason.code in _expected(world, placements, world.job_by_name[name]), (name, reason)


def _expected(world, placements, waiting):
    """The codes that are true of a job, found by trying every node and asking the verifier about quotas."""
    if waiting.held:
        return {ReasonCode.HELD}
    if not_modelled(waiting):
        return {ReasonCode.NOT_MODELLED}
    nodes = [node for node in world.cluster.nodes if refusal(waiting, node) is None]
    if not any(_holds_one(node, waiting) for node in nodes):
        return {ReasonCode.NO_MATCHING_NODE}
    # One node of each GPU model stands for all where only quotas are judged.
    ever = [node for node in nodes if not _breaks_quota(world, (), waiting, node)]
    if not ever:
        return {ReasonCode.EXCEEDS_MAX_QUOTA}
    now = [node for node in nodes if not _breaks_quota(world, placements, waiting, node)]
    if not now:
        return {ReasonCode.WAITING_FOR_QUOTA}
    return {ReasonCode.RESOURCES, ReasonCode.FRAGMENTED}


def _holds_one(node, waiting):
    """True if the empty node has room for one replica, GPUs enough included."""
    empty = NodeFree.of(node)
    one = replica_for(waiting, node, empty)
    return len(one.gpus) == waiting.request.gpus + bool(waiting.request.gpu_milli) and empty.holds(one)


def _breaks_quota(world, placements, waiting, node):
    """What the verifier says of queues if the job ran at its smallest on one node, room or not."""
    stopped = {job.name for job in world.jobs} - {placement.job for placement in placements} - {waiting.name}
    world = world.model_copy(
        update={
            "jobs": tuple(
                job.model_copy(update={"running": None}) if job.name in stopped else job for job in world.jobs
            )
        }
    )
    shares = waiting.request.gpus * [1000] or [waiting.request.gpu_milli]
    held = tuple(GpuShare(index=index, milli=milli) for index, milli in enumerate(shares) if milli)
    one = Replica(node=node.name, gpus=held)
    added = Placement(job=waiting.name, replicas=(one,) * waiting.gang.minimum)
    violations = verify(world, Policy(), (*placements, added)).violations
    return any(violation.rule is Rule.QUEUES for violation in violations)


@settings(max_examples=120, deadline=None)
@given(st.data())
def test_jobs_said_to_fit_do_fit_and_the_others_do_not(data):
    world = data.draw(snapshots())
    placements = tuple(data.draw(legal_placements(world)))

    for name, reason in waiting_reasons(world, placements).items():
        if reason.code not in (ReasonCode.RESOURCES, ReasonCode.FRAGMENTED):
            continue
        said_to_fit = not reason.numbers
        event(f"fits: {said_to_fit}")
        found = _place(world, placements, world.job_by_name[name])
        broken = [] if found is None else verify(world, Policy(), (*placements, found)).violations
        assert (found is not None and not broken) == said_to_fit, reason


def _place(world, placements, waiting):
    """The job at its smallest, on the first GPU model whose nodes and quotas have room."""
    models = (
        sorted({node.gpu_model or "" for node in world.cluster.nodes})
        if waiting.request.needs_gpu
        else [None]
    )
    for model in models:
        free = free_capacity(world.cluster.nodes, placements)
        replicas = []
        for place in world.cluster.nodes:
            if refusal(waiting, place) is not None or (model is not None and place.gpu_model != model):
                continue
            while len(replicas) < waiting.gang.minimum:
                one = replica_for(waiting, place, free[place.name])
                if len(one.gpus) < waiting.request.gpus or not free[place.name].holds(one):
                    break
                free[place.name].take(one)
                replicas.append(one)
        if len(replicas) == waiting.gang.minimum:
            found = Placement(job=waiting.name, replicas=tuple(replicas))
            if not verify(world, Policy(), (*placements, found)).violations:
                return found
    return None


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
        job("b", gpus=1, replicas=(1, 2), locality=LocalityPreference(required=Level.RACK)),
        job("b", gpus=1, tolerations=(Toleration(key="dedicated"),), weight=0),
    ],
)
def test_jobs_that_differ_in_one_thing_do_not_share_a_reason(variant):
    nodes = [node(taints=(TAINTED,)), node("n1")]
    full = running("r", replica("n1", gpus=range(8)))
    queues = [queue(), queue("closed", nominal=0)]

    world = snapshot(nodes=nodes, jobs=[job("a", gpus=1), full, variant], queues=queues)

    together = waiting_reasons(world, world.running_placements)

    assert together["a"] != together["b"]
    assert why(variant, full, nodes=nodes, queues=queues)[1] == together["b"].text


def test_thousands_of_equal_jobs_share_one_reason():
    world = snapshot(jobs=[job(f"j{index}", gpus=1, waited=NOW - NOW, held=True) for index in range(2000)])

    reasons = waiting_reasons(world, ())

    assert len({id(reason) for reason in reasons.values()}) == 1
