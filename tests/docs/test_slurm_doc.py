"""docs/slurm.md: its session happens like that on a real Slurm."""

from __future__ import annotations

import os
import re
import shlex
import subprocess
from pathlib import Path

import pytest

from tests.support.output.run_command import run_command

PAGE = Path(__file__).parents[2] / "docs" / "slurm.md"
SESSION = re.compile(r"(?<=^```console\n)(.*?)(?=^```$)", re.MULTILINE | re.DOTALL)
VARIES = (
    (re.compile(r"\b[0-9a-f]{8}\b"), "ID"),
    (re.compile(r"\b\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ"), "TIME"),
    (re.compile(r"\b(?:waited|ran) \d+s\b|\bjust submitted\b|(?<=makes room for 2; )[^,]*"), "AGE"),
    # A job that ran for less than a second has lost nothing.
    (re.compile(r"loses (?:no work|less than 0\.1 GPU-hours\s+without\s+a\s+checkpoint)"), "LOSS"),
    (re.compile(r"\s+\(less\s+than\s+0\.1\s+GPU-hours\s+lost\)"), ""),
    (re.compile(r"\bin \d+\.\d s"), "in SECONDS"),
    (re.compile(r"(?<=[ +-])\d{1,3}(?:,\d{3})+\b|\b(?<=preemption -)\d+"), "POINTS"),
    (re.compile(r"\s+"), " "),
)


def alike(text):
    """The text without what differs from run to run."""
    for pattern, instead in VARIES:
        text = pattern.sub(instead, text)
    return text


@pytest.mark.slurm
@pytest.mark.slow
def test_the_session_happens_like_that(slurm, tmp_path):
    (shown,) = SESSION.findall(PAGE.read_text())
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
    if os.environ.get("GPUPLAN_REWRITE_GOLDEN"):
        PAGE.write_text(PAGE.read_text().replace(shown, happened))
        return
    assert alike(happened) == alike(shown)
