"""A lock is of a thing, held by one process at a time, and names its holder as far as that can be written."""

from __future__ import annotations

import os

import pytest

from gpuplan.models.errors import PlannerError, TamperedError
from gpuplan.planner.apply import audit_log
from gpuplan.planner.apply.audit_log import AuditLog, verify_log
from gpuplan.planner.executors.simulated import SimulatedCluster
from gpuplan.planner.io import file_lock
from gpuplan.planner.io.file_lock import LockedError, exclusive_lock
from gpuplan.planner.service.history import History
from tests.support.builders.audit_log_builders import ACTOR, entry, log_of
from tests.support.builders.build import NOW
from tests.support.samples.apply_world import WORLD, carry_out, running


def test_a_second_one_is_refused_and_told_of_the_first(tmp_path):
    with (
        exclusive_lock(tmp_path / "a", subject="log a"),
        pytest.raises(LockedError, match=f"log a is in use by process {os.getpid()} since 20"),
        exclusive_lock(tmp_path / "a", subject="log a"),
    ):
        pass


@pytest.mark.parametrize("call", ["ftruncate", "pwrite"])
def test_a_disk_without_room_keeps_nothing_from_locking(tmp_path, monkeypatch, call):
    def full(*_):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, call, full)

    with (
        exclusive_lock(tmp_path / "a", subject="log a"),
        pytest.raises(LockedError, match="log a is in use by another process"),
        exclusive_lock(tmp_path / "a", subject="log a"),
    ):
        pass


@pytest.fixture
def links(tmp_path):
    """The same folder and the same files of it by other paths."""
    (tmp_path / "real").mkdir()
    (tmp_path / "folder").symlink_to("real")
    for name in ("c.db", "audit.jsonl"):
        (tmp_path / name).symlink_to(tmp_path / "real" / name)
    return tmp_path


@pytest.mark.parametrize("by", ["folder/c.db", "c.db"])
def test_through_a_link_a_second_apply_is_refused(links, by):
    tried = []

    def second(*_):
        with (
            SimulatedCluster(links / by) as theirs,
            pytest.raises(LockedError, match=f"process {os.getpid()} "),
        ):
            carry_out(theirs, AuditLog(links / "other.jsonl"), resume=True)
        tried.append(by)

    with SimulatedCluster.create(links / "real" / "c.db", WORLD) as live:
        carry_out(live, AuditLog(links / "real" / "audit.jsonl"), on_progress=second)
    assert tried == [by] * 3


@pytest.mark.parametrize("by", ["folder/audit.jsonl", "audit.jsonl"])
def test_through_a_link_a_second_writer_of_the_log_is_refused(links, by):
    with (
        AuditLog(links / "real" / "audit.jsonl").writing(actor=ACTOR, now=lambda: NOW),
        pytest.raises(LockedError, match=r"audit\.jsonl .* process \d+ "),
        AuditLog(links / by).writing(actor=ACTOR, now=lambda: NOW),
    ):
        pass


def test_a_log_with_a_second_name_has_one_writer_all_the_same(tmp_path):
    log_of(tmp_path / "audit.jsonl")
    os.link(tmp_path / "audit.jsonl", tmp_path / "same.jsonl")

    with AuditLog(tmp_path / "audit.jsonl").writing(actor=ACTOR, now=lambda: NOW) as writer:
        with (
            pytest.raises(LockedError, match=r"same\.jsonl .* another process"),
            AuditLog(tmp_path / "same.jsonl").writing(actor=ACTOR, now=lambda: NOW),
        ):
            pass
        writer.append([entry(5)])

    assert len(verify_log(tmp_path / "same.jsonl").records) == 5


def test_a_log_is_made_where_its_link_leads(links):
    with AuditLog(links / "audit.jsonl").writing(actor=ACTOR, now=lambda: NOW) as writer:
        writer.append([entry(1)])

    assert (links / "audit.jsonl").is_symlink()
    assert len(verify_log(links / "real" / "audit.jsonl").records) == 1
    assert (links / "real" / "audit.jsonl.lock").exists()


def test_a_log_that_is_set_aside_through_a_link_begins_anew(links):
    log = log_of(links / "real" / "audit.jsonl")

    AuditLog(links / "audit.jsonl").set_aside(links / "old.jsonl")

    assert not log.path.exists()
    assert len(verify_log(links / "old.jsonl").records) == 4


def test_a_cluster_or_history_with_two_names_is_refused(tmp_path):
    SimulatedCluster.create(tmp_path / "c.db", WORLD).close()
    with History(tmp_path / "h.db"):
        pass
    for name in ("c.db", "h.db"):
        os.link(tmp_path / name, tmp_path / f"same-{name}")

    for name in ("c.db", "same-c.db"):
        with pytest.raises(PlannerError, match=r"has 2 names \(hard links\); expected 1"):
            SimulatedCluster(tmp_path / name)
    with pytest.raises(PlannerError, match=r"history .* has 2 names"), History(tmp_path / "same-h.db"):
        pass


def test_a_cluster_is_made_where_its_link_leads(links):
    with SimulatedCluster.create(links / "c.db", WORLD) as live:
        assert carry_out(live, AuditLog(links / "audit.jsonl")).done == ("a1", "a2", "a3")

    assert (links / "c.db").is_symlink()
    with SimulatedCluster(links / "real" / "c.db") as same:
        assert running(same) == {"a", "b", "c", "runs"}


@pytest.fixture
def without_locks(monkeypatch):
    """As on a file system that knows no locks."""
    monkeypatch.setattr(file_lock.fcntl, "flock", lambda *_: None)


@pytest.mark.usefixtures("without_locks")
def test_a_writer_overwrites_nothing_that_another_one_appended(tmp_path):
    first, second = AuditLog(tmp_path / "audit.jsonl"), AuditLog(tmp_path / "audit.jsonl")

    with (
        first.writing(actor=ACTOR, now=lambda: NOW) as one,
        second.writing(actor=ACTOR, now=lambda: NOW) as two,
    ):
        one.append([entry(1)])
        with pytest.raises(PlannerError, match="was written by another process as well"):
            two.append([entry(2)])

    assert [record.action for record in first.records()] == ["a1"]


@pytest.mark.usefixtures("without_locks")
def test_the_check_of_a_log_notices_two_writers_at_once(tmp_path, monkeypatch):
    monkeypatch.setattr(audit_log.AuditWriter, "_refuse_foreign_records", lambda _: None)
    log = AuditLog(tmp_path / "audit.jsonl")

    with log.writing(actor=ACTOR, now=lambda: NOW) as one, log.writing(actor=ACTOR, now=lambda: NOW) as two:
        one.append([entry(1), entry(2), entry(3)])
        two.append([entry(7, detail="of another length")])
        one.append([entry(4)])

    with pytest.raises(TamperedError):
        verify_log(log.path)
