"""Names that a shell or a terminal would act on, from a scheduler to an applied plan: they are only text."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest

from tests.support.output.run_command import run_command

RECORDED = Path(__file__).parents[1] / "sources" / "slurm" / "recorded"

HOSTILE = (
    "$(touch pwned)",
    "`touch pwned`",
    "; touch pwned #",
    "a\ntouch pwned",
    "--auto-approve",
    "../../pwned",
    "\x1b]0;pwned\x07\x1b[31m",
    "{0.__class__}",
    "%s%n",
    "'); DROP TABLE jobs; --",
    "<script>alert('pwned')</script>",
    "-",
)


@pytest.mark.slow
@pytest.mark.parametrize("name", HOSTILE)
def test_names_are_only_text(tmp_path, name):
    folder = tmp_path / "records"
    shutil.copytree(RECORDED / "22.05", folder)
    document = json.loads((folder / "jobs.json").read_text())
    for record in document["jobs"]:
        if record["job_id"] == 18:
            record |= {"state_reason": "Resources", "hold": False, "priority": 100}
        record |= {"name": name, "user_name": name, "account": name}
    (folder / "jobs.json").write_text(json.dumps(document))
    shown = []
    for command in (
        f"snapshot --from slurm-files --folder {folder} -o now.json",
        "simulated create now.json",
        "plan now.json --solver greedy -o plan.json --report plan.html",
        "show plan.json --all",
        "apply plan.json --executor simulated --auto-approve",
        "audit show",
    ):
        done = run_command(command.split(), folder=tmp_path)
        assert done.returncode == 0, done.stderr
        shown.append(f"{done.stdout}{done.stderr}")

    assert {path.name for path in tmp_path.parent.rglob("pwned*")} == set()
    assert "\x1b" not in "".join(shown)
    assert "<script>alert" not in (tmp_path / "plan.html").read_text()
    assert "Apply complete" in shown[4]
