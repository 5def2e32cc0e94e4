"""docs/local.md: its session happens like that on a host with GPUs that are not there."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

from gpuplan.planner.sources.nvml import nvml
from tests.support.nvml.standin import Machine
from tests.support.output.golden import golden_session
from tests.support.output.markdown_blocks import fenced
from tests.support.output.run_command import run_command

PAGE = Path(__file__).parents[2] / "docs" / "local.md"
VARIES = (
    (re.compile(r"\bwaited \d+s\b|\bjust submitted\b"), "AGE"),
    (re.compile(r"(?<=[ +-])\d{1,3}(?:,\d{3})+\b"), "POINTS"),
)


def test_the_session_happens_like_that(tmp_path, monkeypatch):
    Machine(tmp_path / "machine", monkeypatch, gpus=4)
    monkeypatch.setattr(nvml.socket, "gethostname", lambda: "gpu01")
    (shown,) = fenced(PAGE.read_text(), "console")
    happened = ""
    for line in [line for line in shown.splitlines() if line.startswith("$ ")]:
        done = run_command(shlex.split(line.removeprefix("$ gpuplan ")), folder=tmp_path)
        assert done.returncode == 0, done.stderr
        happened += f"{line}\n{done.stderr}{done.stdout}"
    run_command(["local", "cancel", "train"], folder=tmp_path)
    golden_session(PAGE, shown, happened, VARIES)
