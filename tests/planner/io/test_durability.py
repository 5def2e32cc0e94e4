"""
What is said to be on disk is: written, synced, renamed, and its folder synced, in this order.

A power cut cannot be had in a test. So the calls that ask the system for durability are watched, with what
the file held when it was synced: without any one of them, or with one of them too early, a test fails.
"""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

import pytest

from gpuplan.planner.apply.audit_log import AuditLog
from gpuplan.planner.executors.simulated import SimulatedCluster
from gpuplan.planner.io.atomic_write import (
    has_hash,
    hash_path,
    make_directory,
    write_atomically,
    write_with_hash,
)
from gpuplan.planner.plan_file.plan_file import save_plan
from gpuplan.planner.service.history import History
from gpuplan.planner.service.run_files import LATEST, PlanStore
from tests.support.builders.audit_log_builders import ACTOR, entry, log_of
from tests.support.builders.build import NOW
from tests.support.samples.apply_world import PLAN, WORLD, carry_out


class Watch:
    """What became durable, in order: `sync NAME SIZE` of files, `sync NAME/` of folders, `rename OLD NEW`."""

    def __init__(self, folder):
        self.folder = folder
        self.calls = []

    def synced(self, descriptor):
        path = Path(f"/proc/self/fd/{descriptor}").readlink()
        size = "" if path.is_dir() else f" {path.stat().st_size}"
        self.calls.append(f"sync {self._name(path)}{'/' if path.is_dir() else size}")

    def renamed(self, old, new):
        self.calls.append(f"rename {self._name(Path(old))} {self._name(Path(new))}")

    def _name(self, path):
        name = str(path.relative_to(self.folder)) if path != self.folder else "."
        # Drafts have names drawn by chance.
        return "draft" if name.endswith(".tmp") else name


@pytest.fixture
def watch(tmp_path, monkeypatch):
    seen = Watch(tmp_path)
    fsync, replace, rename = os.fsync, os.replace, os.rename

    def watched_fsync(descriptor):
        fsync(descriptor)
        seen.synced(descriptor)

    def watched(call):
        def renamed(old, new, **named):
            call(old, new, **named)
            seen.renamed(old, new)

        return renamed

    monkeypatch.setattr(os, "fsync", watched_fsync)
    monkeypatch.setattr(os, "replace", watched(replace))
    monkeypatch.setattr(os, "rename", watched(rename))
    return seen


def test_a_file_is_whole_on_disk_before_it_has_its_name(tmp_path, watch):
    write_atomically(tmp_path / "file", "12345")

    assert watch.calls == ["sync draft 5", "rename draft file", "sync ./"]


def test_the_folder_that_is_synced_is_the_one_where_a_link_leads(tmp_path, watch):
    (tmp_path / "real").mkdir()
    (tmp_path / "link").symlink_to("real/file")

    write_atomically(tmp_path / "link", "12345")

    assert watch.calls == ["sync draft 5", "rename draft real/file", "sync real/"]


def test_a_hash_is_written_after_its_file_and_holds_for_it_alone(tmp_path, watch):
    write_with_hash(tmp_path / "file", iter([b"123", b"45"]))

    name = hash_path(tmp_path / "file").name
    size = (tmp_path / name).stat().st_size
    assert watch.calls[:3] == ["sync draft 5", "rename draft file", "sync ./"]
    assert watch.calls[3:] == [f"sync draft {size}", f"rename draft {name}", "sync ./"]
    assert has_hash(tmp_path / "file", b"12345")
    assert not has_hash(tmp_path / "file", b"12346")
    if (command := shutil.which("sha256sum")) is not None:
        subprocess.run([command, "--check", "--quiet", name], cwd=tmp_path, check=True)


def test_a_new_folder_has_its_name_on_disk(tmp_path, watch):
    make_directory(tmp_path / "a" / "b")
    make_directory(tmp_path / "a" / "b")

    assert watch.calls == ["sync ./", "sync a/"]


def test_records_are_on_disk_when_they_are_appended_and_so_is_the_name_of_a_new_log(tmp_path, watch):
    path = tmp_path / "audit.jsonl"
    with AuditLog(path).writing(actor=ACTOR, now=lambda: NOW) as writer:
        assert watch.calls == ["sync ./"]
        writer.append([entry(1)])
        writer.append([entry(2), entry(3)])

    first, second, third = path.read_bytes().splitlines(keepends=True)
    sizes = [len(first), len(first + second + third)]
    assert watch.calls[1:] == [f"sync audit.jsonl {size}" for size in sizes]


def test_a_log_that_is_set_aside_has_lost_its_old_name_on_disk_too(tmp_path, watch):
    (tmp_path / "old").mkdir()
    log = log_of(tmp_path / "audit.jsonl")
    watch.calls.clear()

    log.set_aside(tmp_path / "old" / "audit.jsonl")

    assert watch.calls[0] == "rename audit.jsonl old/audit.jsonl"
    assert sorted(watch.calls[1:]) == ["sync ./", "sync old/"]


def test_an_intent_is_on_disk_before_its_deed_and_an_outcome_before_the_next_one(tmp_path, watch):
    log = AuditLog(tmp_path / "audit.jsonl")

    class Watched(SimulatedCluster):
        def begin(self, action, key):
            watch.calls.append(f"deed after {log.path.stat().st_size}")
            return super().begin(action, key)

    SimulatedCluster.create(tmp_path / "c.db", WORLD).close()
    watch.calls.clear()
    with Watched(tmp_path / "c.db") as live:
        carry_out(live, log)

    calls = watch.calls[1:]
    assert [call.split()[0] for call in calls] == ["sync", "deed"] * 3 + ["sync"]
    sizes = [int(call.split()[-1]) for call in calls]
    assert sizes == sorted(sizes)
    assert sizes[0:6:2] == sizes[1:6:2]
    assert sizes[-1] == log.path.stat().st_size


def test_what_a_cluster_has_done_is_on_disk_when_it_says_so(tmp_path, watch):
    with SimulatedCluster.create(tmp_path / "c.db", WORLD) as live:
        assert watch.calls == ["rename .c.db.draft c.db", "sync ./"]
        assert live._db.execute("PRAGMA synchronous").fetchone() == (_FULL,)
        assert live._db.execute("PRAGMA journal_mode").fetchone() == ("wal",)


_FULL = 2
"""Of SQLite's `synchronous`: each transaction is synced before it counts as done."""


def test_an_epoch_is_on_disk_when_it_is_added_to_the_history(tmp_path):
    with History(tmp_path / "h.db") as history:
        assert history._open.execute("PRAGMA synchronous").fetchone() == (_FULL,)


def test_the_link_to_the_last_plan_leads_to_a_plan_that_is_on_disk(tmp_path, watch):
    store = PlanStore(tmp_path / "plans", keep=3)
    watch.calls.clear()

    path = store.save(PLAN, 1)

    name = f"plans/{path.name}"
    size = path.stat().st_size
    assert watch.calls == [
        f"sync draft {size}",
        f"rename draft {name}",
        "sync plans/",
        f"rename draft plans/{LATEST}",
        "sync plans/",
    ]


def test_a_plan_is_saved_durably(tmp_path, watch):
    save_plan(PLAN, tmp_path / "plan.json")

    size = (tmp_path / "plan.json").stat().st_size
    assert watch.calls == [f"sync draft {size}", "rename draft plan.json", "sync ./"]
