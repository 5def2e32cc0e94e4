"""An audit log, and a cluster on which actions last."""

from __future__ import annotations

import pytest

from gpuplan.planner.apply.audit_log import AuditLog
from gpuplan.planner.executors.simulated import SimulatedCluster
from tests.support.doubles.lasting_cluster import LastingCluster, VirtualClock


@pytest.fixture
def log(tmp_path):
    return AuditLog(tmp_path / "audit.jsonl")


@pytest.fixture
def on(tmp_path):
    """A lasting cluster in the state from which a plan was made."""
    opened = []

    def make(plan, **more):
        opened.append(SimulatedCluster.create(tmp_path / f"{len(opened)}.db", plan.snapshot))
        return LastingCluster(opened[-1], VirtualClock(), **more)

    yield make
    for each in opened:
        each.close()
