"""Atomic and durable file writes: after a crash a file is complete or absent."""

from __future__ import annotations

import errno
import os
import secrets
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from gpuplan.models.errors import PlannerError

if TYPE_CHECKING:
    from collections.abc import Iterator


def write_atomically(path: str | Path, content: str | bytes) -> None:
    """Replace the file at a path atomically and durably; a pipe or device is written directly."""
    data = content.encode() if isinstance(content, str) else content
    with _faults_told(path):
        target = _meant(path)
        if target.exists() and not target.is_file():
            target.write_bytes(data)
            return
        draft = target.with_name(f".{target.name}.{secrets.token_hex(4)}.tmp")
        try:
            with draft.open("xb") as file:
                file.write(data)
                file.flush()
                os.fsync(file.fileno())
            draft.replace(target)
        finally:
            draft.unlink(missing_ok=True)
        sync_directory(target.parent)


def require_writable(path: str | Path) -> None:
    """
    Check that a path can be written, as far as that is known in advance.

    Raises
    ------
    PlannerError
        The path cannot be written; the message gives the reason.
    """
    with _faults_told(path):
        target = _meant(path)
        if target.is_dir():
            raise _fault(errno.EISDIR)
        # A pipe or device is written directly; a file is replaced by a new one in the same directory.
        place = target if target.exists() and not target.is_file() else target.parent
        place.stat()
        if place != target and not place.is_dir():
            raise _fault(errno.ENOTDIR)
        if not os.access(place, os.W_OK):
            raise _fault(errno.EACCES)


def _meant(path: str | Path) -> Path:
    """The resolved path; an unnamed pipe, as in /dev/fd, keeps its path, as it has no other."""
    given = Path(path)
    return given if given.exists() and not given.is_file() else given.resolve()


@contextmanager
def _faults_told(path: str | Path) -> Iterator[None]:
    """Turn system errors into PlannerError."""
    try:
        yield
    except OSError as error:
        raise PlannerError(
            f"{path} cannot be written: {error.strerror}.\n"
            "Give a path in a directory that exists and may be written."
        ) from None


def _fault(number: int) -> OSError:
    return OSError(number, os.strerror(number))


def make_directory(directory: Path) -> None:
    """Create a directory and its missing parents durably."""
    missing = [each for each in (directory, *directory.parents) if not each.exists()]
    directory.mkdir(parents=True, exist_ok=True)
    for made in reversed(missing):
        sync_directory(made.parent)


def sync_directory(directory: Path) -> None:
    """Make created or renamed entries of a directory durable."""
    descriptor = os.open(directory, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
