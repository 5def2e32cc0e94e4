"""Consistency of a cluster: details of its GPUs, pools and their templates, and power caps."""

from __future__ import annotations

from datetime import timedelta

import pytest

from gpuplan.models.cluster import Gpu
from gpuplan.models.validation.base import NODES, POOLS, RACK_POWER
from tests.support.builders.build import NOW, node, pool
from tests.support.builders.invalid_snapshots import found, only, world


def test_a_pool_that_was_scaled_after_the_snapshot_was_taken_is_told():
    scaled = [
        pool("a").model_copy(update={"node_added_at": NOW, "node_removed_at": NOW}),
        pool("b").model_copy(update={"node_removed_at": NOW + timedelta(seconds=1)}),
    ]

    assert found(world(pools=scaled)) == [
        (
            (*POOLS, 1, "node_removed_at"),
            (
                "pool 'b' has node_removed_at 2026-11-20T12:00:01Z; expected nothing after the snapshot's "
                "own taken_at, 2026-11-20T12:00:00Z."
            ),
        )
    ]


def test_details_of_a_gpu_the_node_does_not_have_are_told():
    assert found(world(nodes=[node("n0", details=[Gpu(index=8)])])) == [
        (
            (*NODES, 0, "gpus", "details", 0, "index"),
            "node 'n0' has details of gpu 8; expected one of its 8 GPUs, 0 to 7.",
        )
    ]


def test_details_of_one_gpu_given_twice_are_told():
    one = only(world(nodes=[node("n0", details=[Gpu(index=7), Gpu(index=1), Gpu(index=7)])]))

    assert one.location == (*NODES, 0, "gpus", "details", 2, "index")
    assert one.contradicts == (*NODES, 0, "gpus", "details", 0, "index")


def test_an_illegal_mig_layout_is_told_with_its_faults():
    bad = node("m0", mig={0: [("3g.40gb", 0), ("3g.40gb", 4), ("1g.10gb", 6)]})

    assert found(world(nodes=[bad])) == [
        (
            (*NODES, 0, "gpus", "details", 0, "mig"),
            (
                "node 'm0' has an illegal MIG layout on gpu 0 (H100-80GB): "
                "1g.10gb at slice 6: memory slice 6 belongs to 3g.40gb at slice 4."
            ),
        )
    ]


def test_mig_mode_on_a_model_without_known_geometry_is_told():
    (one,) = found(world(nodes=[node("m0", model="T4", mig={0: []})]))

    assert one == (
        (*NODES, 0, "gpus", "details", 0, "mig"),
        (
            "node 'm0' has gpu 0 in MIG mode; expected none on GPU model 'T4', "
            "which is not known to have MIG.\n"
            "  Leave `mig` out, or use NVIDIA's name of the model."
        ),
    )


def test_a_template_of_a_pool_is_judged_as_a_node_is():
    template = node("m0", mig={1: [("3g.40gb", 2)]})
    beyond = node("n0", details=[Gpu(index=8)])

    assert found(world(pools=[pool("a", template=template), pool("b", template=beyond)])) == [
        (
            (*POOLS, 1, "template", "gpus", "details", 0, "index"),
            "the template of pool 'b' has details of gpu 8; expected one of its 8 GPUs, 0 to 7.",
        ),
        (
            (*POOLS, 0, "template", "gpus", "details", 0, "mig"),
            (
                "the template of pool 'a' has an illegal MIG layout on gpu 1 (H100-80GB): "
                "3g.40gb at slice 2: may start at 0, 4."
            ),
        ),
    ]


@pytest.mark.parametrize(
    ("flag", "words"),
    [
        ({"ready": False}, "is not ready"),
        ({"cordoned": True}, "is cordoned"),
        ({"drain": True}, "is to be drained"),
    ],
)
def test_a_template_that_takes_no_jobs_is_told(flag, words):
    assert found(world(pools=[pool("a", template=node("t", **flag))])) == [
        (
            (*POOLS, 0, "template", *flag),
            f"pool 'a' has a template that {words}; expected one that takes jobs.",
        )
    ]


def test_a_template_with_a_name_that_leaves_no_room_for_a_number_is_told():
    assert found(world(pools=[pool("a", template=node("t" * 241)), pool("b", template=node("t" * 240))])) == [
        (
            (*POOLS, 0, "template", "name"),
            (
                "pool 'a' has a template with a name of 241 characters; expected at most 240, since "
                "new nodes are named after it with a number."
            ),
        )
    ]


def test_a_node_of_an_unknown_pool_is_told_with_a_near_one():
    nodes = [node("a", pool="spot"), node("b", pool="sport"), node("c")]

    assert found(world(nodes=nodes, pools=[pool("spot"), pool("base")])) == [
        (
            (*NODES, 1, "pool"),
            (
                "node 'b' is of pool 'sport', which is no pool of the cluster.\n"
                "  Known: base, spot.\n"
                "  Maybe 'spot' was meant."
            ),
        )
    ]


def test_where_no_pools_are_described_a_pool_is_just_a_label():
    assert found(world(nodes=[node("a", pool="spot")])) == []


def test_a_pool_with_more_nodes_than_its_maximum_is_a_fact():
    nodes = [node(name, pool="spot") for name in "abc"]

    assert found(world(nodes=nodes, pools=[pool("spot", most=1)])) == []


def test_a_power_cap_for_a_rack_without_nodes_is_told_with_a_near_one():
    nodes = [node("a", rack="r12", zone="z1", region="eu"), node("b", rack="r13")]
    caps = [
        {"rack": "r12", "zone": "z1", "region": "eu", "watts": 9},
        {"rack": "r12", "zone": "z1", "watts": 9},
        {"rack": "r21", "zone": "z1", "region": "eu", "watts": 9},
    ]

    assert found(world(nodes=nodes, rack_power=caps)) == [
        (
            (*RACK_POWER, 1, "rack"),
            (
                "there is a power cap for rack 'z1/r12', in which no node stands.\n"
                "  Known: eu/z1/r12, r13.\n"
                "  Maybe 'eu/z1/r12' was meant."
            ),
        ),
        (
            (*RACK_POWER, 2, "rack"),
            (
                "there is a power cap for rack 'eu/z1/r21', in which no node stands.\n"
                "  Known: eu/z1/r12, r13.\n"
                "  Maybe 'eu/z1/r12' was meant."
            ),
        ),
    ]


def test_a_power_cap_may_wait_for_nodes_of_a_pool():
    cap = {"rack": "r9", "watts": 9}

    assert found(world(pools=[pool(template=node("t", rack="r9"))], rack_power=[cap])) == []


def test_a_second_power_cap_for_a_rack_is_told():
    one = only(world(nodes=[node("a", rack="r")], rack_power=[{"rack": "r", "watts": w} for w in (5, 6)]))

    assert one.message == "there is a power cap for rack 'r' a second time; expected each rack once."
    assert (one.location, one.contradicts) == ((*RACK_POWER, 1, "rack"), (*RACK_POWER, 0, "rack"))
