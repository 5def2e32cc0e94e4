"""What docs/explaining.md shows is printed by gpuplan, and every kind of change is told there."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.support.output.run_command import run_command

ROOT = Path(__file__).parents[2]
TEXT = (ROOT / "docs" / "explaining.md").read_text(encoding="utf-8")
SHOWN = re.findall(r"^```console\n(.*?)^```$", TEXT, re.MULTILINE | re.DOTALL)


@pytest.mark.slow
@pytest.mark.parametrize("text", SHOWN)
def test_commands_print_what_is_shown(text):
    prompt, expected = text.split("\n", 1)
    command = prompt.removeprefix("$ gpuplan ").split()
    done = run_command(command, folder=ROOT)

    assert done.stdout == expected, done.stderr


def test_a_job_a_queue_a_node_and_a_review_are_shown():
    assert len(SHOWN) == 4
