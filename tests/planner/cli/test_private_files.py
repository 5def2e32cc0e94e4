"""State, logs, plans and approvals are for their owner alone, even where the umask would give them to all."""

from __future__ import annotations

import os
import stat

import pytest

from gpuplan.planner.executors.simulated import SimulatedCluster
from tests.support.builders.approval_keys import write_key


@pytest.fixture
def lax_umask():
    before = os.umask(0)
    yield
    os.umask(before)


def modes(folder):
    return {
        str(path.relative_to(folder)): stat.S_IMODE(path.stat().st_mode)
        for path in folder.rglob("*")
        if not path.is_symlink()
    }


@pytest.mark.slow
@pytest.mark.usefixtures("lax_umask")
def test_all_that_a_cluster_and_its_plans_leave_is_private(gpuplan, quickstart, tmp_path):
    state = "deep/.gpuplan"
    here = ("--state", f"{state}/c.db")
    audit = ("--audit", f"{state}/log/audit.jsonl")
    write_key(tmp_path / "key", 1)
    assert gpuplan("simulated", "create", quickstart, *here).code == 0
    assert gpuplan("plan", quickstart, "-o", "plan.json", "--report", "plan.html").code == 0
    assert gpuplan("approve", "plan.json", "--key", "key", *here).code == 0
    apply = gpuplan("apply", "plan.json", "--executor", "simulated", "--auto-approve", *here, *audit)
    assert apply.code == 0
    assert gpuplan("simulated", "advance", "10h", *here).code == 0
    run = ("run", quickstart, "--executor", "simulated", "--apply", "--epochs", "1", "--solver", "greedy")
    assert gpuplan(*run, *here, *audit, "--plans", f"{state}/plans", "--history", f"{state}/h/h.db").code == 0

    found = modes(tmp_path)
    # A report is made to be shown.
    assert found.pop("plan.html") == 0o666
    folders = {name for name in found if (tmp_path / name).is_dir()}
    assert {"deep", state, f"{state}/log", f"{state}/plans", f"{state}/h"} <= folders
    assert {name: oct(mode) for name, mode in found.items() if name in folders and mode != 0o700} == {}
    assert {name: oct(mode) for name, mode in found.items() if name not in folders and mode != 0o600} == {}
    assert {f"{state}/{name}" for name in ("c.db", "log/audit.jsonl", "h/h.db")} < set(found)
    assert "plan.json.approvals" in found


@pytest.mark.usefixtures("lax_umask")
def test_a_database_in_use_is_private_too(gpuplan, quickstart, tmp_path):
    assert gpuplan("simulated", "create", quickstart).code == 0
    with SimulatedCluster(tmp_path / ".gpuplan/simulated.db") as cluster:
        cluster.advance(60)
        found = modes(tmp_path / ".gpuplan")
    assert any(name.endswith("-wal") for name in found)
    assert set(found.values()) == {0o600}
