"""What docs/simulation.md shows is what gpuplan prints, and every option stands there."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from gpuplan.planner.cli.commands.simulate import simulate_command
from gpuplan.planner.simulate.run_options import BASELINE_NAMES
from tests.support.output.run_command import run_command

ROOT = Path(__file__).parents[2]
TEXT = (ROOT / "docs" / "simulation.md").read_text(encoding="utf-8")
OF_ALL_COMMANDS = {"--time-limit", "--ascii"}


def without_seconds(text):
    """All but the rows that tell how fast the machine is."""
    return [
        line.split()
        for line in text.splitlines()
        if not re.match(r" +(planning|an epoch|slowest epoch), s ", line)
    ]


@pytest.mark.slow
def test_the_command_prints_what_is_shown_figures_included():
    (shown,) = re.findall(r"^```console\n(.*?)^```$", TEXT, re.MULTILINE | re.DOTALL)
    prompt, expected = shown.split("\n", 1)
    command = prompt.removeprefix("$ gpuplan ").split()

    done = run_command(command, folder=ROOT)

    assert without_seconds(done.stdout) == without_seconds(expected), done.stderr


def test_every_option_of_its_own_is_explained():
    options = {name for each in simulate_command.params for name in each.opts if name.startswith("--")}

    assert [name for name in sorted(options - OF_ALL_COMMANDS) if f"{name}" not in TEXT] == []


def test_every_baseline_has_a_row_in_the_order_in_which_all_are_run():
    _, rest = TEXT.split("## Baselines", 1)
    rows = [line.split("|")[1] for line in rest.split("\n\n- ", 1)[0].splitlines() if line.startswith("| `")]

    assert tuple(name for row in rows for name in re.findall(r"`([a-z-]+)`", row)) == BASELINE_NAMES
