"""Snapshots of Slurm clusters, from records of live clusters of two versions."""

from __future__ import annotations

import inspect
import json
import re
import shutil
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path

import pytest

from gpuplan.models.errors import BadInputError, PlannerError
from gpuplan.models.plan.actions import Start
from gpuplan.models.policy.policy import Policy
from gpuplan.models.validation.checks import inconsistencies
from gpuplan.models.validation.damage import survey_damage
from gpuplan.planner.epoch import plan_epoch
from gpuplan.planner.sources.slurm import job_names, job_request, jobs
from gpuplan.planner.sources.slurm import texts as slurm_texts
from gpuplan.planner.sources.slurm.cluster import nodes
from gpuplan.planner.sources.slurm.slurm import read_slurm, read_slurm_files, read_slurm_live
from gpuplan.planner.sources.slurm.texts import SlurmTexts
from gpuplan.planner.sources.slurm.values import number
from tests.support.output.run_command import run_command

RECORDED = Path(__file__).parent / "recorded"
VERSIONS = ("22.05", "24.11")


def texts(version="22.05", **changes):
    """The recorded texts, with changes of the records: `jobs` and `nodes` map a key's value to changes."""
    folder = RECORDED / version
    found = {}
    for key in ("nodes", "jobs"):
        document = json.loads((folder / f"{key}.json").read_text())
        change = changes.get(key, lambda _: {})
        document[key] = [record | change(record) for record in document[key]]
        found[key] = json.dumps(document).encode()
    others = ("partitions", "topology", "reservations", "config", "associations", "qos")
    return SlurmTexts(**found, **{key: changes[key] for key in others if key in changes})


def read(version="22.05", **changes):
    return read_slurm(texts(version, **changes), where=str)


def job(reading, name):
    return reading.snapshot.job_by_name[name]


def pending(name, **record):
    """The reading with a change of one job."""
    return read(jobs=lambda each: record if each["name"] == name else {})


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

    assert [node.name for node in nodes if node.cordoned] == ["gpu04"]


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


def test_tasks_of_an_array_that_run_share_nodes_as_slurm_placed_them():
    found = read()

    held = {name: job(found, name).running.replicas[0] for name in ("14_0", "14_1", "14_2", "14_3")}
    assert [(each.node, [gpu.index for gpu in each.gpus]) for each in held.values()] == [
        ("gpu01", [4, 5]),
        ("gpu01", [6, 7]),
        ("gpu02", [4, 5]),
        ("gpu02", [6, 7]),
    ]


def test_pending_tasks_of_an_array_are_jobs_of_their_own():
    names = [each.name for each in read().snapshot.jobs if each.name.startswith("21")]

    assert names == ["21_0", "21_12", "21_4", "21_8"]


def test_a_dependency_on_an_array_is_one_on_each_of_its_tasks():
    waits = job(read(), "19")

    assert [(each.job, each.kind.value) for each in waits.depends_on] == [
        (f"14_{task}", "succeeded") for task in range(4)
    ]
    assert not waits.held


@pytest.mark.parametrize(
    ("text", "kinds"),
    [
        ("afterany:13", {"13": "completed"}),
        ("after:13+0", {"13": "started"}),
        ("afterok:13(unfulfilled),afterany:18(unfulfilled)", {"13": "succeeded", "18": "completed"}),
        ("afterok:13:18", {"13": "succeeded", "18": "succeeded"}),
    ],
)
def test_kinds_of_dependencies(text, kinds):
    waits = job(pending("after", dependency=text), "19")

    assert {each.job: each.kind.value for each in waits.depends_on} == kinds
    assert waits.depends_on_at_least is None


def test_one_of_several_dependencies_may_suffice():
    assert job(pending("after", dependency="afterok:13?afterok:18"), "19").depends_on_at_least == 1


