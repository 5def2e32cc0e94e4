"""A host with GPUs that are not there, and a queue of real processes."""

from __future__ import annotations

import signal

import pytest

from gpuplan.planner.executors.local import private_files
from gpuplan.planner.executors.local.host import LocalHost
from gpuplan.planner.io import processes
from gpuplan.planner.sources.nvml import nvml
from tests.support.harness.local_jobs import Jobs
from tests.support.nvml.standin import Machine


@pytest.fixture
def machine(tmp_path, monkeypatch):
    """Four H100; processes that commands start see it too."""
    made = Machine(tmp_path / "machine", monkeypatch, gpus=4)
    monkeypatch.setenv("LD_LIBRARY_PATH", made.environment["LD_LIBRARY_PATH"])
    monkeypatch.setattr(nvml.socket, "gethostname", lambda: "gpu01")
    return made


@pytest.fixture
def host(machine, tmp_path):
    """The executor; what its jobs leave behind is killed at the end."""
    made = LocalHost(tmp_path / "host", allow_mig=True)
    yield made
    for folder in (tmp_path / "host").rglob("run-*.json"):
        watcher = (private_files.read_json(folder) or {}).get("supervisor")
        if watcher:
            for each in processes.descendants(watcher["pid"]):
                processes.signal_process(each, signal.SIGKILL)
            processes.signal_process(processes.ProcessId(**watcher), signal.SIGKILL)


@pytest.fixture
def jobs(host, tmp_path):
    return Jobs(host, tmp_path)
