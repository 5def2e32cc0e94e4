from __future__ import annotations

from datetime import timedelta
from itertools import combinations_with_replacement

import pytest
from hypothesis import event, given, settings
from hypothesis import strategies as st

from gpuplan.models.cluster import Gpu, Level, NodeGpus, Taint
from gpuplan.models.eligibility.free_resources import FreeResources, free_resources_by_node
from gpuplan.models.eligibility.node_eligibility import ineligibility
from gpuplan.models.job import (
    AntiAffinity,
    LocalityPreference,
    NodeMatch,
    PreferredNodes,
    Spread,
    Toleration,
)
from gpuplan.models.placement import GpuShare, MigSlice, Placement, Replica
from gpuplan.models.plan.reason import ReasonCode
from gpuplan.models.plan.solution import DesiredState
from gpuplan.models.plan.violation import Rule
from gpuplan.models.policy.disruption_budget import DisruptionBudget
from gpuplan.models.policy.policy import Disruption, MigPolicy, Policy, PoolPolicy
from gpuplan.models.verifier.verify import verify
from gpuplan.planner.waiting import messages
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
from tests.support.output.golden import figures
from tests.support.strategies.placement_strategies import legal_placements
from tests.support.strategies.replica_strategies import replica_for
from tests.support.strategies.snapshot_strategies import snapshots

OF_ROOM = (
    ReasonCode.RESOURCES,
    ReasonCode.FRAGMENTED,
    ReasonCode.LAYOUT_BLOCKED,
    ReasonCode.DOMAIN,
    ReasonCode.NOT_CHOSEN,
)
MAY_DO_NOTHING = by_value(mig=MigPolicy(repartition=False), pools=PoolPolicy(scale_up=False))


def reason_of(waiting, *others, started=(), policy=MAY_DO_NOTHING, target_of=target, proven=False, **world):
    """One job's reason while others run or start."""
    world = snapshot(jobs=[waiting, *others], **world)
    goal = target_of(world, *started)
    return waiting_reasons(world, policy, goal, proven=proven)[waiting.name]


def why(waiting, *others, **more):
    """Code and numbers of that reason."""
    reason = reason_of(waiting, *others, **more)
    return reason.code, reason.numbers


def told(waiting, *others, **more):
    """Code and figures of that reason, where the sentence has more of them than the numbers."""
    reason = reason_of(waiting, *others, **more)
    return reason.code, figures(reason.text)


def budgets(*given):
    """A policy with these disruption budgets."""
    return MAY_DO_NOTHING.model_copy(update={"disruption": Disruption(budgets=given)})


def remarks(reason):
    """What the policy forbids, after what is needed and what is there."""
    return "".join(reason.text.split("; ", 2)[2:])


def running(name="r", *replicas, **more):
    return job(name, at=replicas, gpus=len(replicas[0].gpus), **more)


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


def test_too_little_is_free_in_all():
    holder = running("r", replica(gpus=range(3)))

    assert why(job(gpus=8, replicas=2), holder) == (
        ReasonCode.RESOURCES,
        {"needed": 16, "free": 13},
    )


def test_cpus_can_be_what_is_missing():
    holder = job("r", cpus=90, at=[replica(cpus=90)])

    assert why(job(gpus=1, cpus=7), holder, nodes=[node()]) == (
        ReasonCode.RESOURCES,
        {"needed": 7, "free": 6},
    )


def test_what_is_held_beyond_one_node_is_not_missing_on_another():
    holder = job("s", cpus=50, at=[replica(cpus=50)])

    assert why(job(cpus=40), holder, nodes=[node(gpus=0), node("n1", gpus=0, cpus=48, memory_gib=1)]) == (
        ReasonCode.NOT_CHOSEN,
        {},
    )
    assert why(job(cpus=40, replicas=2), holder, nodes=cluster(2, gpus=0, cpus=48)) == (
        ReasonCode.RESOURCES,
        {"needed": 80, "free": 48},
    )


