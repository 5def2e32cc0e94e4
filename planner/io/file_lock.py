"""
Exclusive locks between processes, held on a small lock file that names its holder.

The lock file is next to the real path of the locked file, so access through a symbolic link finds the same
lock. The kernel releases the lock when the process ends in any way, so a lock is never stale. The lock file
is never removed, since two processes could then lock two different files of one name.
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
from gpuplan.planner.io.atomic_write import PRIVATE_FILE

if TYPE_CHECKING:
    from collections.abc import Iterator


class LockedError(PlannerError):
    """Another process holds the lock."""


@contextmanager
def exclusive_lock(thing: Path, *, subject: str) -> Iterator[None]:
    """
    Hold the lock of a path during the block; the path need not exist yet.

    Raises
    ------
    LockedError
        Another process holds the lock; raised at once, with that process and its lock time. `subject` names
        the locked thing in the message.
    """
    real = real_path(thing)
    path = real.with_name(f"{real.name}.lock")
    try:
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT, PRIVATE_FILE)
    except OSError as error:
        raise PlannerError(
            f"{subject} cannot be locked: {path}: {error.strerror}.\n"
            "Give a path in a directory that exists and may be written."
        ) from None
    try:
        lock(descriptor, subject=subject, holder=descriptor)
        # The content is for messages only, so a full disk must not prevent locking.
        with suppress(OSError):
            os.ftruncate(descriptor, 0)
            # The lock time in messages is the file's modification time, set by this write.
            os.pwrite(descriptor, str(os.getpid()).encode(), 0)
        yield
    finally:
        os.close(descriptor)


def lock(descriptor: int, *, subject: str, holder: int | None = None) -> None:
    """
    Lock an open file until it is closed, whatever its names; LockedError if another process holds it.

    `holder` is an open file that contains the process id of the holder.
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
    """The path with symbolic links resolved."""
    return Path(os.path.realpath(path))


def _holder(descriptor: int) -> str:
    """Text for the process that holds the lock file; it may not have written its id yet."""
    pid = os.pread(descriptor, 20, 0).decode(errors="replace").strip()
    since = datetime.fromtimestamp(os.fstat(descriptor).st_mtime, tz=UTC)
    return f"process {pid} since {print_timestamp(since)}" if pid.isdigit() else "another process"
