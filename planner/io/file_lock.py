"""
One process at a time: an exclusive lock held through a small file that names its holder.

The file is beside the thing itself, wherever the path to it leads: whoever comes through a symbolic link
finds the same lock. The kernel drops the lock with its process, however that ends, so a lock is never stale.
The file stays: removing it would let two processes lock two files of one name.
"""

from __future__ import annotations

import fcntl
import os
from contextlib import contextmanager, suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING

from gpuplan.models.errors import PlannerError
from gpuplan.models.units import print_timestamp

if TYPE_CHECKING:
    from collections.abc import Iterator


class LockedError(PlannerError):
    """Another process holds the lock."""


@contextmanager
def exclusive(thing: Path, *, subject: str) -> Iterator[None]:
    """
    Hold the lock of the file at a path, which need not exist yet, for as long as the block lasts.

    Raises
    ------
    LockedError
        At once, if another process holds it; names that process and since when. `subject` says in the
        message what the lock guards.
    """
    real = real_path(thing)
    path = real.with_name(f"{real.name}.lock")
    try:
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT, 0o666)
    except OSError as error:
        raise PlannerError(
            f"{subject} cannot be locked: {path}: {error.strerror}.\n"
            "Give a path in a directory that exists and may be written."
        ) from None
    try:
        lock(descriptor, subject=subject, holder=descriptor)
        # What is written is for messages only: a disk without room keeps nothing from locking.
        with suppress(OSError):
            os.ftruncate(descriptor, 0)
            # The holder's start is the time of this write, which the file system keeps.
            os.pwrite(descriptor, str(os.getpid()).encode(), 0)
        yield
    finally:
        os.close(descriptor)


def lock(descriptor: int, *, subject: str, holder: int | None = None) -> None:
    """
    Lock an open file, whatever its names, until it is closed; LockedError if another process holds it.

    `holder` is an open file in which the holder has written its id.
    """
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        found = "another process" if holder is None else _holder(holder)
        raise LockedError(
            f"{subject} is in use by {found}; expected it to be free.\n"
            "Wait until that process ends, or stop it, and try again."
        ) from None


def real_path(path: Path) -> Path:
    """Where a path leads, through whatever links."""
    return Path(os.path.realpath(path))


def _holder(descriptor: int) -> str:
    """The process that wrote its id into the lock file; it may not have come to that yet."""
    pid = os.pread(descriptor, 20, 0).decode(errors="replace").strip()
    since = datetime.fromtimestamp(os.fstat(descriptor).st_mtime, tz=UTC)
    return f"process {pid} since {print_timestamp(since)}" if pid.isdigit() else "another process"