def test_free_gpus_on_several_nodes_are_fragmented_for_one_replica():
    first, second = running("r", replica(gpus=range(3))), running("s", replica("n1", gpus=range(2)))

    assert why(job(gpus=8), first, second) == (
        ReasonCode.FRAGMENTED,
        {"needed": 8, "replicas": 1, "found": 0, "largest_free": 6, "free": 11},
    )


def test_a_gang_tells_how_many_of_its_replicas_find_room():
    holders = [running(f"r{index}", replica(f"n{index}", gpus=[0])) for index in range(1, 4)]

    assert why(job(gpus=8, replicas=3), *holders, nodes=cluster(4)) == (
        ReasonCode.FRAGMENTED,
        {"needed": 8, "replicas": 3, "found": 1, "largest_free": 8, "free": 29},
    )


def test_parts_of_gpus_are_fragmented_for_a_share():
    holders = [running(f"r{index}", replica(gpus=[index], milli=500)) for index in range(2)]

    assert why(job(milli=600), *holders, nodes=[node(gpus=2)]) == (
        ReasonCode.FRAGMENTED,
        {"needed": 0.6, "replicas": 1, "found": 0, "largest_free": 0.5, "free": 1},
    )


def test_resources_that_are_free_on_different_nodes_are_fragmented_together():
    gpus_taken = running("r", replica(gpus=range(8)))
    cpus_taken = job("s", cpus=96, at=[replica("n1", cpus=96)])

    assert told(job(gpus=1, cpus=8), gpus_taken, cpus_taken) == (ReasonCode.FRAGMENTED, "1 8 1")


def test_three_resources_may_be_free_in_pairs_only():
    takers = [
        running("r", replica(gpus=range(8))),
        job("s", cpus=96, at=[replica("n1", cpus=96)]),
        job("t", memory_gib=512, at=[replica("n2", memory_gib=512)]),
    ]

    assert told(job(gpus=1, cpus=8, memory_gib=8), *takers, nodes=cluster(3)) == (
        ReasonCode.FRAGMENTED,
        "1 8 8",
    )


def test_a_gang_may_find_some_of_its_combinations():
    no_cpus = job("s", cpus=96, at=[replica("n1", cpus=96)])

    assert told(job(gpus=8, cpus=40, replicas=2), no_cpus) == (ReasonCode.FRAGMENTED, "2 8 40 2 1")


def test_a_gang_does_not_spread_over_gpu_models():
    nodes = [node(model="A"), node("n1", model="B")]

    assert why(job(gpus=8, replicas=2), nodes=nodes) == (
        ReasonCode.RESOURCES,
        {"needed": 16, "free": 8},
    )


@pytest.mark.parametrize("taken", ["n0", "n1"])
def test_one_replica_may_go_to_any_of_its_gpu_models(taken):
    nodes = [node(model="A100-80GB"), node("n1")]
    holder = running("r", replica(taken, gpus=range(8)))

    assert why(job(gpus=1), holder, nodes=nodes) == (ReasonCode.NOT_CHOSEN, {})


def test_a_job_that_would_fit_is_not_said_to_lack_room():
    worthless = job("b", gpus=1, weight=0)

    assert reason_of(job(gpus=1), worthless) == messages.not_chosen(proven=False)
    assert reason_of(job(gpus=1), worthless, proven=True) == messages.not_chosen(proven=True)
    assert reason_of(worthless, job(gpus=1)) == messages.zero_weight()


def test_an_overfull_gpu_takes_nothing_from_the_others():
    holders = [running(f"r{index}", replica(gpus=[0], milli=600)) for index in range(2)]

    assert why(job(milli=500, replicas=2), *holders, nodes=[node(gpus=2)]) == (ReasonCode.NOT_CHOSEN, {})


@pytest.mark.slow
@settings(max_examples=120)
@given(st.data())
def test_reasons_agree_with_the_verifier(data):
    world = data.draw(snapshots(mig=True, locality=True))
    placements = tuple(data.draw(legal_placements(world)))

    reasons = waiting_reasons(world, MAY_DO_NOTHING, DesiredState(placements))

    placed = {placement.job for placement in placements}
    assert reasons.keys() == world.job_by_name.keys() - placed
    for name, reason in reasons.items():
        event(reason.code)
        assert reason.code in _expected(world, placements, world.job_by_name[name]), (name, reason)


