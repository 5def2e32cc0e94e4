"""Synthetic snapshots: what is drawn from a profile is legal, plausible, and as the profile says."""

from __future__ import annotations

from collections import Counter
from datetime import timedelta

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gpuplan.models.base import canonical_json
from gpuplan.models.eligibility.free_resources import free_resources_by_node
from gpuplan.models.eligibility.node_eligibility import ineligibility
from gpuplan.models.policy.policy import Policy
from gpuplan.models.validation.checks import inconsistencies
from gpuplan.models.verifier.verify import verify
from gpuplan.planner.sources.synthetic import generate_snapshot
from tests.support.builders.build import NOW
from tests.support.builders.workload_profiles import SMALL, profile

seeds = st.integers(0, 2**32)


def running(snapshot):
    return [one for one in snapshot.jobs if one.running]


def held_milli(jobs):
    return sum(one.request.total_gpu_milli * one.gang.maximum for one in jobs)


@pytest.mark.slow
@settings(max_examples=30)
@given(seed=seeds)
def test_what_runs_breaks_no_rule(seed):
    snapshot = generate_snapshot(profile(), seed=seed)

    assert not list(inconsistencies(snapshot))
    assert not verify(snapshot, Policy(), snapshot.running_placements).violations
    free = free_resources_by_node(snapshot.cluster.nodes, snapshot.running_placements).values()
    assert min(min(left.cpu_milli, left.memory_mib, *left.gpu_milli, 0) for left in free) == 0
    by_name = snapshot.cluster.node_by_name
    for one in running(snapshot):
        assert {ineligibility(one, by_name[replica.node]) for replica in one.running.replicas} == {None}


@settings(max_examples=10)
@given(seed=seeds)
def test_the_seed_decides_nothing_about_how_much_there_is(seed):
    snapshot = generate_snapshot(profile(), seed=seed)

    shapes = Counter((one.request.model_dump_json(), one.gang.maximum) for one in snapshot.jobs)
    assert sorted(shapes.values()) == [3, 4, 20, 20]
    assert Counter(one.gpu_model for one in snapshot.cluster.nodes) == {"B": 5, "O": 3, None: 1}


@settings(max_examples=10)
@given(seed=seeds)
def test_running_jobs_hold_the_told_part_of_the_gpus_and_little_more(seed):
    unlimited = [{"queue": {"name": "a"}, "share": 1}]
    jobs = [{"count": 60, "request": {"gpus": 1}}, {"count": 20, "request": {"gpu_milli": 400}}]

    snapshot = generate_snapshot(profile(queues=unlimited, jobs=jobs), seed=seed)

    assert 23_000 <= held_milli(running(snapshot)) < 24_000


@settings(max_examples=20)
@given(seed=seeds)
def test_times_are_those_of_jobs_that_still_run_or_still_wait(seed):
    snapshot = generate_snapshot(profile(), seed=seed)

    for one in snapshot.jobs:
        assert 120 <= one.expected_duration <= 7200
        if one.running:
            started = one.running.started_at
            assert started < snapshot.taken_at < started + timedelta(seconds=one.expected_duration)
            assert timedelta(0) <= started - one.submitted_at <= timedelta(minutes=30)
        else:
            assert timedelta(0) <= snapshot.taken_at - one.submitted_at <= timedelta(hours=6)


def test_one_seed_gives_one_snapshot_and_another_seed_another():
    first, again, other = (
        canonical_json(generate_snapshot(profile(), seed=seed).document()) for seed in (1, 1, 2)
    )

    assert first == again
    assert first != other


def test_jobs_are_numbered_as_they_were_submitted():
    jobs = generate_snapshot(profile(), seed=3).jobs

    numbered = sorted(jobs, key=lambda one: one.name.rpartition("-")[2])
    assert [one.submitted_at for one in numbered] == sorted(one.submitted_at for one in jobs)
    assert all(one.name.startswith(f"{one.queue}-") for one in jobs)


def test_a_rack_holds_nodes_of_one_shape_and_a_zone_so_many_racks():
    places = {
        one.name: (one.region, one.zone, one.rack)
        for one in generate_snapshot(profile(), seed=0).cluster.nodes
    }

    assert places == {
        "big-1": ("north", "z1", "r001"),
        "big-2": ("north", "z1", "r001"),
        "big-3": ("north", "z1", "r002"),
        "big-4": ("north", "z1", "r002"),
        "big-5": ("north", "z2", "r003"),
        "old-1": ("north", "z2", "r004"),
        "old-2": ("north", "z2", "r004"),
        "old-3": ("north", "z3", "r005"),
        "cpu-1": ("north", "z3", "r006"),
    }


def test_a_shape_that_names_queues_comes_from_these_alone():
    gangs = [one for one in generate_snapshot(profile(), seed=5).jobs if one.gang.maximum > 1]

    assert {one.queue for one in gangs} == {"a"}


def test_no_job_asks_for_a_model_that_has_only_small_nodes():
    only_old = [{"share": 1, "gpu_models": ["O"]}]

    jobs = generate_snapshot(profile(model_choices=only_old), seed=0).jobs

    assert all(bool(one.gpu_models) == (0 < one.request.total_gpu_milli <= 1000) for one in jobs)


