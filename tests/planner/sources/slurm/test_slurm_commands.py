"""How the outputs of Slurm are got: files, commands, and what is said where they cannot be used."""

from __future__ import annotations

import json
import shutil
from dataclasses import replace
from pathlib import Path

import pytest

from gpuplan.models.errors import BadInputError, PlannerError
from gpuplan.planner.sources.slurm import texts as slurm_texts
from gpuplan.planner.sources.slurm.slurm import read_slurm, read_slurm_files, read_slurm_live
from tests.support.harness.slurm_readings import RECORDED, read, texts
from tests.support.output.run_command import run_command


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


CONFIG = "ClusterName = fake\nAccountingStorageEnforce = {}\n"
NO_JSON = "scontrol: unrecognized option '--json'"
NO_TOPOLOGY = "scontrol: error: No topology information available"
NO_FIELD = "squeue: error: Invalid job format specification: Exclusive"
LOST = "slurm_load_{} error: Unable to contact slurm controller (connect failure)"


def answers(folder, monkeypatch, *, enforce="none", **changes):
    """Stand-ins for the commands of 22.05: by key the text, standard error, and the exit code."""
    recorded = RECORDED / "22.05"
    accounts = RECORDED / "22.05-accounts"
    found = {
        "config": (CONFIG.format(enforce), "", 0),
        "nodes": ("", NO_JSON, 1),
        "sinfo": ((recorded / "nodes.json").read_text(), "", 0),
        "jobs": ((recorded / "jobs.json").read_text(), "", 0),
        "partitions": ((recorded / "partition.txt").read_text(), "", 0),
        "topology": ((recorded / "topology.txt").read_text(), "", 0),
        "reservations": ("No reservations in the system\n", "", 0),
        "associations": ((accounts / "association.txt").read_text(), "", 0),
        "qos": ((accounts / "qos.txt").read_text(), "", 0),
        "exclusive": ("", NO_FIELD, 0),
        **changes,
    }
    commands = {key: words for key, (_, words) in slurm_texts.COMMANDS.items()}
    commands["sinfo"] = ("sinfo", "--all", "--json")
    cases = {}
    for key, (out, err, code) in found.items():
        (folder / f"{key}.out").write_text(out)
        (folder / f"{key}.err").write_text(err)
        program, *words = commands[key]
        case = f'"{" ".join(words)}") cat {folder}/{key}.out; cat {folder}/{key}.err >&2; exit {code};;'
        cases.setdefault(program, []).append(case)
    for program, of_program in cases.items():
        script = '#!/bin/sh\ncase "$*" in\n{}\n*) echo "asked $0 $*" >&2; exit 1;; esac\n'
        (folder / program).write_text(script.format("\n".join(of_program)))
        (folder / program).chmod(0o755)
    monkeypatch.setenv("PATH", f"{folder}:/usr/bin:/bin")


def test_commands_are_run_as_on_a_login_node(tmp_path, monkeypatch):
    """Commands that print the records; scontrol knows no --json, as in 22.05."""
    answers(tmp_path, monkeypatch)
    saved = read_slurm_files(RECORDED / "22.05")

    live = read_slurm_live()

    assert (live.snapshot.cluster, live.snapshot.jobs, live.notes) == (
        saved.snapshot.cluster,
        saved.snapshot.jobs,
        saved.notes,
    )


@pytest.mark.slow
@pytest.mark.parametrize(
    ("key", "lost"),
    [
        ("config", ("", LOST.format("ctl_conf"), 1)),
        ("nodes", ("", LOST.format("node"), 1)),
        ("sinfo", ("", LOST.format("node"), 1)),
        ("jobs", ("", LOST.format("jobs"), 1)),
        ("partitions", ("", LOST.format("partitions"), 1)),
        ("partitions", ("", "", 0)),
        ("reservations", ("", LOST.format("reservations"), 1)),
        ("reservations", ("", "", 0)),
        # As 22.05 and 24.11 do it.
        ("topology", ("", LOST.format("topo"), 0)),
        ("topology", ("", "scontrol: something else", 1)),
        ("exclusive", ("", LOST.format("jobs"), 1)),
        ("associations", ("", "sacctmgr: error: Sending PersistInit msg: Connection refused", 1)),
        ("qos", ("", "sacctmgr: error: Sending PersistInit msg: Connection refused", 1)),
        ("qos", ("", "", 0)),
    ],
)
def test_an_answer_that_is_lost_is_an_error_with_its_command(tmp_path, monkeypatch, key, lost):
    """Without it reserved nodes would be open, and plans would start jobs that Slurm refuses."""
    answers(tmp_path, monkeypatch, enforce="associations,limits", **{key: lost})
    command = " ".join(slurm_texts.COMMANDS.get(key, ("", ("sinfo", "--all", "--json")))[1])

    with pytest.raises(PlannerError) as caught:
        read_slurm_live()

    assert f"{command}`" in str(caught.value)
    assert lost[1] in str(caught.value)


def test_what_a_cluster_does_not_have_is_no_error(tmp_path, monkeypatch):
    """No topology, as 22.05 says it and as 24.11 does; `Exclusive` is a field from 26.05 on."""
    for said in (NO_TOPOLOGY, ""):
        answers(tmp_path, monkeypatch, topology=("", said, 0), exclusive=("", NO_FIELD, 0))
        snapshot = read_slurm_live().snapshot

        assert not any(node.rack for node in snapshot.cluster.nodes)
        assert not snapshot.cluster.reservations


def test_accounts_are_asked_for_only_if_slurm_keeps_their_limits(tmp_path, monkeypatch):
    refused = ("", "You are not running a supported accounting_storage plugin", 1)
    answers(tmp_path, monkeypatch, enforce="associations,qos", associations=refused, qos=refused)

    assert all(queue.quota is None for queue in read_slurm_live().snapshot.queues)
    answers(tmp_path, monkeypatch, enforce="associations,limits,safe", associations=refused)
    with pytest.raises(PlannerError, match="supported accounting_storage plugin"):
        read_slurm_live()


@pytest.mark.parametrize("name", ["reservation.txt", "partition.txt", "config.txt", "association.txt"])
def test_a_file_that_a_failed_command_left_empty_is_bad_input(tmp_path, name):
    shutil.copytree(RECORDED / "22.05-accounts", tmp_path / "folder")
    (tmp_path / "folder" / name).write_text("\n")

    with pytest.raises(BadInputError, match="is empty; expected the output of") as caught:
        read_slurm_files(tmp_path / "folder")

    assert [problem.place for problem in caught.value.problems] == [str(tmp_path / "folder" / name)]


def test_files_of_accounts_may_be_empty_where_slurm_keeps_no_limits(tmp_path):
    shutil.copytree(RECORDED / "22.05", tmp_path / "folder")
    (tmp_path / "folder" / "config.txt").write_text(CONFIG.format("none"))
    (tmp_path / "folder" / "association.txt").write_text("")

    assert read_slurm_files(tmp_path / "folder").snapshot.jobs


@pytest.mark.parametrize(
    ("script", "said"),
    [
        ("exec sleep 5", "timed out"),
        ("echo 'slurm_load_node error: Zero Bytes were transmitted' >&2; exit 1", "Zero Bytes"),
        ("echo 'sinfo: warning' >&2; echo '{\"nodes\": ['", "expected Slurm's JSON"),
    ],
)
def test_commands_that_hang_fail_or_stop_midway_are_told(tmp_path, monkeypatch, script, said):
    for command in ("scontrol", "sinfo", "squeue", "sacctmgr"):
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
