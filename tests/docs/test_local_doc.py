"""docs/local.md: its session happens like that on a host with GPUs that are not there."""

from __future__ import annotations

import os
import re
import shlex
from pathlib import Path

from gpuplan.planner.sources.nvml import nvml
from tests.support.nvml.standin import Machine
from tests.support.output.run_command import run_command

PAGE = Path(__file__).parents[2] / "docs" / "local.md"
SESSION = re.compile(r"(?<=^```console\n)(.*?)(?=^```$)", re.MULTILINE | re.DOTALL)
VARIES = (
    (re.compile(r"\b[0-9a-f]{8}\b"), "ID"),
    (re.compile(r"\b\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ"), "TIME"),
    (re.compile(r"\bwaited \d+s\b|\bjust submitted\b"), "AGE"),
    (re.compile(r"\bin \d+\.\d s"), "in SECONDS"),
    (re.compile(r"(?<=[ +-])\d{1,3}(?:,\d{3})+\b"), "POINTS"),
    (re.compile(r"\s+"), " "),
)


def alike(text):
    """The text without what differs from run to run."""
    for pattern, instead in VARIES:
        text = pattern.sub(instead, text)
    return text


def test_the_session_happens_like_that(tmp_path, monkeypatch):
    Machine(tmp_path / "machine", monkeypatch, gpus=4)
    monkeypatch.setattr(nvml.socket, "gethostname", lambda: "gpu01")
    (shown,) = SESSION.findall(PAGE.read_text())
    happened = ""
    for line in [line for line in shown.splitlines() if line.startswith("$ ")]:
        done = run_command(shlex.split(line.removeprefix("$ gpuplan ")), folder=tmp_path)
        assert done.returncode == 0, done.stderr
        happened += f"{line}\n{done.stderr}{done.stdout}"
    run_command(["local", "cancel", "train"], folder=tmp_path)
    if os.environ.get("GPUPLAN_REWRITE_GOLDEN"):
        PAGE.write_text(PAGE.read_text().replace(shown, happened))
        return
    assert alike(happened) == alike(shown)