def test_priorities_and_users_are_those_of_the_queue():
    many = profile(jobs=[{"count": 300, "request": {"cpus": 1}}], running={"gpu_ratio": 0})
    jobs = generate_snapshot(many, seed=0).jobs

    from_b = [one for one in jobs if one.queue == "b"]
    assert 40 < len(from_b) < 110  # a quarter of 300
    assert {(one.priority, one.preemptible) for one in from_b} == {(4, False), (1, True)}
    assert {one.user for one in from_b} == {"b-u1", "b-u2", "b-u3"}
    assert {(one.priority, one.user) for one in jobs if one.queue == "a"} == {(0, "a-u1")}


def test_jobs_that_ended_leave_holes():
    """Without them first fit leaves no room for one GPU on any node before the last one it used."""
    crowd = {
        "jobs": [{"count": 90, "request": {"gpus": 1}}],
        "model_choices": [{"share": 1}],
        "queues": [{"queue": {"name": "a"}, "share": 1}],
        "nodes": SMALL["nodes"][:1],
    }

    def half_full_nodes(ended_ratio):
        snapshot = generate_snapshot(
            profile(**crowd, running={"gpu_ratio": 0.5, "ended_ratio": ended_ratio}), seed=0
        )
        used = Counter(replica.node for one in running(snapshot) for replica in one.running.replicas)
        return sum(count < 8 for count in used.values())

    assert half_full_nodes(0.0) <= 1
    assert half_full_nodes(0.5) > 1


def test_jobs_are_as_their_shape_says():
    changes = {
        "datasets": [{"name": "images", "elsewhere": 2}],
        "jobs": [
            {
                "count": 5,
                "replicas": {"min": 2, "max": 6},
                "request": {"gpus": 1},
                "gpu_models": {"B": 1, "O": 0.5},
                "locality": {"preferred": "rack"},
                "datasets": ["images"],
                "workload_class": "training",
                "qos": "burstable",
                "labels": {"app": "x"},
            }
        ],
    }

    snapshot = generate_snapshot(profile(**changes), seed=2)

    assert {(one.gang.minimum, one.gang.maximum) for one in snapshot.jobs} == {(2, 6)}
    assert {one.speed_milli("O") for one in snapshot.jobs} == {500}
    assert {one.locality.preferred for one in snapshot.jobs} == {"rack"}
    assert {(one.datasets, one.workload_class, one.qos) for one in snapshot.jobs} == {
        (("images",), "training", "burstable")
    }
    assert {len(one.running.replicas) for one in running(snapshot)} <= {2, 3, 4, 5, 6}
    assert running(snapshot)


@pytest.mark.parametrize(
    "wish",
    [
        {"locality": {"required": "rack"}},
        {"spread": {"level": "node"}},
        {"anti_affinity": [{"labels": {"app": "x"}}]},
    ],
)
def test_jobs_that_care_about_domains_all_wait(wish):
    jobs = [{"count": 5, "replicas": 2, "request": {"gpus": 1}, **wish}]

    assert not running(generate_snapshot(profile(jobs=jobs), seed=2))


def test_checkpoints_are_younger_than_their_jobs_and_than_the_oldest():
    told = {"gpu_ratio": 0.8, "oldest_checkpoint": "20m"}
    jobs = running(generate_snapshot(profile(running=told), seed=4))
    saved = [one.running for one in jobs if one.running.last_checkpoint_at]

    assert saved
    assert all(one.started_at < one.last_checkpoint_at <= NOW for one in saved)
    assert min(one.last_checkpoint_at for one in saved) >= NOW - timedelta(minutes=20)
    assert {one.running.last_checkpoint_at for one in running(generate_snapshot(profile(), seed=4))} == {None}


def test_the_last_nodes_of_a_shape_are_to_be_drained_and_jobs_run_there():
    nodes = [SMALL["nodes"][0] | {"draining": 4}]
    snapshot = generate_snapshot(profile(nodes=nodes, model_choices=[{"share": 1}]), seed=0)

    draining = {one.name for one in snapshot.cluster.nodes if one.drain}
    assert draining == {"big-2", "big-3", "big-4", "big-5"}
    assert draining & {replica.node for one in running(snapshot) for replica in one.running.replicas}


def test_nodes_with_a_region_of_their_own_stand_there():
    abroad = SMALL["nodes"][2]["node"] | {"region": "south"}

    snapshot = generate_snapshot(profile(nodes=[*SMALL["nodes"][:2], {"count": 1, "node": abroad}]), seed=0)

    assert {one.name: one.region for one in snapshot.cluster.nodes}["cpu-1"] == "south"
    assert {one.region for one in snapshot.cluster.nodes} == {"north", "south"}


def test_what_is_said_of_the_cluster_is_in_the_snapshot():
    told = {
        "pools": [{"name": "cloud", "max": 3, "template": {"name": "cloud", "cpus": 8}}],
        "overcommit": {"burstable": {"cpus": 2}},
        "rack_power": [{"rack": "r001", "zone": "z1", "region": "north", "watts": 9000}],
    }

    cluster = generate_snapshot(profile(**told), seed=0).cluster

    assert [pool.maximum for pool in cluster.pools] == [3]
    assert cluster.overcommit["burstable"].cpu_milli == 2000
    assert [cap.watts for cap in cluster.rack_power] == [9000]


def test_a_queue_without_quota_left_starts_nothing():
    queues = [{"queue": {"name": "a", "quota": {"nominal": 1}}, "share": 1}]
    jobs = [{"count": 9, "request": {"gpu_milli": 400}}]

    snapshot = generate_snapshot(profile(queues=queues, jobs=jobs), seed=0)

    assert len(running(snapshot)) == 2
