"""Snapshots of Slurm clusters, from records of live clusters of two versions."""

from __future__ import annotations

import inspect
import re
from dataclasses import replace
from datetime import UTC, datetime

import pytest

from gpuplan.models.validation.checks import inconsistencies
from gpuplan.models.validation.damage import survey_damage
from gpuplan.planner.sources.slurm import job_names, job_request, jobs
from gpuplan.planner.sources.slurm.cluster import nodes
from gpuplan.planner.sources.slurm.slurm import read_slurm, read_slurm_files
from gpuplan.planner.sources.slurm.values import number
from tests.support.harness.slurm_readings import RECORDED, VERSIONS, job, pending, read, texts


@pytest.mark.parametrize("version", VERSIONS)
def test_a_recorded_cluster_is_a_valid_snapshot_without_damage(version):
    snapshot = read_slurm_files(RECORDED / version).snapshot

    assert not list(inconsistencies(snapshot))
    assert not survey_damage(snapshot).losses
    assert snapshot.cluster.name == "fake"
    assert snapshot.canonical() == snapshot


@pytest.mark.parametrize("version", VERSIONS)
def test_nodes_have_their_gpus_states_and_labels(version):
    nodes = read(version).snapshot.cluster.node_by_name

    assert {name: (node.gpu_model, node.gpu_count) for name, node in nodes.items()} == {
        **{f"gpu0{number}": ("h100", 8) for number in range(1, 5)},
        **{f"cloud0{number}": ("a100", 8) for number in range(1, 3)},
    }
    assert (nodes["gpu01"].cpu_milli, nodes["gpu01"].memory_mib) == (64_000, 1_000_000)
    assert nodes["gpu01"].ready
    assert not nodes["cloud01"].ready
    assert {"slurm/feature.rack1", "slurm/partition.low", "slurm/partition.high"} < set(nodes["gpu01"].labels)


def test_a_recorded_cluster_of_26_05():
    found = read_slurm_files(RECORDED / "26.05")

    assert not list(inconsistencies(found.snapshot))
    assert not survey_damage(found.snapshot).losses
    assert [pool.names for pool in found.snapshot.cluster.pools] == [("cloud01", "cloud02")]
    (maintenance,) = found.snapshot.cluster.reservations
    assert (maintenance.cron, maintenance.nodes) == ("0 22 * * *", ("gpu03",))
    gang = job(found, "1")
    assert [(each.node, [held.index for held in each.gpus]) for each in gang.running.replicas] == [
        ("gpu01", [0, 1, 2, 3]),
        ("gpu02", [0, 1, 2, 3]),
    ]
    assert (gang.priority, job(found, "5").depends_on[0].job) == (10, "1")
    assert "slurm/reservation.maint1" in job(found, "6").labels
    # Its JSON tells no --exclusive.
    assert {each.name for each in found.snapshot.jobs if each.anti_affinity} == {"3", "10"}
    assert "--exclusive" in job(found, "11").hold_reason


def test_a_drained_node_is_cordoned():
    nodes = read().snapshot.cluster.nodes

    assert [(node.name, node.state_reason) for node in nodes if node.cordoned] == [("gpu04", "fans")]


def test_the_reason_of_a_node_that_takes_jobs_is_none():
    """Slurm may keep an old reason; what is no line of text is made one."""
    drained = read(
        nodes=lambda _: {"state": "drain", "state_flags": [], "reason": "fans\tand\n\x07disk " * 40}
    )
    open_again = read(nodes=lambda _: {"state": "idle", "state_flags": [], "reason": "fans"})

    texts = {node.state_reason for node in drained.snapshot.cluster.nodes}
    assert {(text[:15], len(text)) for text in texts} == {("fans and ?disk ", 253)}
    assert {node.state_reason for node in open_again.snapshot.cluster.nodes} == {""}


def test_racks_are_leaf_switches():
    snapshot = read_slurm_files(RECORDED / "22.05").snapshot

    assert [node.rack for node in snapshot.cluster.nodes] == ["leafc"] * 2 + ["leaf1"] * 2 + ["leaf2"] * 2


def test_priorities_are_the_tiers_of_partitions():
    found = read_slurm_files(RECORDED / "22.05")

    assert job(found, "13").priority == 10
    assert job(found, "14_0").priority == 1


@pytest.mark.parametrize(("version", "name", "nodes"), [("22.05", "13", "12"), ("24.11", "1", "24")])
def test_a_running_gang_holds_its_gpus_by_index(version, name, nodes):
    gang = job(read(version), name)

    assert [replica.node for replica in gang.running.replicas] == [f"gpu0{number}" for number in nodes]
    assert all([held.index for held in replica.gpus] == [0, 1, 2, 3] for replica in gang.running.replicas)
    assert (gang.request.gpus, gang.gang.minimum, gang.gang.maximum) == (4, 2, 2)
    assert gang.expected_duration == 3600
    assert gang.preemptible