@pytest.mark.parametrize(
    "text",
    [
        *("singleton", "afternotok:13", "afterok:999", "expand:13", "after:13+5", "after:13,afterok:13"),
        *("afterok:21_*?afterok:13", "afterok:13_7", "aftercorr:14_*"),
    ],
)
def test_a_dependency_without_counterpart_holds_the_job(text):
    found = pending("after", dependency=text)

    assert job(found, "19").held
    assert [note for note in found.notes if note.startswith("job 19: ")]


@pytest.mark.parametrize(
    ("text", "names"),
    [
        ("afterok:21_*(unfulfilled)", ["21_0", "21_12", "21_4", "21_8"]),
        ("afterok:21_4(unfulfilled)", ["21_4"]),
        ("afterok:14_2(unfulfilled)", ["14_2"]),
        ("afterok:23(unfulfilled)", ["23", "24"]),
    ],
)
def test_a_dependency_names_tasks_of_arrays_that_wait_one_task_or_all_parts(text, names):
    found = pending("after", dependency=text)

    assert sorted(each.job for each in job(found, "19").depends_on) == names
    assert not list(inconsistencies(found.snapshot))


def test_a_dependency_on_a_job_that_is_over_holds_the_job():
    changes = {"train": {"job_state": "FAILED"}, "after": {"dependency": "afterok:13(failed)"}}

    found = read(jobs=lambda each: changes.get(each["name"], {}))

    assert job(found, "19").held
    assert not list(inconsistencies(found.snapshot))


@pytest.mark.parametrize("text", ["0,2,4-5,6...", "0,2,4-5,..."])
def test_a_list_of_tasks_that_squeue_cut_off_is_held_and_noted(text):
    found = pending("later", array_task_string=text, partition="low")

    tasks = [each for each in found.snapshot.jobs if each.name.startswith("21_")]
    assert [each.name for each in tasks] == ["21_0", "21_2", "21_4", "21_5"]
    assert all(each.held for each in tasks)
    assert any("SLURM_BITSTR_LEN" in each for each in found.notes)


@pytest.mark.parametrize(("limit", "held"), [(5, 3), (4, 4), (6, 2), (9, 0)])
def test_only_tasks_within_the_limit_of_their_array_may_start(limit, held):
    """Four tasks of array 14 run, and four more wait."""
    waits = {"array_job_id": 14, "array_task_string": f"4-7%{limit}", "partition": "low"}
    waits |= {"state_reason": "Resources", "priority": 1}

    found = pending("later", **waits)

    tasks = [job(found, f"14_{task}") for task in range(4, 8)]
    assert [each.held for each in tasks] == [False] * (4 - held) + [True] * held
    assert any(f"limit is {limit} tasks" in each for each in found.notes) == bool(held)


def test_a_single_task_beyond_the_limit_of_its_array_is_held():
    found = pending("after", array_job_id=14, array_task_id=9, state_reason="JobArrayTaskLimit")

    assert job(found, "14_9").held


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


@pytest.mark.parametrize(
    ("record", "amounts"),
    [
        ({"tres_per_job": "gres:gpu:4", "cpus_per_tres": "gres:gpu:8"}, (4, 32_000, 32_000, 0)),
        ({"tres_per_job": "gres:gpu:2", "memory_per_tres": "gres:gpu:20480"}, (2, 1000, 40_960, 0)),
        ({"minimum_cpus_per_node": 32}, (0, 32_000, 32_000, 0)),
        ({"minimum_tmp_disk_per_node": 10_240}, (0, 1000, 1000, 10_240)),
        ({"tres_req_str": "cpu=1,mem=1000000M,node=1"}, (0, 1000, 1_000_000, 0)),
    ],
)
def test_what_a_node_gives_counts_all_options(record, amounts):
    cleared = {"tres_per_node": "", "tres_per_job": "", "tres_per_task": "", "memory_per_cpu": 1000}
    cleared["tres_req_str"] = "cpu=1,mem=1000M,node=1"

    request = job(pending("held", **(cleared | record)), "18").request

    assert (request.gpus, request.cpu_milli, request.memory_mib, request.disk_mib) == amounts


