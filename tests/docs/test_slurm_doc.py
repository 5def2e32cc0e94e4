"""docs/slurm.md: its session happens like that on a real Slurm."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from tests.support.output.console_session import replay
from tests.support.output.run_command import run_command

PAGE = Path(__file__).parents[2] / "docs" / "slurm.md"


@pytest.mark.slurm
@pytest.mark.slow
def test_the_session_happens_like_that(slurm, tmp_path):
    def run(words):
        if words[0] == "gpuplan":
            return run_command(words[1:], folder=tmp_path)
        return subprocess.run(words, capture_output=True, text=True, cwd=tmp_path, check=False)

    shown, happened = replay(PAGE, run)
    assert happened == shown
