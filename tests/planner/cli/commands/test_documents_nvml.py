"""`gpuplan snapshot --from nvml` and `--merge`, as an operator types them."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from datetime import UTC, datetime
from pathlib import Path

import pytest

from gpuplan.planner.sources.files import load_snapshot
from gpuplan.planner.sources.nvml import nvml
from tests.support.nvml.standin import Machine

RECORDED = Path(__file__).parents[2] / "sources" / "slurm" / "recorded" / "24.11"


@pytest.fixture
def machine(tmp_path, monkeypatch):
    made = Machine(tmp_path / "machine", monkeypatch)
    monkeypatch.setattr(nvml, "_LOOK_SECONDS", 0.01)
    at(monkeypatch, "gpu01")
    return made


def at(monkeypatch, name):
    """This host gets another name."""
    started = datetime(2026, 11, 20, 9, tzinfo=UTC)
    host = nvml.Host(name, 64, 512_000, lambda _: ("ann", started))
    monkeypatch.setattr(nvml, "this_host", lambda: host)


def test_a_host_becomes_a_snapshot_and_what_is_wrong_is_said(gpuplan, machine):
    machine.set(2, lost=1)
    machine.raise_xid(3, 79)

    ran = gpuplan("snapshot", "--from", "nvml", "-o", "h.json")

    assert (ran.code, ran.out) == (0, "")
    assert ran.err.splitlines() == [
        "Health of the GPUs:",
        "  GPU 2: it does not answer (GPU is lost), so no job starts there",
        "  GPU 3: XID 79 (GPU has fallen off the bus), so no job starts there",
        "Wrote 1 node and 0 jobs to h.json.",
    ]
    assert gpuplan("validate", "h.json").code == 0


def test_standard_output_is_the_snapshot_alone(gpuplan, machine):
    machine.add_process(1, 7)

    ran = gpuplan("snapshot", "--from", "nvml", "--watch", "50ms")

    assert json.loads(ran.out)["jobs"][0]["user"] == "ann"
    assert "it did nothing for 0.05 s" in ran.err


@pytest.mark.slow
def test_a_command_in_a_process_of_its_own_sees_the_same_machine(machine, tmp_path):
    machine.set(2, rows_failed=1)
    machine.add_process(1, os.getpid())
    script = "from gpuplan.planner.cli import main; main()"

    done = subprocess.run(
        [sys.executable, "-c", script, "snapshot", "--from", "nvml"],
        env=os.environ | machine.environment,
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=True,
    )

    found = json.loads(done.stdout)
    (node,) = found["cluster"]["nodes"]
    assert [gpu["index"] for gpu in node["gpus"]["details"] if not gpu.get("healthy", True)] == [2]
    (job,) = found["jobs"]
    assert job["name"].endswith(f"/pid-{os.getpid()}")
    # Nothing of the process but its id, its user and its start.
    assert "pytest" not in done.stdout


def test_hosts_are_merged_into_what_slurm_tells(gpuplan, machine, monkeypatch):
    machine.set(7, rows_pending=1)
    Path("hosts").mkdir()
    for name in ("gpu01", "gpu02"):
        at(monkeypatch, name)
        assert gpuplan("snapshot", "--from", "nvml", "-o", f"hosts/{name}.json").code == 0

    ran = gpuplan(
        "snapshot", "--from", "slurm-files", "--folder", RECORDED, "--merge", "hosts", "-o", "all.json"
    )

    assert ran.code == 0, ran.err
    nodes = load_snapshot("all.json").cluster.node_by_name
    assert [gpu.index for gpu in nodes["gpu02"].gpus.details if not gpu.healthy] == [7]
    assert nodes["gpu01"].gpus.model == "h100"
    assert nodes["gpu03"].gpus.details == ()


def test_contradictions_leave_no_file(gpuplan, machine, monkeypatch):
    at(monkeypatch, "gpu99")
    assert machine.environment
    gpuplan("snapshot", "--from", "nvml", "-o", "a.json")
    at(monkeypatch, "cloud01")
    gpuplan("snapshot", "--from", "nvml", "-o", "b.json")
    merge = ("--merge", "a.json", "--merge", "b.json")

    ran = gpuplan("snapshot", "--from", "slurm-files", "--folder", RECORDED, *merge, "-o", "all.json")

    assert ran.code == 24
    assert "a.json: host 'gpu99' is no node of the snapshot" in ran.err
    assert "b.json: node 'cloud01' has GPUs of model 'a100' in the snapshot" in ran.err
    assert ran.err.splitlines()[-1] == "Error: 2 problems in the input; nothing was done."
    assert not Path("all.json").exists()


def test_what_cannot_be_read_is_told_at_once(gpuplan, quickstart):
    Path("empty").mkdir()
    Path("bad.json").write_text("{")

    ran = gpuplan("snapshot", quickstart, "--merge", "empty", "--merge", "bad.json", "--merge", "none.json")

    assert ran.code == 24
    assert [
        line.partition(":")[0] for line in ran.err.splitlines() if ".json" in line or "empty" in line
    ] == [
        *("empty", "bad.json", "none.json"),
    ]


@pytest.mark.parametrize(
    "words",
    [
        (),
        ("SOURCE",),
        ("SOURCE", "--from", "nvml", "--merge", "h.json"),
        ("--from", "simulated", "--watch", "3s"),
        ("--merge", "h.json"),
    ],
)
def test_one_thing_is_read_with_options_for_it(gpuplan, quickstart, words):
    ran = gpuplan("snapshot", *(quickstart if word == "SOURCE" else word for word in words))

    assert ran.code == 2


def test_the_merged_snapshot_does_not_replace_a_file_that_it_is_made_from(gpuplan, machine):
    machine.set(7, rows_pending=1)
    gpuplan("snapshot", "--from", "nvml", "-o", "h.json")
    gpuplan("snapshot", "--from", "nvml", "-o", "base.json")

    for out in ("h.json", "base.json"):
        before = Path(out).read_bytes()
        assert gpuplan("snapshot", "base.json", "--merge", "h.json", "-o", out).code == 1
        assert Path(out).read_bytes() == before