@pytest.mark.parametrize(
    ("record", "nodes"),
    [
        # Slurm 22.05 estimates two nodes for `-n 4 -c 8`, and may start it on one.
        ({"node_count": 2, "tasks": 4, "tres_req_str": "cpu=32,mem=32000M,node=1"}, 1),
        ({"node_count": 2, "tasks": 8, "tasks_per_node": 4, "tres_req_str": "cpu=8,node=1"}, 2),
        ({"node_count": 3, "max_nodes": 3, "tres_req_str": "cpu=3,node=3"}, 3),
    ],
)
def test_the_number_of_nodes_is_what_the_job_asks_for(record, nodes):
    assert job(pending("held", **record), "18").gang.minimum == nodes


def test_a_preference_is_noted_and_does_not_hold_the_job():
    found = pending("after", prefer="rack2")

    assert not job(found, "19").held
    assert "job 19: its preference for rack2 is not kept" in found.notes


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


RESOURCES = {
    "22.05": {
        "allocated_nodes": [
            {
                "nodename": node,
                "cpus_used": 0,
                "memory_allocated": memory,
                "sockets": {"0": {"cores": {str(core): "allocated" for core in range(cores)}}},
            }
            for node, cores, memory in (("gpu01", 62, 62_000), ("gpu02", 4, 4000))
        ]
    },
    "24.11": {
        "nodes": {
            "allocation": [
                {"name": "gpu02", "cpus": {"count": 62}, "memory": {"allocated": 62_000}},
                {"name": "gpu04", "cpus": {"count": 4}, "memory": {"allocated": 4000}},
            ]
        }
    },
}


@pytest.mark.parametrize(("version", "name"), [("22.05", "13"), ("24.11", "1")])
def test_cpus_and_memory_of_a_running_job_may_differ_by_node(version, name):
    change = {"job_resources": RESOURCES[version], "tres_alloc_str": "cpu=66,mem=66000M,node=2"}
    found = read(version, jobs=lambda each: change if str(number(each["job_id"])) == name else {})

    held = [(each.cpu_milli, each.memory_mib) for each in job(found, name).running.replicas]
    assert held == [(62_000, 62_000), (4000, 4000)]


def test_features_and_excluded_nodes_are_conditions_on_nodes():
    found = read()

    assert [each.key for each in job(found, "19").affinity] == ["slurm/feature.h100", "slurm/feature.rack1"]
    assert [(each.operator.value, each.values) for each in job(found, "18").affinity] == [
        ("NotIn", ("gpu01",))
    ]


@pytest.mark.parametrize(
    ("record", "gpus"),
    [
        ({"tres_per_node": "gres:gpu:2", "node_count": 2}, 2),
        ({"tres_per_job": "gres:gpu:6", "node_count": 2, "max_nodes": 2}, 3),
        ({"tres_per_task": "gres/gpu:1", "tasks": 8, "node_count": 2, "max_nodes": 2}, 4),
        ({"tres_per_node": "", "tres_per_job": ""}, 0),
    ],
)
def test_gpus_by_node_job_or_task(record, gpus):
    cleared = {"tres_per_node": "", "tres_per_job": "", "tres_per_task": ""}
    assert job(pending("held", **(cleared | record)), "18").request.gpus == gpus


def test_a_job_of_several_partitions_may_run_in_any_that_takes_it():
    tiers = "PartitionName=low PriorityTier=1\nPartitionName=high PriorityTier=9"
    both = {"partition": "low,high", "dependency": ""}

    def after(partitions):
        changed = read(partitions=partitions, jobs=lambda each: both if each["name"] == "after" else {})
        return job(changed, "19")

    assert not after(tiers).held
    assert after(tiers).priority == 1
    assert next((each.key, each.values) for each in after(tiers).affinity) == (
        "slurm/partitions",
        ("high,low",),
    )
    assert not after(tiers).node_selector
    only_high = after(tiers.replace("low PriorityTier=1", "low PriorityTier=1 MaxTime=1"))
    assert (only_high.priority, only_high.node_selector) == (9, {"slurm/partition.high": "true"})
    none = after(tiers.replace("PriorityTier", "State=DOWN PriorityTier"))
    assert none.hold_reason == "its partition low is down; its partition high is down"