def _expected(world, placements, waiting):
    """The codes that are true of a job, found by trying every node and asking the verifier about quotas."""
    if waiting.held:
        return {ReasonCode.HELD}
    nodes = [node for node in world.cluster.nodes if ineligibility(waiting, node) is None]
    if not any(_holds_one(node, waiting) for node in nodes):
        return {ReasonCode.NO_MATCHING_NODE}
    # One node of each GPU model stands for all where only quotas are judged.
    ever = [node for node in nodes if not _breaks_quota(world, (), waiting, node)]
    if not ever:
        return {ReasonCode.EXCEEDS_MAX_QUOTA}
    now = [node for node in nodes if not _breaks_quota(world, placements, waiting, node)]
    if not now:
        return {ReasonCode.WAITING_FOR_QUOTA}
    return set(OF_ROOM)


def _holds_one(node, waiting):
    """True if the empty node has room for one replica, GPUs enough included."""
    empty = FreeResources.of(node)
    one = replica_for(waiting, node, empty)
    return _is_whole(one, waiting, node) and empty.holds(one)


def _is_whole(one, waiting, node):
    """True if a replica has all GPUs and instances its job asks for, and these exist."""
    wanted = waiting.request.gpus + bool(waiting.request.gpu_milli) + sum(waiting.request.mig.values())
    slices = [held for held in one.gpus if not isinstance(held, GpuShare)]
    return len(one.gpus) == wanted and all(
        any(
            (there.profile, there.start) == (held.profile, held.start)
            for there in node.gpus.by_index[held.index].mig or ()
        )
        for held in slices
    )


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
    held = (
        *(GpuShare(index=index, milli=milli) for index, milli in enumerate(shares) if milli),
        *(
            MigSlice(index=0, profile=profile, start=0)
            for profile, count in waiting.request.mig.items()
            for _ in range(count)
        ),
    )
    one = Replica(node=node.name, gpus=held)
    added = Placement(job=waiting.name, replicas=(one,) * waiting.gang.minimum)
    violations = verify(world, by_value(), (*placements, added)).violations
    return any(violation.rule is Rule.QUOTA for violation in violations)


@settings(max_examples=120)
@given(st.data())
def test_jobs_said_to_fit_do_fit_and_the_others_do_not(data):
    world = data.draw(snapshots(mig=True, locality=True))
    placements = tuple(data.draw(legal_placements(world)))

    for name, reason in waiting_reasons(world, MAY_DO_NOTHING, DesiredState(placements)).items():
        if reason.code not in OF_ROOM:
            continue
        said_to_fit = reason.code is ReasonCode.NOT_CHOSEN and not reason.numbers
        event(f"fits: {said_to_fit}")
        found = _place(world, placements, world.job_by_name[name])
        assert (found is not None) == said_to_fit, reason


def _place(world, placements, waiting):
    """The job at its smallest, on the first choice of nodes that the verifier has nothing against."""
    suitable = [node for node in world.cluster.nodes if ineligibility(waiting, node) is None]
    for nodes in combinations_with_replacement(suitable, waiting.gang.minimum):
        free = free_resources_by_node(nodes, placements)
        replicas = []
        for place in nodes:
            one = replica_for(waiting, place, free[place.name])
            if _is_whole(one, waiting, place) and free[place.name].holds(one):
                free[place.name].take(one)
                replicas.append(one)
        if len(replicas) == waiting.gang.minimum:
            found = Placement(job=waiting.name, replicas=tuple(replicas))
            if not verify(world, by_value(), (*placements, found), by_priority=False).violations:
                return found
    return None


# --- more than room ---------------------------------------------------------------------------------------


RACKS = [node(f"r{rack}n{index}", rack=f"r{rack}") for rack in (1, 2) for index in (1, 2)]


