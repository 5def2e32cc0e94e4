"""Commands of Slurm: their environment, and how many jobs they ask for."""

from __future__ import annotations

import pytest

from gpuplan.planner.executors.interface import ExecutionError, UnreachableError
from gpuplan.planner.executors.slurm import commands
from gpuplan.planner.executors.slurm.commands import call, jobs_table


def row(id_, array="", task="N/A"):
    fields = (id_, array or id_, task, "PENDING", "JobHeldUser", "", "", "ann", "(null)", "0", "1", "1", "")
    return "\x1f".join(fields) + "\x1e\n"


@pytest.fixture
def asked(monkeypatch):
    found = []

    def squeue(*words):
        found.append(words)
        only = [word.removeprefix("--jobs=") for word in words if word.startswith("--jobs=")]
        if only == ["9"]:
            raise ExecutionError("`squeue` was refused: slurm_load_jobs error: Invalid job id specified")
        if only == ["5_1"]:
            return row("5", task="1") + row("6", "5", "2")
        return "".join(row(job) for job in only or ("7", "8"))

    monkeypatch.setattr(commands, "call", squeue)
    return found


def test_few_jobs_are_asked_for_one_by_one(asked):
    assert jobs_table("7", "8", "9").keys() == {"7", "8"}
    assert len(asked) == 3


def test_of_a_job_array_only_the_task_asked_for_is_found(asked):
    assert jobs_table("5_1").keys() == {"5_1"}


def test_many_jobs_are_asked_for_at_once(asked):
    assert jobs_table(*map(str, range(21))).keys() == {"7", "8"}
    assert jobs_table().keys() == {"7", "8"}
    assert len(asked) == 2


def test_variables_of_the_operator_change_no_command(monkeypatch):
    for name in ("SQUEUE_USERS", "SINFO_PARTITION", "SCANCEL_INTERACTIVE", "SLURM_CONF"):
        monkeypatch.setenv(name, "set")
    found = dict(each.split("=", 1) for each in call("env", "-0").split("\0") if each)
    assert {name for name, value in found.items() if value == "set"} == {"SLURM_CONF"}
    assert found["SLURM_BITSTR_LEN"] == "0"


def said_by(tmp_path, text):
    """A command of Slurm that says this and fails."""
    path = tmp_path / "scontrol"
    path.write_text(f"#!/bin/sh\necho '{text}' >&2\nexit 1\n", encoding="utf-8")
    path.chmod(0o755)
    return str(path)


@pytest.mark.parametrize(
    ("text", "kind", "words"),
    [
        (
            "fatal: Could not establish a configuration source",
            ExecutionError,
            ["show config` failed", "doctor"],
        ),
        ("Unable to contact slurm controller", UnreachableError, ["show config` reached no", "doctor"]),
        (
            "slurm_update error: Access/permission denied",
            ExecutionError,
            ["was refused", "an operator of Slurm"],
        ),
        ("slurm_update error: Invalid node name", ExecutionError, ["show config` failed: slurm_update"]),
    ],
)
def test_a_command_that_fails_is_told_as_a_whole_with_the_next_step(tmp_path, text, kind, words):
    with pytest.raises(kind) as failed:
        call(said_by(tmp_path, text), "show", "config")

    assert [word for word in words if word not in str(failed.value)] == []
