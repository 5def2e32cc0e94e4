"""What docs/simulation.md shows is what gpuplan prints, figures apart, and every option stands there."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

from planner.cli.simulate import simulate_command

ROOT = Path(__file__).parents[2]
TEXT = (ROOT / "docs" / "simulation.md").read_text(encoding="utf-8")
OF_ALL_COMMANDS = {"--time-limit", "--ascii"}


def without_figures(text):
    """Labels and runs: what better plans do not change."""
    lines = [re.sub(r"(≥ )?[\d.,]+\S*( %)?", "#", line).split() for line in text.splitlines()]
    optional = (["of", "lost"], ["of", "coming"], ["resizes"], ["preemptions"], ["migrations"])
    return [" ".join(words) for words in lines if words[:2] not in optional and words[:1] not in optional]


def test_the_command_prints_what_is_shown():
    (shown,) = re.findall(r"^```console\n(.*?)^```$", TEXT, re.MULTILINE | re.DOTALL)
    prompt, expected = shown.split("\n", 1)
    environment = {name: value for name, value in os.environ.items() if name != "COLUMNS"}
    command = [sys.executable, "-m", "planner", *prompt.removeprefix("$ gpuplan ").split()]

    done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, check=False)

    assert without_figures(done.stdout) == without_figures(expected), done.stderr


def test_every_option_of_its_own_is_explained():
    options = {name for each in simulate_command.params for name in each.opts if name.startswith("--")}

    assert [name for name in sorted(options - OF_ALL_COMMANDS) if f"{name}" not in TEXT] == []