def test_a_gang_that_must_stay_together_tells_what_the_best_domain_has():
    holder = running("r", replica("r1n1", gpus=range(8)))
    gang = job(gpus=8, replicas=3, locality=LocalityPreference(required=Level.RACK))

    reason = reason_of(gang, holder, nodes=RACKS)

    assert reason.code is ReasonCode.DOMAIN
    assert reason.numbers == {"needed": 3, "largest": 2, "level": "rack", "domain": "r2"}


def test_a_job_of_one_replica_is_together_wherever_it_is():
    alone = job(gpus=8, replicas=(1, 3), locality=LocalityPreference(required=Level.NVLINK_ISLAND))

    assert why(alone, nodes=RACKS)[0] is ReasonCode.NOT_CHOSEN


def test_a_gang_that_must_be_spread_tells_how_many_places_there_are():
    gang = job(gpus=1, replicas=5, spread=Spread(level=Level.RACK, max=2))

    assert why(gang, nodes=RACKS) == (
        ReasonCode.FRAGMENTED,
        {"replicas": 5, "found": 4},
    )


def test_a_job_stopped_by_the_plan_names_the_jobs_that_gain():
    victim = job("a", gpus=8, at=[replica(gpus=range(8))])
    world = snapshot(jobs=[victim])

    found = waiting_reasons(world, Policy(), target(world, stopped=["a"]), preempted={"a": ("b", "c")})

    assert found["a"].code is ReasonCode.PREEMPTED
    assert found["a"].numbers == {"makes_room_for": "b, c"}


SMALL = {"nodes": [node(gpus=1, mig={0: [("1g.10gb", 1), ("1g.10gb", 5), ("1g.10gb", 6)]})]}
SERVERS = [
    job("s1", mig={"1g.10gb": 1}, at=[replica(mig=[(0, "1g.10gb", 1)])]),
    job("s2", mig={"1g.10gb": 1}, at=[replica(mig=[(0, "1g.10gb", 5)])]),
]


def test_instances_in_use_may_leave_no_legal_place():
    reason = reason_of(job(mig={"3g.40gb": 1}), *SERVERS, policy=Policy(), **SMALL)

    assert reason.code is ReasonCode.LAYOUT_BLOCKED
    assert reason.numbers == {
        "needed": "3g.40gb",
        "replicas": 1,
        "found": 0,
        "largest": "2g.20gb",
        "free": 6,
    }


def test_instances_may_need_more_memory_slices_than_are_free():
    assert why(job(mig={"3g.40gb": 2}), *SERVERS, policy=Policy(), **SMALL) == (
        ReasonCode.RESOURCES,
        {"needed": 8, "free": 6},
    )


def test_a_policy_that_keeps_layouts_leaves_the_idle_instances_alone():
    blocked = reason_of(job(mig={"1g.10gb": 2}), *SERVERS, **SMALL)
    never = reason_of(job(mig={"3g.40gb": 1}), *SERVERS, **SMALL)

    assert (blocked.code, blocked.numbers) == (
        ReasonCode.LAYOUT_BLOCKED,
        {"needed": "2 × 1g.10gb", "replicas": 1, "found": 0, "largest": "1g.10gb", "free": 6},
    )
    assert (never.code, never.numbers) == (ReasonCode.NO_MATCHING_NODE, {"needed": "3g.40gb"})
    assert all(each.text.endswith("; mig.repartition is off") for each in (blocked, never))
    assert why(job(mig={"1g.10gb": 1}), *SERVERS, **SMALL)[0] is ReasonCode.NOT_CHOSEN


NO_PREEMPTION = by_value(disruption=Disruption(preempt=False, max_preemptions=3))


@pytest.mark.parametrize(
    ("priority", "victim", "policy", "remark"),
    [
        (1, {}, NO_PREEMPTION, "preemption is off"),
        (0, {}, NO_PREEMPTION, ""),
        (1, {"preemptible": False}, NO_PREEMPTION, ""),
        (1, {"preemptions": 3}, NO_PREEMPTION, ""),
        (1, {}, Policy(), ""),
    ],
)
def test_preemption_is_called_off_only_where_it_could_help(priority, victim, policy, remark):
    low = running("low", replica("n0", gpus=range(8)), **victim)

    reason = reason_of(job(gpus=1, priority=priority), low, nodes=cluster(1), policy=policy)

    assert (reason.code, reason.numbers) == (ReasonCode.RESOURCES, {"needed": 1, "free": 0})
    assert remarks(reason) == remark


