"""Consistency of a cluster: details of its GPUs, pools and their templates, and power caps."""

from __future__ import annotations

from datetime import timedelta

import pytest

from gpuplan.models.cluster import Gpu
from gpuplan.models.validation.base import NODES, POOLS, RACK_POWER
from tests.support.builders.build import NOW, node, pool
from tests.support.builders.invalid_snapshots import found, only, world
from tests.support.output.golden import figures


def test_a_pool_that_was_scaled_after_the_snapshot_was_taken_is_told():
    scaled = [
        pool("a").model_copy(update={"node_added_at": NOW, "node_removed_at": NOW}),
        pool("b").model_copy(update={"node_removed_at": NOW + timedelta(seconds=1)}),
    ]

    assert found(world(pools=scaled)) == [
        (
            (*POOLS, 1, "node_removed_at"),
            ("b 2026-11-20T12:00:01Z 2026-11-20T12:00:00Z"),
        )
    ]


def test_details_of_a_gpu_the_node_does_not_have_are_told():
    assert found(world(nodes=[node("n0", details=[Gpu(index=8)])])) == [
        (
            (*NODES, 0, "gpus", "details", 0, "index"),
            "n0 8 8 0 7",
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
            ("m0 0 H100-80GB 1g.10gb 6 6 3g.40gb 4"),
        )
    ]


def test_mig_mode_on_a_model_without_known_geometry_is_told():
    assert found(world(nodes=[node("m0", model="T4", mig={0: []})])) == [
        ((*NODES, 0, "gpus", "details", 0, "mig"), "m0 0 T4")
    ]


def test_a_template_of_a_pool_is_judged_as_a_node_is():
    template = node("m0", mig={1: [("3g.40gb", 2)]})
    beyond = node("n0", details=[Gpu(index=8)])

    assert found(world(pools=[pool("a", template=template), pool("b", template=beyond)])) == [
        (
            (*POOLS, 1, "template", "gpus", "details", 0, "index"),
            "b 8 8 0 7",
        ),
        (
            (*POOLS, 0, "template", "gpus", "details", 0, "mig"),
            ("a 1 H100-80GB 3g.40gb 2 0 4"),
        ),
    ]


@pytest.mark.parametrize("flag", [{"ready": False}, {"cordoned": True}, {"drain": True}])
def test_a_template_that_takes_no_jobs_is_told(flag):
    assert found(world(pools=[pool("a", template=node("t", **flag))])) == [
        ((*POOLS, 0, "template", *flag), "a")
    ]


def test_a_template_with_a_name_that_leaves_no_room_for_a_number_is_told():
    assert found(world(pools=[pool("a", template=node("t" * 241)), pool("b", template=node("t" * 240))])) == [
        (
            (*POOLS, 0, "template", "name"),
            ("a 241 240"),
        )
    ]


def test_a_node_of_an_unknown_pool_is_told_with_a_near_one():
    nodes = [node("a", pool="spot"), node("b", pool="sport"), node("c")]

    assert found(world(nodes=nodes, pools=[pool("spot"), pool("base")])) == [
        (
            (*NODES, 1, "pool"),
            ("b sport spot"),
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
            ("z1/r12 eu/z1/r12 r13 eu/z1/r12"),
        ),
        (
            (*RACK_POWER, 2, "rack"),
            ("eu/z1/r21 eu/z1/r12 r13 eu/z1/r12"),
        ),
    ]


def test_a_power_cap_may_wait_for_nodes_of_a_pool():
    cap = {"rack": "r9", "watts": 9}

    assert found(world(pools=[pool(template=node("t", rack="r9"))], rack_power=[cap])) == []


def test_a_second_power_cap_for_a_rack_is_told():
    one = only(world(nodes=[node("a", rack="r")], rack_power=[{"rack": "r", "watts": w} for w in (5, 6)]))

    assert figures(one.message) == "r"
    assert (one.location, one.contradicts) == ((*RACK_POWER, 1, "rack"), (*RACK_POWER, 0, "rack"))