def test_of_a_completing_job_as_many_gpus_are_held_as_it_asked_for():
    """Slurm does not name them any more."""
    found = read(
        jobs=lambda each: {"gres_detail": [], "job_state": "COMPLETING"} if each["name"] == "train" else {}
    )

    assert {node.name for node in found.snapshot.cluster.nodes if node.cordoned} == {"gpu04"}
    train = next(each for each in found.snapshot.jobs if each.labels.get("slurm/name") == "train")
    assert all(len(each.gpus) == train.request.gpus for each in train.running.replicas)


def test_no_job_starts_where_a_job_holds_more_gpus_than_slurm_leaves_unnamed():
    found = read(
        jobs=lambda each: (
            {"gres_detail": [], "job_state": "COMPLETING", "tres_per_node": "gres:gpu:100"}
            if each["name"] == "train"
            else {}
        )
    )

    assert {node.name for node in found.snapshot.cluster.nodes if node.cordoned} == {
        "gpu01",
        "gpu02",
        "gpu04",
    }


def test_names_that_a_snapshot_does_not_allow_are_written_otherwise_and_noted():
    odd = {"account": "my account!", "user_name": "LAB\\anna", "features": "big"}

    found = pending("after", **odd)

    after = job(found, "19")
    assert (after.queue, after.user) == ("my-account-c6935e", "LAB-anna-" + after.user[-6:])
    assert [each for each in found.notes if each.startswith("job 19: its account or partition 'my account!'")]
    assert not after.held
    assert not list(inconsistencies(found.snapshot))


@pytest.mark.parametrize(
    "change",
    [
        {"active_features": "a_,b c", "gres": "gpu:h 100:8"},
        {"partitions": ["low_"], "gres": "gpu:h100_:8,bandwidth:my disk:3"},
    ],
)
def test_odd_names_of_features_and_gres_do_not_stop_the_reading(change):
    assert len(read(nodes=lambda _: change).snapshot.cluster.nodes) == 6


@pytest.mark.parametrize("name", ["a\tb", "ünï " * 100, "\ud800"])
def test_any_job_name_is_a_label(name):
    found = read(jobs=lambda each: {"name": name} if each["name"] == "after" else {})

    assert job(found, "19").labels["slurm/name"]


def test_bytes_that_are_not_utf_8_do_not_stop_the_reading():
    recorded = texts()
    odd = replace(recorded, jobs=recorded.jobs.replace(b'"name": "after"', b'"name": "ol\xe9"'))

    assert job(read_slurm(odd, where=str), "19").labels["slurm/name"] == "ol\N{REPLACEMENT CHARACTER}"


def test_a_job_of_priority_0_or_of_a_closed_partition_is_held():
    down = read(partitions="PartitionName=low PriorityTier=1 State=DOWN")

    assert job(pending("after", priority=0), "19").held
    assert job(down, "19").held
    assert "job 19: its partition low is down" in down.notes
    assert not job(down, "13").held


def test_tiers_above_the_highest_priority_keep_their_order():
    found = read(
        partitions="PartitionName=low PriorityTier=20000\nPartitionName=high PriorityTier=30000 State=UP"
    )

    assert (job(found, "14_0").priority, job(found, "13").priority) == (0, 1)
    assert any(each.startswith("partitions: ") for each in found.notes)


def test_a_job_that_started_after_the_last_submission_is_not_later_than_the_snapshot():
    later = 1_900_000_000
    found = read(jobs=lambda each: {"start_time": later} if each["name"] == "train" else {})

    assert found.snapshot.taken_at.timestamp() == later
    assert not list(inconsistencies(found.snapshot))


def test_a_clock_behind_that_of_the_controller_does_not_matter():
    behind = replace(texts(), taken_at=datetime(2000, 1, 1, tzinfo=UTC))

    assert not list(inconsistencies(read_slurm(behind, where=str).snapshot))


def test_a_gpu_that_two_jobs_hold_is_held_once_and_noted():
    found = read(
        jobs=lambda each: (
            {"gres_detail": ["gpu:h100:2(IDX:0-1)"], "job_state": "SUSPENDED"}
            if number(each.get("array_task_id")) == 0 and each["name"] != "train"
            else {}
        )
    )

    assert any("is held by job 13 too" in each for each in found.notes)
    assert not list(inconsistencies(found.snapshot))
    assert not job(found, "14_0").preemptible