def test_what_the_cluster_cannot_do_is_named_in_place_of_a_setting():
    low = running("low", replica("n0", gpus=range(8)))
    new = [pool("spot", template=node("new", model="H200"))]
    only = {"can": ("release", "start"), "policy": Policy()}

    full = reason_of(job(gpus=1, priority=1), low, nodes=cluster(1), **only)
    grown = reason_of(job(gpus=1, gpu_models=["H200"]), nodes=[node(model="T4")], pools=new, **only)
    uncut = reason_of(job(mig={"3g.40gb": 1}), *SERVERS, **SMALL, **only)

    assert remarks(full) == "the cluster cannot preempt jobs"
    assert remarks(grown) == "the cluster cannot add nodes"
    assert uncut.text.endswith("; the cluster cannot repartition GPUs")


def test_a_victim_elsewhere_is_no_reason_to_speak_of_preemption():
    low = running("low", replica("n0", gpus=range(8)))
    nodes = [node(model="T4"), node("n1", model="L4", gpus=1)]
    here = running("here", replica("n1", gpus=[0]), preemptible=False)

    wanted = job(gpus=1, priority=1, gpu_models=["L4"])
    reason = reason_of(wanted, low, here, nodes=nodes, policy=NO_PREEMPTION)

    assert reason.numbers == {"needed": 1, "free": 0}
    assert not remarks(reason)


@pytest.mark.parametrize(
    ("pools", "scale_up", "remark"),
    [
        ([("spot", 0)], True, "pool spot is at its maximum of 0 nodes"),
        ([("spot", 0), ("cloud", 0)], True, "pools cloud and spot are at their maximum"),
        ([("spot", 1)], False, "pools.scale_up is off"),
        ([], True, ""),
    ],
)
def test_a_pool_that_may_not_grow_is_named(pools, scale_up, remark):
    pools = [pool(name, template=node(f"new-{name}", model="H200"), most=most) for name, most in pools]

    reason = reason_of(
        job(gpus=1, gpu_models=["H200"]),
        nodes=[node(model="T4")],
        pools=pools,
        policy=Policy(pools=PoolPolicy(scale_up=scale_up)),
    )

    assert reason.code is ReasonCode.NO_MATCHING_NODE
    assert remarks(reason) == remark


def test_a_pool_of_unsuitable_nodes_is_not_mentioned():
    small = pool("small", template=node("new", gpus=1), most=0)
    full = running("full", replica("n0", gpus=range(8)))

    reason = reason_of(job(gpus=2), full, nodes=cluster(1), pools=[small], policy=Policy())

    assert reason.numbers == {"needed": 2, "free": 0}
    assert not remarks(reason)


def test_a_pool_that_just_gave_a_node_back_is_named_with_the_time_until_which_it_gets_none():
    gave = {"node_removed_at": NOW - timedelta(minutes=45)}
    early, late = (
        pool(name, template=node(f"new-{name}", model="H200")).model_copy(update=update)
        for name, update in (("early", gave), ("late", {"node_removed_at": NOW}))
    )
    wanted = job(gpus=1, gpu_models=["H200"])

    def remark(*pools, **rules):
        policy = Policy(pools=PoolPolicy(**rules))
        return remarks(reason_of(wanted, nodes=[node(model="T4")], pools=pools, policy=policy))

    gave_back = "pool {} gave a node back and gets none before {}".format
    assert remark(early, late) == gave_back("early", "12:15")
    assert remark(late) == gave_back("late", "13:00")
    assert "gave" not in remark(early, scale_up_delay_after_remove="45m")
    assert remark(early, scale_up=False) == "pools.scale_up is off"


