"""Snapshots of Slurm clusters, from records of live clusters of two versions."""

from __future__ import annotations

import inspect
import json
import re
import shutil
from pathlib import Path

import pytest

from gpuplan.models.errors import BadInputError, PlannerError
from gpuplan.models.validation.checks import inconsistencies
from gpuplan.models.validation.damage import survey_damage
from gpuplan.planner.sources.slurm import jobs, nodes, slurm
from gpuplan.planner.sources.slurm.slurm import SlurmTexts, read_slurm, read_slurm_files, read_slurm_live
from tests.support.output.run_command import run_command

RECORDED = Path(__file__).parent / "recorded"
VERSIONS = ("22.05", "24.11")
FILES_OF_TEXT = ("partition", "topology")


def texts(version="22.05", **changes):
    """The recorded texts, with changes of the records: `jobs` and `nodes` map a key's value to changes."""
    folder = RECORDED / version
    found = {}
    for key in ("nodes", "jobs"):
        document = json.loads((folder / f"{key}.json").read_text())
        change = changes.get(key, lambda _: {})
        document[key] = [record | change(record) for record in document[key]]
        found[key] = json.dumps(document).encode()
    return SlurmTexts(**found, partitions=changes.get("partitions", ""), topology=changes.get("topology", ""))


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
        ("after:13+5", {"13": "started"}),
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


@pytest.mark.parametrize("text", ["singleton", "afternotok:13", "afterok:999", "expand:13"])
def test_a_dependency_without_counterpart_holds_the_job(text):
    found = pending("after", dependency=text)

    assert job(found, "19").held
    assert [note for note in found.notes if note.startswith("job 19: ")]


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
        ({"tres_per_job": "gres:gpu:6", "node_count": 2}, 3),
        ({"tres_per_task": "gres/gpu:1", "tasks": 8, "node_count": 2}, 4),
        ({"tres_per_node": "", "tres_per_job": ""}, 0),
    ],
)
def test_gpus_by_node_job_or_task(record, gpus):
    cleared = {"tres_per_node": "", "tres_per_job": "", "tres_per_task": ""}
    assert job(pending("held", **(cleared | record)), "18").request.gpus == gpus


@pytest.mark.parametrize(
    "record",
    [
        {"tres_per_node": "", "tres_per_job": "gres:gpu:3", "node_count": 2},
        {"tres_per_socket": "gres:gpu:1"},
        {"tres_per_node": "gres:gpu:a100:1,gres:gpu:h100:1", "tres_per_job": ""},
        {"tres_per_node": "gres:gpu:h100_3g.40gb:1", "tres_per_job": ""},
        {"shared": ["none"]},
        {"features": "a100|h100"},
        {"partition": "low,high"},
        {"required_nodes": "gpu01", "node_count": 2},
    ],
)
def test_what_cannot_be_expressed_is_held_and_noted(record):
    found = pending("after", dependency="", **record)

    assert job(found, "19").held
    assert [note for note in found.notes if note.startswith("job 19: ")]


def test_a_running_job_that_is_not_understood_keeps_its_places_and_is_not_disturbed():
    found = read(jobs=lambda each: {"features": "a100|h100"} if each["name"] == "train" else {})

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


@pytest.mark.parametrize(("module", "listed"), [(jobs, jobs.JOB_FIELDS), (nodes, nodes.NODE_FIELDS)])
def test_every_field_that_is_read_is_listed(module, listed):
    source = inspect.getsource(module)
    read_there = set(re.findall(r'(?:record\.get\(|record\[|reading\.\w+\(|self\.number\()"(\w+)"', source))

    assert read_there
    assert read_there <= set(listed)


def test_without_slurm_the_way_to_read_files_is_told(monkeypatch):
    monkeypatch.setattr(slurm.shutil, "which", lambda _: None)

    with pytest.raises(PlannerError, match="slurm-files"):
        read_slurm_live()


def test_commands_are_run_as_on_a_login_node(tmp_path, monkeypatch):
    """Commands that print the records; scontrol knows no --json, as in 22.05."""
    script = '#!/bin/sh\ncase "$*" in {cases}\n*) echo "$0 $*" >&2; exit 1;; esac\n'
    answers = {
        "scontrol": {f"--oneliner show {each}": f"{each}.txt" for each in FILES_OF_TEXT},
        "sinfo": {"--json": "nodes.json"},
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


def test_the_command_writes_a_snapshot_and_says_what_it_did_not_understand(tmp_path):
    folder = str(RECORDED / "22.05")
    done = run_command(
        ["snapshot", "--from", "slurm-files", "--folder", folder, "-o", "s.json"], folder=tmp_path
    )

    assert done.returncode == 0
    assert "Not understood, so held, or left where it is:\n  job 20: " in done.stderr
    assert "Wrote 6 nodes and 16 jobs to s.json." in done.stderr
    planned = run_command(["plan", "s.json"], folder=tmp_path)
    assert planned.returncode == 0, planned.stderr
