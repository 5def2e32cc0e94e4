"""Nodes and pools: what they say about themselves, and what they refuse to be."""

from __future__ import annotations

import pytest
from pydantic import ValidationError

from gpuplan.models.cluster import Cluster, Gpu, Level, NodePool
from gpuplan.models.plan.action_kinds import CHANGING_KINDS, ActionKind
from tests.support.builders.build import node, pool


@pytest.mark.parametrize(
    ("fields", "schedulable"),
    [({}, True), ({"cordoned": True}, False), ({"drain": True}, False), ({"ready": False}, False)],
)
def test_a_node_takes_new_jobs_unless_something_speaks_against_it(fields, schedulable):
    assert node(**fields).schedulable == schedulable


def test_a_node_as_new_is_whole_takes_jobs_and_is_otherwise_the_same():
    worn = node(
        "n",
        rack="r",
        price_per_hour=2.0,
        nvlink_island="i",
        cordoned=True,
        drain=True,
        ready=False,
        details=[{"index": 2, "uuid": "GPU-1", "healthy": False, "fault": "XID 79", "numa": 1}],
    )
    fresh = worn.as_new()

    assert fresh.schedulable
    assert fresh.nvlink_island == ""
    assert fresh.gpus.by_index[2] == Gpu(index=2, numa=1)
    assert (fresh.name, fresh.rack, fresh.price_per_hour) == ("n", "r", 2.0)
    assert node("whole").as_new() == node("whole")


def test_a_fault_is_of_an_unhealthy_gpu():
    with pytest.raises(ValidationError):
        Gpu(index=0, fault="XID 79")


def test_what_is_not_known_of_a_gpu_is_in_no_document_so_that_plans_keep_their_ids():
    assert "uuid" not in Gpu(index=0).full_text
    assert "fault" not in Gpu(index=0, healthy=False).full_text


def test_domains_are_paths_and_missing_ones_are_none():
    here = node("n", zone="z", rack="r")

    assert here.domain(Level.RACK) == ("", "z", "r")
    assert here.domain(Level.NODE) == ("", "z", "r", "", "n")
    assert (here.domain(Level.REGION), here.domain(Level.NVLINK_ISLAND)) == (None, None)


def test_a_pool_has_a_range_and_a_template_of_its_own():
    assert (pool(least=2, most=2).minimum, pool(template=node("t", pool="spot")).maximum) == (2, 4)
    for wrong in (
        {"min": 3, "max": 2},
        {"max": 2, "template": node("t", pool="other")},
        {"max": 2, "names": ("a", "a")},
    ):
        with pytest.raises(ValidationError):
            NodePool(**{"name": "spot", "template": node("t")} | wrong)


def test_a_cluster_can_do_everything_unless_it_says_what():
    some = Cluster(nodes=(), can=("scale_up", "start", "release", "start"))

    assert all(map(Cluster(nodes=()).offers, CHANGING_KINDS))
    assert some.can == (ActionKind.RELEASE, ActionKind.START, ActionKind.SCALE_UP)
    assert [kind for kind in CHANGING_KINDS if some.offers(kind)] == [*some.can]


@pytest.mark.parametrize("can", [(), ("release",), ("start", "preempt"), ("release", "start", "keep")])
def test_a_cluster_that_cannot_start_and_release_jobs_is_refused(can):
    with pytest.raises(ValidationError, match="expected"):
        Cluster(nodes=(), can=can)


def test_open_gpus_are_those_of_nodes_that_take_jobs_whatever_their_health():
    damaged = node("n0", gpus=4, details=[Gpu(index=1, healthy=False)], model="T4")
    nodes = (damaged, node("n1", gpus=8, model="A100"), node("n2", cordoned=True), node("n3", gpus=0))

    assert list(Cluster(nodes=nodes).open_gpus.items()) == [("A100", 8), ("T4", 4)]