@pytest.mark.parametrize(
    "shape", [{"shared": "none"}, {"shared": ["none"]}, "PartitionName=low OverSubscribe=EXCLUSIVE"]
)
def test_a_job_with_whole_nodes_shares_them_with_no_other(shape):
    if isinstance(shape, str):
        found = read(partitions=shape, jobs=lambda each: {"dependency": ""})
    else:
        found = pending("after", dependency="", **shape)

    after = job(found, "19")
    assert not after.held
    (avoids,) = after.anti_affinity
    assert (avoids.labels, avoids.level.value) == ({"slurm/any": "true"}, "node")
    assert all(each.labels["slurm/any"] == "true" for each in found.snapshot.jobs)


@pytest.mark.parametrize("gpus", [1, 8])
def test_no_plan_puts_a_job_beside_one_with_whole_nodes(gpus):
    """Two jobs with a GPU each fit on one node, and have to be on two."""
    wants = {"partition": "low", "dependency": "", "features": "h100", "array_task_string": "", "priority": 1}
    wants |= {
        "tres_per_node": f"gres:gpu:{gpus}",
        "tres_per_job": "",
        "node_count": 1,
        "max_nodes": 1,
        "tasks": 1,
    }
    wants |= {
        "cpus": 1,
        "minimum_cpus_per_node": 1,
        "tres_req_str": "cpu=1,mem=1000M,node=1",
        "array_job_id": 0,
    }
    wants |= {"eligible_time": 0, "excluded_nodes": "", "job_state": "PENDING", "nodes": "", "hold": False}
    names = ("after", "later")
    found = read(
        nodes=lambda each: {"state": "idle", "state_flags": []},
        jobs=lambda each: (
            wants | {"shared": "none" if each["name"] == "after" else None, "state_reason": "Priority"}
            if each["name"] in names
            else {"job_state": "COMPLETED"}
        ),
    )
    assert len(found.snapshot.jobs) == 2

    plan = plan_epoch(found.snapshot, Policy(), seed=0, created_at=found.snapshot.taken_at)

    starts = [each.after.replicas[0].node for each in plan.actions if isinstance(each, Start)]
    assert len(starts) == len(set(starts)) == 2


def test_why_a_job_is_held_is_told_in_its_explanation(tmp_path):
    shutil.copytree(RECORDED / "22.05", tmp_path / "saved")
    document = json.loads((tmp_path / "saved" / "jobs.json").read_text())
    document["jobs"] = [each | {"licenses": "matlab:2"} for each in document["jobs"]]
    (tmp_path / "saved" / "jobs.json").write_text(json.dumps(document))
    run_command(["snapshot", "--from", "slurm-files", "--folder", "saved", "-o", "s.json"], folder=tmp_path)

    done = run_command(["explain", "s.json", "18"], folder=tmp_path)

    assert "Held: held, since it asks for licenses" in done.stdout
    assert "release it" not in done.stdout