def test_a_running_job_that_lost_a_node_has_the_nodes_that_it_holds():
    found = read(
        jobs=lambda each: (
            {"nodes": "gpu01", "node_count": 2, "job_state": "COMPLETING"} if each["name"] == "train" else {}
        )
    )

    assert job(found, "13").gang.minimum == 1
    assert not job(found, "13").preemptible
    assert not survey_damage(found.snapshot).losses


def test_a_running_job_on_a_node_that_is_not_ready_stays_there():
    found = read(nodes=lambda each: {"state": "down"} if each["name"] == "gpu01" else {})

    node = found.snapshot.cluster.node_by_name["gpu01"]
    assert (node.ready, node.cordoned) == (True, True)
    assert any(each.startswith("node gpu01: it is not ready") for each in found.notes)
    assert not survey_damage(found.snapshot).losses


@pytest.mark.parametrize("record", [{"shared": "user"}, {"tres_per_node": "gres:shard:2"}])
def test_no_job_starts_beside_one_that_has_its_nodes_alone_or_shares_gpus(record):
    found = read(jobs=lambda each: record if each["name"] == "train" else {})

    assert {node.name for node in found.snapshot.cluster.nodes if node.cordoned} == {
        "gpu01",
        "gpu02",
        "gpu04",
    }
    assert not job(found, "13").preemptible


def test_a_running_job_that_is_not_understood_keeps_its_places_and_is_not_disturbed():
    found = read(jobs=lambda each: {"features": "!a100"} if each["name"] == "train" else {})

    gang = job(found, "13")
    assert not gang.preemptible
    assert len(gang.running.replicas) == 2


def test_parts_of_a_heterogeneous_job_start_together():
    found = read()

    assert {job(found, name).co_start for name in ("23", "24")} == {"het-23"}


def test_a_hold_and_a_begin_time_are_kept():
    found = read()

    assert job(found, "18").held
    later = job(found, "21_0")
    assert (later.not_before - later.submitted_at).total_seconds() == pytest.approx(3600, abs=1)


def test_jobs_that_are_over_are_left_out():
    over = (
        read(jobs=lambda _: {"job_state": "COMPLETED"}),
        read("24.11", jobs=lambda _: {"job_state": ["FAILED"]}),
    )

    assert [each.snapshot.jobs for each in over] == [(), ()]


def test_a_node_of_several_gpu_types_is_cordoned_and_noted():
    found = read(nodes=lambda each: {"gres": "gpu:h100:4,gpu:a100:2"} if each["name"] == "gpu03" else {})

    node = found.snapshot.cluster.node_by_name["gpu03"]
    assert (node.cordoned, node.gpu_count) == (True, 6)
    assert "node gpu03: its GPUs are of 2 types: a100, h100" in found.notes


@pytest.mark.parametrize(
    ("state", "ready", "cordoned"),
    [
        ("down", False, False),
        (["IDLE", "NOT_RESPONDING"], False, False),
        (["MIXED", "DRAIN"], True, True),
        (["IDLE", "MAINTENANCE"], True, True),
        (["ALLOCATED", "PLANNED"], True, False),
    ],
)
def test_states_of_nodes(state, ready, cordoned):
    node = read(nodes=lambda _: {"state": state, "state_flags": []}).snapshot.cluster.nodes[0]

    assert (node.ready, node.cordoned) == (ready, cordoned)


@pytest.mark.parametrize(
    ("module", "listed"),
    [
        (job_names, job_request.JOB_FIELDS),
        (jobs, job_request.JOB_FIELDS),
        (job_request, job_request.JOB_FIELDS),
        (nodes, nodes.NODE_FIELDS),
    ],
)
def test_every_field_that_is_read_is_listed(module, listed):
    source = inspect.getsource(module)
    read_there = set(re.findall(r'(?:record\.get\(|record\[|reading\.\w+\(|self\.number\()"(\w+)"', source))

    assert read_there
    assert read_there <= set(listed)


def test_requests_are_known_by_every_field_that_they_depend_on():
    parts = (job_request._request, job_request._gpus, job_request._models)
    source = "".join(map(inspect.getsource, parts))
    read_there = set(re.findall(r'"((?:cpus|memory|minimum|tasks|tres)_?\w*)"', source))

    assert read_there - {"memory_mib"} == set(job_request._ASKED)


def test_amounts_beyond_those_of_snapshots_are_noted():
    found = read(nodes=lambda _: {"gres": "gpu:h100:8,link:4G"})

    assert "node gpu01: it has more of link than 1,000,000, which is not counted" in found.notes


def test_a_time_limit_of_more_than_a_century_is_none():
    assert job(pending("after", time_limit=99_999 * 1440), "19").expected_duration is None
