"""
What users write for themselves stays with Slurm: no command, environment, path or comment is read or shown.

Each field of a job's record that the planner has no use for holds a canary; none of them is in any output.
"""

from __future__ import annotations

import json
import secrets
import shutil
from pathlib import Path

import pytest

from gpuplan.planner.sources.slurm.job_request import JOB_FIELDS
from tests.support.output.run_command import run_command

RECORDED = Path(__file__).parent / "recorded"

PRIVATE = (
    *("command", "current_working_directory", "standard_input", "standard_output", "standard_error"),
    *("stdin_expanded", "stdout_expanded", "stderr_expanded", "comment", "admin_comment", "system_comment"),
    *("environment", "submit_line", "script", "argv", "container", "container_id", "mail_user", "tres_bind"),
    *("extra", "selinux_context", "std_out", "std_err", "std_in", "work_dir", "wckey"),
)
"""Fields of a job that are the user's own, by the names that versions of Slurm have had for them."""


SHAPES = (
    str,
    lambda text: [f"TOKEN={text}"],
    lambda text: {"TOKEN": text, "set": True},
    lambda text: f"$({text}); rm -rf {text}",
)


def canary():
    return f"canary{secrets.token_hex(6)}"


def with_canaries(record, planted, shape):
    """The record with a canary in each field that is not read, in one of the shapes of Slurm's values."""
    found = dict(record)
    for name in {*record, *PRIVATE} - (set(JOB_FIELDS) - set(PRIVATE)):
        planted[name] = canary()
        # The reader looks for its own marks in comments, which are texts.
        found[name] = planted[name] if name in JOB_FIELDS else shape(planted[name])
    return found


@pytest.fixture(params=["22.05", "24.11"])
def records(request, tmp_path):
    """A folder with saved records, all of them with canaries, and the canaries by field."""
    folder = tmp_path / "records"
    shutil.copytree(RECORDED / request.param, folder)
    document = json.loads((folder / "jobs.json").read_text())
    planted = {}
    document["jobs"] = [
        with_canaries(record, planted.setdefault(number, {}), SHAPES[number % len(SHAPES)])
        for number, record in enumerate(document["jobs"])
    ]
    (folder / "jobs.json").write_text(json.dumps(document))
    return folder, {
        f"{number} {name}": text for number, each in planted.items() for name, text in each.items()
    }


@pytest.mark.slow
def test_nothing_that_is_private_is_in_any_output(records, tmp_path):
    folder, planted = records
    commands = (
        f"-vv snapshot --from slurm-files --folder {folder} -o now.json",
        "-vv validate now.json",
        "simulated create now.json",
        "-vv plan now.json --solver greedy -o plan.json --report plan.html --search-log search.jsonl --all",
        "show plan.json --json",
        "-vv apply plan.json --executor simulated --auto-approve",
        "audit show --json",
        "snapshot --from simulated",
        "-vv run now.json --executor simulated --apply --epochs 1 --solver greedy --metrics-file m.prom",
        "history --json",
    )
    printed = []
    for command in commands:
        done = run_command(command.split(), folder=tmp_path)
        printed.append(f"{done.stdout}{done.stderr}")
        assert done.returncode in (0, 1), done.stderr
    written = [
        path.read_bytes()
        for path in tmp_path.rglob("*")
        if path.is_file() and not path.is_relative_to(folder)
    ]

    assert len(planted) > 50
    assert len(written) > 8
    everything = "".join(printed).encode() + b"".join(written)
    assert {name for name, text in planted.items() if text.encode() in everything} == set()
    # The search would find what is read.
    assert b"slurm/name" in everything


def test_an_error_about_a_record_shows_none_of_it_but_what_is_wrong(records):
    folder, planted = records
    document = json.loads((folder / "jobs.json").read_text())
    for record in document["jobs"]:
        record["array_task_string"] = "[1-many]"
    (folder / "jobs.json").write_text(json.dumps(document))

    done = run_command(["snapshot", "--from", "slurm-files", "--folder", folder], folder=folder)

    assert done.returncode == 24
    assert not [name for name, text in planted.items() if text in done.stderr]


def test_no_private_field_is_read_but_comments_which_may_hold_marks():
    assert set(JOB_FIELDS) & set(PRIVATE) <= {"admin_comment", "comment"}
