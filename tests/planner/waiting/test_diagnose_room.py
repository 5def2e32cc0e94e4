"""What is said of the room that is missing: of GPUs, of domains, of MIG instances, of power."""

from __future__ import annotations

import pytest

from gpuplan.models.affinity import AntiAffinity, LocalityPreference, Spread
from gpuplan.models.cluster import Level
from gpuplan.models.plan.reason import ReasonCode
from gpuplan.models.policy.policy import Policy
from gpuplan.planner.waiting import messages
from tests.support.builders.build import (
    cluster,
    job,
    node,
    placement,
    replica,
)
from tests.support.harness.waiting_reasons import (
    RACKS,
    SERVERS,
    SMALL,
    reason_of,
    running,
    told,
    why,
)
from tests.support.output.golden import figures


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


def test_jobs_that_must_not_meet_keep_each_other_away():
    there = job("r", gpus=1, labels={"app": "db"}, at=[replica("r1n1", gpus=[0])])
    shy = job(gpus=1, anti_affinity=(AntiAffinity(labels={"app": "db"}, level=Level.RACK),))

    assert reason_of(shy, there, nodes=RACKS[:2]) == messages.blocked_room(messages.AVOIDED, {"r1n1", "r1n2"})
    assert reason_of(shy, there, nodes=RACKS) == messages.not_chosen(proven=False)


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
