"""Consistency of what runs: enough replicas, on nodes and GPUs that there are, and nothing held twice."""

from __future__ import annotations

import pytest

from gpuplan.models.validation.base import DamageKind
from gpuplan.models.validation.checks import inconsistencies
from tests.support.builders.build import job, node, replica
from tests.support.builders.invalid_snapshots import found, only, world
from tests.support.output.golden import figures


@pytest.mark.parametrize(
    ("gang", "count", "about"),
    [((2, 4), 1, "a 1 2 4"), ((2, 4), 5, "a 5 2 4"), (1, 2, "a 2 1")],
)
def test_a_running_gang_outside_its_range_is_told(gang, count, about):
    runs = job("a", replicas=gang, at=[replica("n0")] * count)

    assert found(world(jobs=[runs])) == [(("jobs", 0, "running", "replicas"), about)]


@pytest.mark.parametrize("where", ["n0", "gone"])
def test_a_replica_on_what_is_no_mig_profile_is_told_wherever_it_runs(where):
    runs = job("a", mig={"1g.10gb": 1}, at=[replica(where, mig=[(0, "no", 0)])])

    assert (
        ("jobs", 0, "running", "replicas", 0, "gpus", 0, "profile"),
        "a no 3g.40gb",
    ) in found(world(nodes=[node("n0", mig={0: [("1g.10gb", 0)]})], jobs=[runs]))


def test_a_replica_on_an_unknown_node_is_told_with_a_near_one():
    runs = job("a", replicas=2, at=[replica("h100-01"), replica("h10-01")])

    assert found(world(nodes=[node("h100-01")], jobs=[runs])) == [
        (
            ("jobs", 0, "running", "replicas", 1, "node"),
            "a h10-01 h100-01",
        )
    ]


@pytest.mark.parametrize(
    ("on", "expected"),
    [
        (node("n0", gpus=4), "4 0 3"),
        (node("n0", gpus=1), "0"),
        (node("n0", gpus=0), ""),
    ],
)
def test_a_replica_on_a_gpu_that_is_not_there_is_told(on, expected):
    runs = job("a", gpus=1, at=[replica("n0", gpus=[4])])

    assert found(world(nodes=[on], jobs=[runs])) == [
        (
            ("jobs", 0, "running", "replicas", 0, "gpus", 0, "index"),
            f"a 4 n0 {expected}".rstrip(),
        )
    ]


@pytest.mark.parametrize(
    ("shares", "wrong"),
    [
        ([("a", 1000), ("b", 1)], True),
        ([("a", 1000), ("b", 1000)], True),
        ([("a", 600), ("b", 300), ("c", 101)], True),
        ([("a", 600), ("b", 300), ("c", 100)], False),
        ([("a", 500), ("b", 500)], False),
    ],
)
def test_shares_of_one_gpu_beyond_the_whole_are_told_once(shares, wrong):
    jobs = [job(name, at=[replica("n1", gpus=[3], milli=milli)]) for name, milli in shares]

    told = list(inconsistencies(world(jobs=jobs)))

    assert len(told) == wrong
    if wrong:
        assert told[0].location == ("jobs", len(jobs) - 1, "running", "replicas", 0, "gpus", 0)
        assert told[0].contradicts == ("jobs", 0, "running", "replicas", 0, "gpus", 0)
        assert f"Held by {', '.join(name for name, _ in shares)}." in told[0].message


def test_a_gpu_that_one_job_holds_twice_is_told():
    runs = job("a", gpus=1, replicas=2, at=[replica("n0", gpus=[0]), replica("n0", gpus=[0])])

    one = only(world(jobs=[runs]))

    assert figures(one.message) == "a 0 n0 2"
    assert one.message.endswith("Held by a.")


def test_the_same_gpu_of_two_nodes_is_held_once_each():
    jobs = [job("a", at=[replica("n0", gpus=[0])]), job("b", at=[replica("n1", gpus=[0])])]

    assert found(world(jobs=jobs)) == []


def test_a_mig_instance_held_by_two_is_told():
    jobs = [job(name, at=[replica("m0", mig=[(0, "3g.40gb", 4)])]) for name in "ab"]

    one = only(world(nodes=[node("m0", mig={0: [("3g.40gb", 4)]})], jobs=jobs))

    assert figures(one.message) == "b 4 0 m0 2"
    assert one.message.endswith("Held by a, b.")


@pytest.mark.parametrize(
    ("on", "held", "fault"),
    [
        (
            node("m0", mig={0: [("3g.40gb", 4)]}),
            replica("m0", mig=[(0, "3g.40gb", 0)]),
            "3g.40gb at slice 4.",
        ),
        (node("m0", mig={0: []}), replica("m0", mig=[(0, "3g.40gb", 0)]), ": it has none."),
        (node("m0"), replica("m0", mig=[(0, "3g.40gb", 0)]), "`mig` among the details of that GPU."),
        (node("m0", mig={0: [("3g.40gb", 4)]}), replica("m0", gpus=[0]), "one of its instances."),
    ],
)
def test_a_use_of_a_gpu_that_its_mig_mode_rules_out_is_told(on, held, fault):
    one = only(world(nodes=[on], jobs=[job("a", at=[held])]))

    assert one.location == ("jobs", 0, "running", "replicas", 0, "gpus", 0)
    assert one.message.endswith(fault)


def test_a_node_that_holds_more_cpu_than_it_has_is_no_error():
    one = only(world(jobs=[job("a", at=[replica("n0", cpus=10_000)])]))

    assert one.damage.kind is DamageKind.NODE_OVERFULL
    assert one.damage.cause == "its jobs hold more CPU than it offers"


def test_replicas_that_hold_other_than_the_job_asks_for_are_no_contradiction():
    assert found(world(jobs=[job("a", gpus=8, at=[replica("n0", gpus=[0])])])) == []
