"""What the README shows is what gpuplan prints."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

from gpuplan.models.snapshot import Snapshot
from gpuplan.planner.cli import cli
from tests.support.output.markdown_blocks import fenced
from tests.support.output.run_command import run_command

ROOT = Path(__file__).parents[2]
README = (ROOT / "README.md").read_text(encoding="utf-8")


def run(command, folder):
    words = [word.replace("scenarios/", f"{ROOT}/scenarios/") for word in command.split()[1:]]
    done = run_command(words, folder=folder)
    assert done.returncode == 0, done.stderr
    return done.stdout.replace(f"{ROOT}/", "")


def without_times(text):
    return re.sub(r"in \d+\.\d s", "in # s", text)


def test_quickstart_prints_what_the_readme_shows(tmp_path):
    prompt, expected = fenced(README, "console")[0].split("\n", 1)

    assert without_times(run(prompt.removeprefix("$ "), tmp_path)) == without_times(expected)


@pytest.mark.slow
def test_commands_after_the_quickstart_work_in_that_order(tmp_path):
    run(fenced(README, "console")[0].split("\n", 1)[0].removeprefix("$ "), tmp_path)
    commands = re.search(r"look at what was done:\n\n```\n(.*?)```", README, re.DOTALL)[1].splitlines()

    assert len(commands) == 5
    for line in commands[:-1]:
        command = line.split("#")[0].strip()
        run(f"{command} --auto-approve" if "apply" in command else command, tmp_path)
    gpuplan = f"'{sys.executable}' -m gpuplan"
    pipe = commands[-1].split("#")[0].replace("gpuplan", gpuplan)
    done = subprocess.run(["bash", "-c", pipe], cwd=tmp_path, capture_output=True, text=True, check=False)
    assert "No changes" in done.stdout, done.stderr


def test_example_snapshot_is_valid():
    snapshot = Snapshot.model_validate(yaml.safe_load(fenced(README, "yaml")[0]))

    assert [job.name for job in snapshot.jobs] == ["train"]


@pytest.mark.parametrize(
    "page", [*sorted((ROOT / "docs").glob("**/*.md")), ROOT / "README.md", ROOT / "CONTRIBUTING.md"]
)
def test_every_link_leads_somewhere(page):
    for target in re.findall(r"\]\(([^)#]+)(?:#[^)]*)?\)", page.read_text(encoding="utf-8")):
        if not target.startswith("http"):
            assert (page.parent / target).exists(), target


def test_every_command_of_the_table_exists():
    named = set(re.findall(r"^\| `gpuplan ([\w-]+)", README, re.MULTILINE))

    assert named == set(cli.commands)
