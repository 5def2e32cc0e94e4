"""A lock is held by one process at a time, and says whose it is as far as that can be written down."""

from __future__ import annotations

import os

import pytest

from planner.locking import LockedError, exclusive


def test_a_second_one_is_refused_and_told_who_is_first(tmp_path):
    with (
        exclusive(tmp_path / "a.lock", subject="log a"),
        pytest.raises(LockedError, match=f"log a is in use by process {os.getpid()} since 20"),
        exclusive(tmp_path / "a.lock", subject="log a"),
    ):
        pass


@pytest.mark.parametrize("call", ["ftruncate", "pwrite"])
def test_a_disk_without_room_keeps_nobody_from_locking(tmp_path, monkeypatch, call):
    def full(*_):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, call, full)

    with (
        exclusive(tmp_path / "a.lock", subject="log a"),
        pytest.raises(LockedError, match="log a is in use by another process"),
        exclusive(tmp_path / "a.lock", subject="log a"),
    ):
        pass
