"""Files that are there complete or not at all, whenever the process or the machine stops."""

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
    """Put a text or bytes at a path, durably, in one step; a pipe or a device there is written through."""
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
    See that a file can be put at a path, as far as that can be known before it is.

    Raises
    ------
    PlannerError
        It cannot, for the reason told.
    """
    with _faults_told(path):
        target = _meant(path)
        if target.is_dir():
            raise _fault(errno.EISDIR)
        # What is a pipe or a device is written through; a file is replaced by another one beside it.
        place = target if target.exists() and not target.is_file() else target.parent
        place.stat()
        if place != target and not place.is_dir():
            raise _fault(errno.ENOTDIR)
        if not os.access(place, os.W_OK):
            raise _fault(errno.EACCES)


def _meant(path: str | Path) -> Path:
    """What a path leads to; a pipe without a name, as in /dev/fd, can be found by that path alone."""
    given = Path(path)
    return given if given.exists() and not given.is_file() else given.resolve()


@contextmanager
def _faults_told(path: str | Path) -> Iterator[None]:
    """What the system finds wrong, in the words of this product."""
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
    """Make a directory and those above it that are missing, durably."""
    missing = [each for each in (directory, *directory.parents) if not each.exists()]
    directory.mkdir(parents=True, exist_ok=True)
    for made in reversed(missing):
        sync_directory(made.parent)


def sync_directory(directory: Path) -> None:
    """Make names that were created or changed in a directory durable."""
    descriptor = os.open(directory, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
