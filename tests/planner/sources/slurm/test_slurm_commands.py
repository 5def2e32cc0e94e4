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