@pytest.mark.parametrize(
    "record",
    [
        {"tres_per_node": "", "tres_per_job": "gres:gpu:3", "node_count": 2, "max_nodes": 2},
        {"tres_per_socket": "gres:gpu:1"},
        {"tres_per_node": "gres:gpu:a100:1,gres:gpu:h100:1", "tres_per_job": ""},
        {"tres_per_node": "gres:gpu:h100_3g.40gb:1", "tres_per_job": ""},
        {"shared": ["user"]},
        {"features": "[rack1*2&rack2*1]"},
        {"features": "a100*1|h100", "node_count": 2, "max_nodes": 2},
        {"features": "!a100"},
        {"features": "(a100|h100"},
        {"required_nodes": "gpu01", "node_count": 2, "max_nodes": 2},
        {"max_nodes": 4},
        {"tres_per_job": "gres:gpu:16", "tres_per_node": "", "max_nodes": 0},
        {"contiguous": True},
        {"licenses": "matlab:2"},
        {"resv_name": "maintenance"},
        {"burst_buffer": "#BB 1G"},
        {"required_switches": 1},
        {"sockets_per_node": 2},
        {"tres_per_node": "gres:shard:2", "tres_per_job": ""},
        {"tres_per_task": "gres/nvme:1"},
        {"tres_per_node": "gres:nvme:1", "tres_per_job": ""},
        {"tres_per_node": "gres:link:4G", "tres_per_job": ""},
        {
            "tres_per_task": "gres:gpu:1",
            "tasks": 256,
            "tres_per_node": "",
            "tres_per_job": "",
            "max_nodes": 0,
        },
    ],
)
def test_what_cannot_be_expressed_is_held_and_noted(record):
    found = pending("after", dependency="", **record)

    assert job(found, "19").held
    assert [note for note in found.notes if note.startswith("job 19: ")]


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


def test_missing_files_are_named_all_at_once_with_their_commands(tmp_path):
    with pytest.raises(BadInputError) as caught:
        read_slurm_files(tmp_path)

    assert [problem.place for problem in caught.value.problems] == [
        str(tmp_path / "nodes.json"),
        str(tmp_path / "jobs.json"),
    ]


@pytest.mark.parametrize("text", ["slurm_load_jobs error", "[]", '{"sinfo": []}', '{"jobs": 3}'])
def test_what_is_no_output_of_squeue_is_bad_input(tmp_path, text):
    shutil.copytree(RECORDED / "22.05", tmp_path / "folder")
    (tmp_path / "folder" / "jobs.json").write_text(text)

    with pytest.raises(BadInputError) as caught:
        read_slurm_files(tmp_path / "folder")

    assert [problem.place for problem in caught.value.problems] == [str(tmp_path / "folder" / "jobs.json")]


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


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (
            '{"jobs": [], "errors": [{"description": "Unable to contact slurm controller"}]}',
            "Unable to contact",
        ),
        ('{"jobs": [{"job_state": "PENDING"}]}', "expected `job_id`"),
        ('{"jobs": [', "expected Slurm's JSON"),
    ],
)
def test_errors_of_slurm_are_told(text, said):
    with pytest.raises(BadInputError) as caught:
        read_slurm(replace(texts(), jobs=text.encode()), where=str)

    assert said in caught.value.problems[0].message


@pytest.mark.parametrize(
    "record",
    [{"submit_time": {"set": True}}, {"start_time": 10**12}, {"gres_detail": 5}, {"array_task_string": "x"}],
)
def test_a_record_that_slurm_would_not_write_is_bad_input(record):
    with pytest.raises(BadInputError) as caught:
        read(jobs=lambda each: record if each["name"] == "train" else {})

    assert "(job 13) is not what Slurm writes" in caught.value.problems[0].message


def test_a_node_that_slurm_would_not_write_is_bad_input():
    with pytest.raises(BadInputError, match="gpu01"):
        read(nodes=lambda each: {"cpus": 10**9, "effective_cpus": 10**9} if each["name"] == "gpu01" else {})


def test_amounts_beyond_those_of_snapshots_are_noted():
    found = read(nodes=lambda _: {"gres": "gpu:h100:8,link:4G"})

    assert "node gpu01: it has more of link than 1,000,000, which is not counted" in found.notes


def test_a_time_limit_of_more_than_a_century_is_none():
    assert job(pending("after", time_limit=99_999 * 1440), "19").expected_duration is None


