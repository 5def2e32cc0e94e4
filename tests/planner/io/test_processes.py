"""When a process began, as the kernel knows it."""

from __future__ import annotations

import subprocess
import sys
import time

import pytest

from gpuplan.planner.io import processes

TICK = 0.02
"""More than a tick of the kernel's clock, in seconds."""


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="asks /proc")
def test_a_process_began_between_its_call_and_its_first_line():
    script = (
        "import time; print(time.monotonic())\n"
        "from gpuplan.planner.io import processes; print(processes.began())"
    )
    called = time.monotonic()

    shown = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    first_line, began = map(float, shown.stdout.split())

    assert called - TICK <= began <= first_line + TICK


def test_where_the_kernel_does_not_tell_it_is_now(monkeypatch, tmp_path):
    monkeypatch.setattr(processes, "_PROC", tmp_path)
    before = time.monotonic()

    assert before <= processes.began() <= time.monotonic()
