"""A host with GPUs that are not there, and its reading."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest

from gpuplan.planner.sources.nvml import nvml
from gpuplan.planner.sources.nvml.nvml import Host, read_host
from tests.support.builders.build import NOW
from tests.support.nvml.standin import Machine


@pytest.fixture
def make_machine(tmp_path, monkeypatch):
    """Make a machine in place of the last one."""
    monkeypatch.setattr(nvml, "_LOOK_SECONDS", 0.01)

    def make(gpus=8, model="H100"):
        return Machine(tmp_path / "machine", monkeypatch, gpus, model)

    return make


@pytest.fixture
def machine(make_machine):
    """Eight H100 on two sockets, joined by switches."""
    return make_machine()


@pytest.fixture
def read():
    """Read the host gpu01; users of its processes are by pid."""

    def reading(*, users=None, watch=0.0, name="gpu01"):
        started = datetime(2026, 11, 20, 9, tzinfo=UTC)
        host = Host(
            name=name,
            cpus=64,
            memory_mib=512_000,
            owner=lambda pid: (users[pid], started) if users and pid in users else None,
            clock=lambda: NOW,
        )
        return read_host(host, watch_seconds=watch)

    return reading