def test_a_file_that_cannot_be_read_is_named(monkeypatch):
    def refuse(_):
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(Path, "read_bytes", refuse)

    with pytest.raises(BadInputError) as caught:
        read_slurm_files(RECORDED / "22.05")

    assert caught.value.problems[0].message == "cannot be read: Permission denied."


def test_without_slurm_the_way_to_read_files_is_told(monkeypatch):
    monkeypatch.setattr(slurm_texts.shutil, "which", lambda _: None)

    with pytest.raises(PlannerError, match="slurm-files"):
        read_slurm_live()


def test_commands_are_run_as_on_a_login_node(tmp_path, monkeypatch):
    """Commands that print the records; scontrol knows no --json, as in 22.05."""
    script = '#!/bin/sh\ncase "$*" in {cases}\n*) echo "$0 $*" >&2; exit 1;; esac\n'
    answers = {
        "scontrol": {
            "--all --oneliner show partition": "partition.txt",
            "--oneliner show topology": "topology.txt",
        },
        "sinfo": {"--all --json": "nodes.json"},
        "squeue": {"--all --json": "jobs.json"},
    }
    for command, prints in answers.items():
        cases = "".join(f'\n"{words}") cat {RECORDED / "22.05" / file};;' for words, file in prints.items())
        (tmp_path / command).write_text(script.format(cases=cases))
        (tmp_path / command).chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")

    live = read_slurm_live()

    saved = read_slurm_files(RECORDED / "22.05")
    assert (live.snapshot.cluster, live.snapshot.jobs, live.notes) == (
        saved.snapshot.cluster,
        saved.snapshot.jobs,
        saved.notes,
    )
    (tmp_path / "squeue").write_text("#!/bin/sh\necho slurm_load_jobs error >&2; exit 1\n")
    with pytest.raises(PlannerError, match="`squeue --all --json` failed: slurm_load_jobs error"):
        read_slurm_live()


@pytest.mark.parametrize(
    ("script", "said"),
    [
        ("exec sleep 5", "timed out"),
        ("echo 'slurm_load_node error: Zero Bytes were transmitted' >&2; exit 1", "Zero Bytes"),
        ("echo 'sinfo: warning' >&2; echo '{\"nodes\": ['", "expected Slurm's JSON"),
    ],
)
def test_commands_that_hang_fail_or_stop_midway_are_told(tmp_path, monkeypatch, script, said):
    for command in ("scontrol", "sinfo", "squeue"):
        (tmp_path / command).write_text(f"#!/bin/sh\n{script}\n")
        (tmp_path / command).chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")
    monkeypatch.setattr(slurm_texts, "_TIMEOUT", 0.2 if "sleep" in script else 10)

    with pytest.raises((PlannerError, BadInputError), match=said):
        read_slurm_live()


def test_the_command_writes_a_snapshot_and_says_what_it_did_not_understand(tmp_path):
    folder = str(RECORDED / "22.05")
    done = run_command(
        ["snapshot", "--from", "slurm-files", "--folder", folder, "-o", "s.json"], folder=tmp_path
    )

    assert done.returncode == 0
    assert "Not understood, so held, or left where it is:\n  job 21: its limit is 2 tasks" in done.stderr
    assert "Wrote 6 nodes and 16 jobs to s.json." in done.stderr
    planned = run_command(["plan", "s.json"], folder=tmp_path)
    assert planned.returncode == 0, planned.stderr


def test_the_command_names_each_reason_once(tmp_path):
    shutil.copytree(RECORDED / "22.05", tmp_path / "saved")
    document = json.loads((tmp_path / "saved" / "jobs.json").read_text())
    document["jobs"] = [each | {"contiguous": True} for each in document["jobs"]]
    (tmp_path / "saved" / "jobs.json").write_text(json.dumps(document))

    done = run_command(
        ["snapshot", "--from", "slurm-files", "--folder", "saved", "-o", "s.json"], folder=tmp_path
    )

    assert done.stderr.count("it asks for contiguous nodes") == 1
