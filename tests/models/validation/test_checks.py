"""Consistency of a whole snapshot: nothing told where nothing is wrong, names unique, places that exist."""

from __future__ import annotations

from datetime import timedelta

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gpuplan.models.cluster import Gpu
from gpuplan.models.health.measurement import Measurement
from gpuplan.models.validation.base import DATASETS, NODES, POOLS
from gpuplan.models.validation.checks import CHECKS, Section, inconsistencies
from tests.support.builders.build import cluster, job, node, pool, queue, replica
from tests.support.builders.invalid_snapshots import found, only, world
from tests.support.seeds import examples


def test_a_snapshot_without_contradictions_has_none():
    nodes = [*cluster(), node("m0", mig={0: [("3g.40gb", 0), ("3g.40gb", 4)]})]
    jobs = [
        job("a", gpus=2, at=[replica("n0", gpus=[0, 1]), replica("n1", gpus=[0, 1])], replicas=(1, 2)),
        job("b", milli=500, at=[replica("n0", gpus=[2], milli=500)]),
        job("c", milli=500, at=[replica("n0", gpus=[2], milli=500)]),
        job("d", at=[replica("m0", mig=[(0, "3g.40gb", 4)])]),
        job("e", queue="top"),
        job("f", mig={"1g.10gb": 2}),
    ]

    assert found(world(nodes=nodes, jobs=jobs, queues=[queue("top"), queue("q", parent="top")])) == []


@pytest.mark.parametrize(
    ("snapshot", "location", "earlier"),
    [
        (
            world(nodes=[*cluster(2), node("n0")]),
            (*NODES, 2, "name"),
            (*NODES, 0, "name"),
        ),
        (world(queues=[queue(), queue()]), ("queues", 1, "name"), ("queues", 0, "name")),
        (world(jobs=[job("a"), job("b"), job("a")]), ("jobs", 2, "name"), ("jobs", 0, "name")),
        (world(pools=[pool("a"), pool("a")]), (*POOLS, 1, "name"), (*POOLS, 0, "name")),
        (world(datasets=[{"name": "d"}, {"name": "d"}]), (*DATASETS, 1, "name"), (*DATASETS, 0, "name")),
    ],
)
def test_a_name_given_twice_is_told_at_the_second_with_the_first(snapshot, location, earlier):
    one = only(snapshot)

    assert (one.location, one.contradicts) == (location, earlier)
    assert "is given a second time" in one.message


def test_a_node_a_queue_and_a_job_may_share_a_name():
    assert found(world(nodes=[node("q")], queues=[queue("q")], jobs=[job("q", queue="q")])) == []


def test_of_two_entries_with_one_name_the_first_counts():
    runs = job("a", at=[replica("n0", gpus=[7])])

    assert len(found(world(nodes=[node("n0", gpus=8), node("n0", gpus=4)], jobs=[runs]))) == 1


BROKEN = world(
    nodes=[node("n0", details=[Gpu(index=9)]), node("n0")],
    queues=[queue("q", parent="p")],
    jobs=[
        job("a", queue="x", waited=-timedelta(hours=1), at=[replica("n7", gpus=[0])]),
        job("b", replicas=2, at=[replica("n7", gpus=[0])]),
        job("c", mig={"x": 1}),
        job("d", depends_on=[{"job": "e"}]),
    ],
    measured=[Measurement(node="n0", index=0)] * 2,
)


def test_checks_that_need_an_incomplete_section_are_passed_over():
    everything = set(found(BROKEN))

    assert len(everything) == 12
    for section in Section:
        assert set(found(BROKEN, incomplete=frozenset({section}))) < everything
    assert {location for location, _ in found(BROKEN, incomplete=frozenset(Section))} == {
        (*NODES, 1, "name"),
        (*NODES, 0, "gpus", "details", 0, "index"),
        ("jobs", 1, "running", "replicas"),
        ("jobs", 1, "running", "replicas", 0, "gpus", 0),
    }


def test_a_gpu_measured_twice_is_told_at_the_second_with_the_first():
    three = [Measurement(node=name, index=index) for name, index in (("n0", 1), ("n1", 1), ("n0", 1))]

    one = only(world(measured=three))

    assert (one.location, one.contradicts) == (("measured", 2, "index"), ("measured", 0, "index"))


def test_every_check_says_what_it_checks():
    assert all(check.__doc__ for check in CHECKS)


@settings(max_examples=examples(100))
@given(
    st.lists(st.sampled_from("abcd"), max_size=4),
    st.lists(st.tuples(st.sampled_from("abcd"), st.none() | st.sampled_from("abcd")), max_size=4),
    st.lists(
        st.tuples(
            st.sampled_from("abcd"),
            st.sampled_from("abcd"),
            st.lists(st.tuples(st.sampled_from("abcd"), st.integers(0, 9), st.integers(1, 1000)), max_size=2),
        ),
        max_size=4,
    ),
)
def test_every_location_leads_to_an_entry_of_the_document(nodes, queues, jobs):
    snapshot = world(
        nodes=[node(name) for name in nodes],
        queues=[queue(name, parent=parent) for name, parent in queues],
        jobs=[
            job(
                name,
                queue=wait,
                at=[replica(on, gpus=[at], milli=milli) for on, at, milli in held] or None,
            )
            for name, wait, held in jobs
        ],
    )
    document = snapshot.model_dump(mode="json")

    for one in inconsistencies(snapshot):
        for location in (one.location, one.contradicts or ()):
            value = document
            for key in location:
                value = value[key]
        assert one.message.endswith((".", "meant."))
