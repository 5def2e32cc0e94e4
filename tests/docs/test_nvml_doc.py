"""What docs/nvml.md shows is what gpuplan prints of such a host."""

from __future__ import annotations

import re
from datetime import UTC, datetime
from pathlib import Path

import pytest

from gpuplan.planner.sources.files import snapshot_text
from gpuplan.planner.sources.nvml import nvml
from gpuplan.planner.sources.nvml.gpus import HealthRules
from tests.support.builders.build import NOW, job, node, queue, replica, snapshot
from tests.support.nvml.standin import Machine
from tests.support.output.markdown_blocks import fenced
from tests.support.output.run_command import run_command

ROOT = Path(__file__).parents[2]
TEXT = (ROOT / "docs" / "nvml.md").read_text(encoding="utf-8")


def a_host(folder, monkeypatch):
    """A host with a lost GPU, a faulty one, one in MIG mode, and an idle one that is held."""
    machine = Machine(folder / "machine", monkeypatch)
    half, _ = machine.cut(3, (9, 4), (19, 0))
    for gpu, pid, gib, instance in ((0, 4711, 61, -1), (1, 4711, 1, -1), (3, 4720, 12, half)):
        machine.add_process(gpu, pid, mib=gib * 1024, instance=instance)
    machine.set(0, utilization=97)
    machine.set(2, rows_pending=1)
    machine.set(5, lost=1)
    machine.raise_xid(6, 13)
    users, started = {4711: "ann", 4720: "bob"}, datetime(2026, 11, 20, 9, tzinfo=UTC)
    host = nvml.Host("gpu01", 64, 512_000, lambda pid: (users[pid], started), lambda: NOW)
    monkeypatch.setattr(nvml, "this_host", lambda: host)
    watch = nvml._watch
    monkeypatch.setattr(nvml, "_watch", lambda gpus, events, _, note: watch(gpus, events, 0.01, note))


@pytest.mark.slow
def test_commands_print_what_is_shown(tmp_path, monkeypatch):
    a_host(tmp_path, monkeypatch)
    holder = job("train", gpus=2, queue="q", at=[replica("gpu01", gpus=(0, 1))])
    cluster = snapshot(nodes=[node("gpu01"), node("gpu02")], jobs=[holder], queues=[queue("q")])
    (tmp_path / "cluster.json").write_text(snapshot_text(cluster))

    run(tmp_path, "plan", ROOT / "scenarios" / "mig-repack", "--deterministic", "-o", "plan.json")

    for block in fenced(TEXT, "console"):
        for step in block.split("$ gpuplan ")[1:]:
            words, expected = step.split("\n", 1)
            assert without_id(run(tmp_path, *words.split())) == without_id(expected)


def without_id(text):
    """How long a GPU has been idle is up to the machine, and so is the id of a plan with it."""
    return re.sub(r"\(plan \w{8}", "(plan", text)


def test_a_difference_of_layouts_is_told_as_shown(tmp_path):
    (tmp_path / "scenarios").symlink_to(ROOT / "scenarios")
    (shown,) = fenced(TEXT, "text check")
    words, expected = shown.removeprefix("$ gpuplan ").split("\n", 1)
    (tmp_path / "mig.yaml").write_text(
        next(each for each in fenced(TEXT, "console") if "mig export" in each).partition("\n")[2]
    )

    assert run(tmp_path, *words.split(), code=1) == expected


def run(folder, *words, code=0):
    done = run_command(words, folder=folder)
    assert done.returncode == code, done.stderr
    return done.stderr + done.stdout


def test_every_fatal_xid_is_listed():
    (listed,) = re.findall(r"a fatal XID while the command listens: ([\d, ]+)", TEXT)

    assert {int(xid) for xid in listed.split(",")} == set(HealthRules().fatal_xids)
