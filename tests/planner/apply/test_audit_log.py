"""The audit log: appended, chained, and never quietly changed."""

from __future__ import annotations

import json
import os
from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gpuplan.models.base import canonical_json
from gpuplan.models.errors import PlannerError, TamperedError
from gpuplan.models.plan.audit import ActionOutcome, AuditKind, hash_of_record
from gpuplan.planner.apply.audit_log import AuditLog, AuditWriter, verify_log
from gpuplan.planner.io.file_lock import LockedError
from tests.support.builders.audit_log_builders import ACTOR, entry, log_of
from tests.support.builders.build import NOW
from tests.support.seeds import examples


def reopen(path):
    with AuditLog(path).writing(actor="bob@login2", now=lambda: NOW) as writer:
        writer.append([entry(99)])
    return AuditLog(path).records()


def test_records_come_back_in_order_and_chained(tmp_path):
    records = log_of(tmp_path / "audit.jsonl").records()

    assert [record.action for record in records] == ["a1", "a2", "a3", "a4"]
    assert [record.sequence for record in records] == [1, 2, 3, 4]
    assert records[0].previous == "0" * 64
    assert all(after.previous == before.hash for before, after in pairwise(records))


def test_a_record_is_one_line_with_all_that_happened(tmp_path):
    with AuditLog(tmp_path / "audit.jsonl").writing(actor=ACTOR, now=lambda: NOW) as writer:
        writer.append(
            [
                entry(
                    1,
                    AuditKind.OUTCOME,
                    outcome=ActionOutcome.DONE,
                    seconds=0.5,
                    seen=("job a waits",),
                    cluster="c",
                )
            ]
        )
    (line,) = (tmp_path / "audit.jsonl").read_text().splitlines()
    document = json.loads(line)

    assert {
        key: document[key] for key in ("who", "at", "plan_id", "kind", "action", "outcome", "seconds")
    } == {
        "who": ACTOR,
        "at": "2026-11-20T12:00:00Z",
        "plan_id": "7c1e",
        "kind": "outcome",
        "action": "a1",
        "outcome": "done",
        "seconds": 0.5,
    }
    assert document["seen"] == ["job a waits"]
    assert document["format_version"] == "1.0"


def test_a_log_that_is_not_there_is_an_error_for_readers(tmp_path):
    with pytest.raises(PlannerError, match=r"audit\.jsonl cannot be read: No such file"):
        verify_log(tmp_path / "audit.jsonl")


def test_a_log_in_no_directory_is_an_error_for_writers(tmp_path):
    with (
        pytest.raises(PlannerError, match="No such file"),
        AuditLog(tmp_path / "no" / "audit.jsonl").writing(actor=ACTOR, now=lambda: NOW),
    ):
        pass


def test_an_empty_log_is_sound(tmp_path):
    (tmp_path / "audit.jsonl").touch()

    assert verify_log(tmp_path / "audit.jsonl").records == ()


def test_a_second_writer_is_refused(tmp_path):
    log = AuditLog(tmp_path / "audit.jsonl")

    with (
        log.writing(actor=ACTOR, now=lambda: NOW),
        pytest.raises(LockedError, match=r"audit log .*audit\.jsonl .* process \d+ "),
        log.writing(actor=ACTOR, now=lambda: NOW),
    ):
        pass


@pytest.fixture(scope="module")
def sound(tmp_path_factory):
    path = tmp_path_factory.mktemp("log") / "audit.jsonl"
    log_of(path)
    return path


@pytest.mark.slow
@settings(max_examples=examples(300))
@given(data=st.data())
def test_a_log_with_any_byte_changed_is_refused(sound, data):
    content = sound.read_bytes()
    offset = data.draw(st.integers(0, len(content) - 1))
    byte = data.draw(st.integers(0, 255).filter(lambda byte: byte != content[offset]))
    path = sound.with_name("flipped.jsonl")
    path.write_bytes(content[:offset] + bytes([byte]) + content[offset + 1 :])

    with pytest.raises(TamperedError) as caught:
        verify_log(path)
    assert caught.value.exit_code == 23