@pytest.mark.parametrize(
    ("priority", "about", "policy", "remark"),
    [
        (1, {}, Policy(), "low was resized and is not disturbed before 12:15"),
        (0, {}, Policy(), ""),
        (1, {"preemptible": False}, Policy(), ""),
        (1, {}, Policy(disruption=Disruption(preempt=False, resize=False)), ""),
        (1, {}, Policy(disruption=Disruption(resize_dwell="45m")), ""),
    ],
)
def test_a_job_that_was_just_resized_is_named_with_the_time_until_which_it_stays(
    priority, about, policy, remark
):
    low = running("low", replica("n0", gpus=range(8)), **about)
    resized = low.running.model_copy(update={"resized_at": NOW - timedelta(minutes=45)})
    low = low.model_copy(update={"running": resized})

    reason = reason_of(job(gpus=1, priority=priority), low, nodes=cluster(1), policy=policy)

    assert reason.numbers == {"needed": 1, "free": 0}
    assert remarks(reason) == remark


def test_gpus_may_be_switched_to_mig_mode_only_if_the_policy_says_so():
    waiting = job(mig={"3g.40gb": 2, "1g.10gb": 1})
    switching = Policy(mig=MigPolicy(switch_mode=True))

    assert why(waiting, nodes=[node()], policy=Policy()) == (
        ReasonCode.NO_MATCHING_NODE,
        {"needed": "1g.10gb and 2 × 3g.40gb", "gpus_in_mig_mode": 0},
    )
    assert why(waiting, nodes=[node()], policy=switching)[0] is ReasonCode.NOT_CHOSEN


def test_what_the_plan_repartitions_counts_as_it_will_be():
    starts = job("s", mig={"3g.40gb": 1})
    waits = job(mig={"4g.40gb": 1})
    nodes = [node(gpus=1, mig={0: []})]

    found = why(
        waits,
        starts,
        started=[placement("s", replica(mig=[(0, "3g.40gb", 0)]))],
        nodes=nodes,
        policy=Policy(),
    )

    assert found[0] is ReasonCode.LAYOUT_BLOCKED


def test_room_made_for_others_is_not_for_jobs_of_lower_priority():
    victim = job("v", gpus=8, priority=4, at=[replica(gpus=range(8))])
    winner = job("w", gpus=4, priority=9)
    goal = {
        "nodes": [node()],
        "started": [placement("w", replica(gpus=range(4)))],
        "target_of": lambda world, *placed: target(world, *placed, stopped=["v"]),
    }

    low, high = (reason_of(job(gpus=4, priority=priority), victim, winner, **goal) for priority in (4, 5))

    assert low == messages.blocked_room(messages.RESERVED, {"n0"})
    assert high == messages.not_chosen(proven=False)


def test_a_job_of_a_queue_below_its_quota_may_follow_a_borrower():
    victim = job("v", gpus=8, priority=4, queue="free", at=[replica(gpus=range(8))])
    queues = [queue(nominal=4), queue("free")]

    found = reason_of(
        job(gpus=4),
        victim,
        nodes=[node()],
        queues=queues,
        target_of=lambda world, *placed: target(world, *placed, stopped=["v"]),
    )

    assert found == messages.not_chosen(proven=False)


def test_jobs_that_must_not_meet_keep_each_other_away():
    there = job("r", gpus=1, labels={"app": "db"}, at=[replica("r1n1", gpus=[0])])
    shy = job(gpus=1, anti_affinity=(AntiAffinity(labels={"app": "db"}, level=Level.RACK),))

    assert reason_of(shy, there, nodes=RACKS[:2]) == messages.blocked_room(messages.AVOIDED, {"r1n1", "r1n2"})
    assert reason_of(shy, there, nodes=RACKS) == messages.not_chosen(proven=False)


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


def test_power_caps_leave_less_room_than_gpus_do():
    holder = running("r", replica(gpus=range(4)))

    assert why(job(gpus=3), holder, nodes=[node(watts=500, power_cap_watts=3_000)]) == (
        ReasonCode.RESOURCES,
        {"needed": 3, "free": 2},
    )


def in_one_rack(watts, count=3, **more):
    """Nodes of a rack with a cap of so many watts; each GPU draws 700."""
    nodes = [node(f"n{index}", rack="r", watts=700, **more) for index in range(count)]
    return {"nodes": nodes, "rack_power": [{"rack": "r", "watts": watts}]}


