"""docs/slurm.md: its session happens like that on a real Slurm."""

from __future__ import annotations

import re
import shlex
import subprocess
from pathlib import Path

import pytest

from tests.support.output.golden import golden_session
from tests.support.output.markdown_blocks import fenced
from tests.support.output.run_command import run_command

PAGE = Path(__file__).parents[2] / "docs" / "slurm.md"
VARIES = (
    (re.compile(r"\b(?:waited|ran) \d+s\b|\bjust submitted\b|(?<=makes room for 2; )[^,]*"), "AGE"),
    # A job that ran for less than a second has lost nothing.
    (re.compile(r"loses (?:no work|less than 0\.1 GPU-hours\s+without\s+a\s+checkpoint)"), "LOSS"),
    (re.compile(r"\s+\(less\s+than\s+0\.1\s+GPU-hours\s+lost\)"), ""),
    (re.compile(r"(?<=[ +-])\d{1,3}(?:,\d{3})+\b|\b(?<=preemption -)\d+"), "POINTS"),
)


@pytest.mark.slurm
@pytest.mark.slow
def test_the_session_happens_like_that(slurm, tmp_path):
    (shown,) = fenced(PAGE.read_text(), "console")
    lines = [line for line in shown.splitlines() if line.startswith("$ ")]
    happened = ""
    for line in lines:
        words = shlex.split(line.removeprefix("$ "))
        if words[0] == "gpuplan":
            done = run_command(words[1:], folder=tmp_path)
            said = done.stderr + done.stdout
        else:
            done = subprocess.run(words, capture_output=True, text=True, cwd=tmp_path, check=False)
            said = done.stdout
        assert done.returncode == 0, said + done.stderr
        happened += f"{line}\n{said}"
    golden_session(PAGE, shown, happened, VARIES)