@pytest.mark.slow
@settings(max_examples=examples(150))
@given(data=st.data())
def test_a_log_with_any_byte_put_in_is_refused(sound, data):
    content = sound.read_bytes()
    offset = data.draw(st.integers(0, len(content)))
    byte = data.draw(
        st.integers(0, 255).filter(lambda byte: byte not in (0, ord("{")) or offset < len(content))
    )
    path = sound.with_name("longer.jsonl")
    path.write_bytes(content[:offset] + bytes([byte]) + content[offset:])

    with pytest.raises(TamperedError):
        verify_log(path)


def test_a_changed_record_is_named_with_found_and_expected(sound):
    lines = sound.read_text().splitlines(keepends=True)
    lines[2] = lines[2].replace('"a3"', '"a9"')
    path = sound.with_name("changed.jsonl")
    path.write_text("".join(lines))
    document = json.loads(lines[2])

    with pytest.raises(TamperedError) as caught:
        verify_log(path)
    assert f"changed.jsonl:3: the record was changed: found hash {document['hash']}" in str(caught.value)
    assert f"expected {hash_of_record(document)}" in str(caught.value)


def test_a_changed_record_with_its_hash_made_anew_breaks_the_chain_behind_it(sound):
    lines = sound.read_text().splitlines(keepends=True)
    document = json.loads(lines[1]) | {"who": "eve@login1"}
    lines[1] = canonical_json(document | {"hash": hash_of_record(document)}) + "\n"
    path = sound.with_name("rehashed.jsonl")
    path.write_text("".join(lines))

    with pytest.raises(TamperedError, match=r"rehashed\.jsonl:3: the chain is broken"):
        verify_log(path)


@pytest.mark.parametrize("order", [(0, 2, 3), (1, 2, 3), (0, 2, 1, 3), (0, 1, 1, 2, 3)])
def test_a_record_missing_moved_or_doubled_is_refused(sound, order):
    lines = sound.read_text().splitlines(keepends=True)
    path = sound.with_name("moved.jsonl")
    path.write_text("".join(lines[index] for index in order))

    with pytest.raises(TamperedError, match="a record is missing or moved"):
        verify_log(path)


def test_a_line_spaced_anew_is_refused(sound):
    lines = sound.read_text().splitlines()
    path = sound.with_name("spaced.jsonl")
    path.write_text("".join(f"{json.dumps(json.loads(line), ensure_ascii=False)}\n" for line in lines))

    with pytest.raises(TamperedError, match=r"spaced\.jsonl:1: the line is not written as gpuplan writes it"):
        verify_log(path)


def test_a_write_that_failed_halfway_leaves_nothing_behind_the_next(tmp_path, monkeypatch):
    def full(self, content):
        os.pwrite(self._descriptor, content[:-10], self._end)
        raise OSError(28, "No space left on device")

    log = AuditLog(tmp_path / "audit.jsonl")
    with log.writing(actor=ACTOR, now=lambda: NOW) as writer:
        with monkeypatch.context() as patch:
            patch.setattr(AuditWriter, "_write", full)
            with pytest.raises(PlannerError, match="cannot be written: No space left on device"):
                writer.append([entry(1, detail="long " * 100)])
        writer.append([entry(2)])

    assert verify_log(log.path).unfinished == b""
    assert [record.action for record in log.records()] == ["a2"]


def test_a_newer_minor_version_with_further_keys_is_read(tmp_path, sound):
    document = json.loads(sound.read_text().splitlines()[0]) | {"format_version": "1.4", "mood": "good"}
    path = tmp_path / "audit.jsonl"
    path.write_text(canonical_json(document | {"hash": hash_of_record(document)}) + "\n")

    assert verify_log(path).records[0].action == "a1"


