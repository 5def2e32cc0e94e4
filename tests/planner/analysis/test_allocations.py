"""Holdings: what is counted from one snapshot on to the next is what counting everything anew would find."""

from __future__ import annotations

from collections import Counter

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gpuplan.models.cluster import Overcommit, QosClass
from gpuplan.models.eligibility.free_resources import free_resources_by_node
from gpuplan.models.plan.solution import DesiredState
from gpuplan.planner.analysis.allocations import (
    REFERENCE_GPUS,
    Allocations,
    allocations_of,
    gpus_startable,
    update_allocations_from,
)
from gpuplan.planner.analysis.job_changes import PlanChanges
from gpuplan.planner.analysis.metrics import gpus_in_use
from gpuplan.planner.analysis.quota_headroom import usage_by_queue
from gpuplan.planner.warm_start import reuse_equal_nouns
from tests.support.builders import build
from tests.support.seeds import examples

NODES = (*build.cluster(2, gpus=2), build.node("t4", gpus=2, model="T4"), build.node("cpu", gpus=0))


def held(node, slot):
    """A replica on half of a GPU and two cores; on `cpu`, and where there is no such node, on cores alone."""
    return build.replica(node, gpus=(slot % 2,) if node in {"n0", "n1", "t4"} else (), milli=500, cpus=2)


REPLICAS = st.lists(
    st.builds(held, st.sampled_from(["n0", "n1", "t4", "cpu", "gone"]), st.integers(0, 1)), max_size=2
)
"""None at all is a job that waits."""
JOBS = st.dictionaries(st.sampled_from("abcdef"), st.tuples(REPLICAS, st.sampled_from("qr")))
CORDONED = tuple(node.model_copy(update={"cordoned": True}) for node in NODES)
CLUSTERS = st.lists(st.sampled_from((*NODES, *CORDONED)), min_size=1, unique_by=lambda node: node.name)
OVERCOMMITS = st.sampled_from([{}, {QosClass.BURSTABLE: Overcommit(cpus=2)}])


@st.composite
def snapshots(draw):
    """Jobs on some of the nodes, some of which may be gone."""
    jobs = [
        build.job(name, queue=queue, at=replicas or None, qos=QosClass.BURSTABLE)
        for name, (replicas, queue) in draw(JOBS).items()
    ]
    return build.snapshot(
        nodes=draw(CLUSTERS),
        queues=[build.queue("q"), build.queue("r")],
        jobs=jobs,
        overcommit=draw(OVERCOMMITS),
    )


def usage_without_zeros(usage):
    return {queue: counts for queue, held in usage.items() if (counts := +Counter(held))}


def assert_amounts(holdings, snapshot, placements):
    """Each column has what is free of each node, and the totals are those of the figures by placements."""
    free = free_resources_by_node(snapshot.cluster.nodes, placements, snapshot=snapshot)
    for amount in ("whole_gpus", "largest_share", "all_shares", "cpu_milli", "memory_mib", "disk_mib"):
        found = [getattr(free[node.name], amount) for node in snapshot.cluster.nodes]
        assert holdings.column(amount).tolist() == found, amount
    startable = [gpus_startable(node, free[node.name], REFERENCE_GPUS) for node in snapshot.cluster.nodes]
    found = zip(holdings.column("startable").tolist(), holdings.column("in_blocks").tolist(), strict=True)
    assert list(found) == startable
    used, usable = gpus_in_use(snapshot.cluster, placements)
    assert (holdings.total("used"), holdings.total("usable")) == (used.total(), usable.total())


def assert_counted(holdings, snapshot, placements):
    """They are those of the placements, counted by others."""
    assert holdings.free == free_resources_by_node(snapshot.cluster.nodes, placements, snapshot=snapshot)
    assert usage_without_zeros(holdings.usage) == usage_without_zeros(usage_by_queue(snapshot, placements))
    assert_amounts(holdings, snapshot, placements)
    on_nodes = Counter(replica.node for placement in placements for replica in placement.replicas)
    assert Counter({name: len(there) for name, there in holdings.there.items()}) == on_nodes


@pytest.mark.slow
@given(snapshots())
def test_holdings_are_those_of_the_running_jobs(snapshot):
    assert_counted(allocations_of(snapshot), snapshot, snapshot.running_placements)


@pytest.mark.slow
@given(snapshots(), snapshots())
@settings(max_examples=examples(200))
def test_counting_on_from_another_snapshot_finds_the_same(last, live):
    before = repr(allocations_of(last).free)

    known = reuse_equal_nouns(live, last)

    assert Allocations in known.derived
    assert_counted(allocations_of(known), live, live.running_placements)
    assert repr(allocations_of(last).free) == before


def test_nothing_is_counted_on_from_what_was_not_counted():
    snapshot = build.snapshot()
    update_allocations_from(build.snapshot(), snapshot)

    assert Allocations not in snapshot.derived


@pytest.mark.slow
@given(snapshots(), st.data())
def test_a_plan_leaves_what_its_placements_hold(snapshot, data):
    stays = data.draw(st.sets(st.sampled_from([*"abcdef"])))
    placements = tuple(each for each in snapshot.running_placements if each.job in stays)
    placements += tuple(
        build.placement(job.name, held("n0", 0)) for job in snapshot.waiting if job.name in stays
    )

    assert_counted(PlanChanges(snapshot, DesiredState(placements)).allocations_after, snapshot, placements)


def test_what_no_job_holds_cannot_be_left():
    snapshot = build.snapshot(jobs=[build.job("a", at=[held("n0", 0)])])
    twice = [*allocations_of(snapshot).there["n0"]] * 2

    with pytest.raises(ValueError, match="not in list"):
        allocations_of(snapshot).with_changes(snapshot.cluster, twice, ())
