"""docs/local.md: its session happens like that on a host with GPUs that are not there."""

from __future__ import annotations

from pathlib import Path

import pytest

from gpuplan.planner.sources.nvml import nvml
from tests.support.nvml.standin import Machine
from tests.support.output.console_session import replay
from tests.support.output.run_command import run_command

PAGE = Path(__file__).parents[2] / "docs" / "local.md"


@pytest.mark.slow
def test_the_session_happens_like_that(tmp_path, monkeypatch):
    Machine(tmp_path / "machine", monkeypatch, gpus=4)
    monkeypatch.setattr(nvml.socket, "gethostname", lambda: "gpu01")
    shown, happened = replay(PAGE, lambda words: run_command(words[1:], folder=tmp_path))
    run_command(["local", "cancel", "train"], folder=tmp_path)
    assert happened == shown