def test_another_major_version_is_refused(tmp_path, sound):
    document = json.loads(sound.read_text().splitlines()[0]) | {"format_version": "2.0"}
    path = tmp_path / "audit.jsonl"
    path.write_text(canonical_json(document | {"hash": hash_of_record(document)}) + "\n")

    with pytest.raises(TamperedError, match=r"a newer gpuplan wrote it: found format 2.0, expected 1.x"):
        verify_log(path)


@pytest.mark.slow
def test_a_last_line_cut_anywhere_is_told_apart_and_replaced_by_a_record_of_it(tmp_path, sound):
    content = sound.read_bytes()
    last = content.rindex(b"\n", 0, -1) + 1
    path = tmp_path / "audit.jsonl"
    for end in (*range(last + 1, len(content), 7), len(content) - 1):
        path.write_bytes(content[:end])
        assert verify_log(path).unfinished == content[last:end]

        records = reopen(path)

        assert [record.action for record in records] == ["a1", "a2", "a3", "", "a99"]
        assert records[3].kind is AuditKind.RECOVERED
        assert records[3].detail.startswith(f"replaces {end - last} bytes of a record")
        assert records[3].detail.endswith(content[last:end].decode(errors="backslashreplace"))


def test_a_cut_first_line_is_recovered_too(tmp_path, sound):
    path = tmp_path / "audit.jsonl"
    path.write_bytes(sound.read_bytes()[:40])

    assert [record.kind for record in reopen(path)] == [AuditKind.RECOVERED, AuditKind.INTENT]


@pytest.mark.slow
def test_a_recovery_that_is_cut_itself_is_recovered(tmp_path, sound):
    content = sound.read_bytes()[:-30]
    path = tmp_path / "audit.jsonl"
    path.write_bytes(content)
    reopen(path)
    recovered = path.read_bytes()
    start = content.rindex(b"\n") + 1
    line = recovered[start : recovered.index(b"\n", start) + 1]
    torn = content[start:]

    for cut in range(1, len(line), 17):
        path.write_bytes(content[:start] + line[:cut] + torn[cut:])
        records = reopen(path)
        assert [record.kind for record in records[3:]] == [AuditKind.RECOVERED, AuditKind.INTENT]


def test_room_never_written_at_the_end_is_recovered(tmp_path, sound):
    path = tmp_path / "audit.jsonl"
    path.write_bytes(sound.read_bytes() + b"\0" * 100)

    assert reopen(path)[4].kind is AuditKind.RECOVERED


def test_reading_changes_nothing(tmp_path, sound):
    path = tmp_path / "audit.jsonl"
    path.write_bytes(sound.read_bytes()[:-5])
    before = path.read_bytes()

    AuditLog(path).records()

    assert path.read_bytes() == before


def test_a_log_that_is_set_aside_is_whole_and_the_next_record_begins_a_new_one(tmp_path):
    log = log_of(tmp_path / "audit.jsonl")
    records = log.records()

    trail = log.set_aside(tmp_path / "old.jsonl")
    (first,) = reopen(tmp_path / "audit.jsonl")

    assert trail.records == records == AuditLog(tmp_path / "old.jsonl").records()
    assert (first.sequence, first.previous) == (1, "0" * 64)


def test_a_log_is_set_aside_only_if_it_is_sound_and_harms_no_other_file(tmp_path):
    log = log_of(tmp_path / "audit.jsonl")
    (tmp_path / "old.jsonl").write_text("mine")
    with pytest.raises(PlannerError, match="exists; expected nothing there"):
        log.set_aside(tmp_path / "old.jsonl")

    log.path.write_bytes(log.path.read_bytes().replace(b"a2", b"a3", 1))
    with pytest.raises(TamperedError):
        log.set_aside(tmp_path / "new.jsonl")

    assert (tmp_path / "old.jsonl").read_text() == "mine"
    assert log.path.exists()