@pytest.mark.parametrize(
    ("waiting", "needed", "left"),
    [
        (job(gpus=8), 8, 4),
        (job(gpus=4, replicas=2), 8, 4),
        (job(gpus=4, replicas=2, spread={"level": "node", "max": 1}), 8, 4),
        (job(gpus=8, replicas=2), 16, 12),
    ],
)
def test_what_a_rack_has_power_for_counts_once_and_not_on_each_of_its_nodes(waiting, needed, left):
    found = reason_of(waiting, **in_one_rack(700 * left))

    assert (found.code, found.numbers) == (ReasonCode.RESOURCES, {"needed": needed, "free": left})
    assert figures(found.text) == f"{needed} {left} 3"


def test_nodes_with_caps_of_their_own_add_up_to_what_their_rack_has_power_for():
    racks = in_one_rack(700 * 10, power_cap_watts=700 * 4)

    assert why(job(gpus=4, replicas=3), **racks)[1] == {"needed": 12, "free": 10}


def test_racks_of_one_name_in_two_zones_have_power_of_their_own():
    nodes = [node(f"n{zone}", rack="r", zone=zone, watts=700) for zone in "ab"]
    caps = [{"rack": "r", "zone": zone, "watts": 700 * 4} for zone in "ab"]

    assert why(job(gpus=8, replicas=2), nodes=nodes, rack_power=caps)[1] == {"needed": 16, "free": 8}


def test_overcommitted_cpus_count_for_less():
    holder = job("r", cpus=90, qos="burstable", at=[replica(cpus=90)])
    twice = {"nodes": [node()], "overcommit": {"burstable": {"cpus": 2}}}

    assert why(job(cpus=60), holder, **twice) == (
        ReasonCode.RESOURCES,
        {"needed": 60, "free": 51},
    )
    assert why(job(cpus=60, qos="burstable"), holder, **twice) == (ReasonCode.NOT_CHOSEN, {})


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


# --- disruption budgets -------------------------------------------------------------------------------------


def kept_by(policy, *, priority=5, **more):
    """Names of the budgets in the reason of a job that could take the places of two others."""
    running = [
        job(f"r{index}", gpus=4, at=[replica(gpus=range(4 * index, 4 * index + 4))], **more)
        for index in range(2)
    ]
    reason = reason_of(job("w", gpus=4, priority=priority), *running, nodes=cluster(1), policy=policy)
    return reason.code, reason.numbers.get("disruption_budgets")


NONE_LEFT = DisruptionBudget(name="b", max_unavailable=0)


def test_a_job_names_the_budget_that_keeps_others_in_its_place():
    assert kept_by(budgets(NONE_LEFT)) == (ReasonCode.RESOURCES, "b")
    both = budgets(NONE_LEFT, DisruptionBudget(name="a", labels={"app": "x"}, min_available=2))
    assert kept_by(both, labels={"app": "y"}) == (ReasonCode.RESOURCES, "b")


def test_a_budget_that_leaves_enough_or_keeps_what_the_job_may_not_replace_is_not_named():
    assert kept_by(budgets(DisruptionBudget(name="b", max_unavailable=1))) == (ReasonCode.RESOURCES, None)
    assert kept_by(budgets(NONE_LEFT), priority=0) == (ReasonCode.RESOURCES, None)
    assert kept_by(budgets(NONE_LEFT), preemptible=False) == (ReasonCode.RESOURCES, None)


def test_a_job_that_waits_for_quota_names_the_budget_that_keeps_jobs_of_its_queues():
    running = job("r", gpus=4, at=[replica(gpus=range(4))])
    queues = [queue("q", nominal=4)]

    reason = reason_of(
        job("w", gpus=4, priority=5), running, nodes=cluster(1), queues=queues, policy=budgets(NONE_LEFT)
    )

    assert reason.code is ReasonCode.WAITING_FOR_QUOTA
    assert reason.numbers["disruption_budgets"] == "b"
