"""Atomic and durable file writes: after a crash a file is complete or absent; hashes beside large files."""

from __future__ import annotations

import errno
import os
import secrets
from contextlib import contextmanager, suppress
from hashlib import sha256
from pathlib import Path
from typing import TYPE_CHECKING, Final

from gpuplan.models.errors import PlannerError

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator


PRIVATE_FILE: Final = 0o600
"""Mode of state, audit logs, plans and approvals, whatever the umask allows."""

_HASH: Final = ".sha256"

PRIVATE_FOLDER: Final = 0o700
"""Mode of the folders made for them."""


def write_atomically(
    path: str | Path, content: str | bytes | Iterator[bytes], *, private: bool = False
) -> None:
    """
    Replace the file at a path atomically and durably; a pipe or device is written directly.

    Only its owner may read a `private` file. The content may come in pieces.
    """
    with _faults_told(path):
        target = _meant(path)
        if target.exists() and not target.is_file():
            with target.open("wb") as there:
                there.writelines(_in_bytes(content))
            return
        # In the same folder: a rename is atomic within one file system only.
        draft = target.with_name(f".{target.name}.{secrets.token_hex(4)}.tmp")
        try:
            with open(draft, "xb", opener=_private if private else None) as file:
                file.writelines(_in_bytes(content))
                file.flush()
                # Before the rename: otherwise a crash of the host may leave the new name without the content.
                os.fsync(file.fileno())
            draft.replace(target)
        finally:
            draft.unlink(missing_ok=True)
        # The rename itself lasts only once its folder is on disk.
        sync_directory(target.parent)


def write_with_hash(path: str | Path, content: Iterator[bytes], *, private: bool = False) -> None:
    """
    The same, and then the hash of the content to `hash_path`, unless the path is a pipe or a device.

    After a crash between the two a hash that was there before is that of another content (`remove_hash`).
    """
    digest = sha256()

    def hashed() -> Iterator[bytes]:
        for piece in content:
            digest.update(piece)
            yield piece

    write_atomically(path, hashed(), private=private)
    if Path(path).is_file():
        beside = hash_path(path)
        write_atomically(beside, _hash_line(beside, digest.hexdigest()), private=private)


def remove_hash(path: str | Path) -> None:
    """
    Remove the hash beside a file.

    It goes before the file is replaced: no crash leaves a hash beside content that it is not of.
    """
    with _faults_told(path):
        hash_path(path).unlink(missing_ok=True)


def hash_path(path: str | Path) -> Path:
    """The file beside a file with the hash of its content, as sha256sum writes and checks it."""
    target = Path(path).resolve()
    return target.with_name(target.name + _HASH)


def has_hash(path: str | Path, content: bytes) -> bool:
    """True if the hash beside a file is that of this content."""
    beside = hash_path(path)
    try:
        found = beside.read_bytes()
    except OSError:
        return False
    return found == _hash_line(beside, sha256(content).hexdigest()).encode()


def _hash_line(beside: Path, digest: str) -> str:
    return f"{digest}  {beside.name.removesuffix(_HASH)}\n"


def _in_bytes(content: str | bytes | Iterator[bytes]) -> Iterable[bytes]:
    if isinstance(content, str):
        return (content.encode(),)
    return (content,) if isinstance(content, bytes) else content


def _private(path: str, flags: int) -> int:
    # From its creation on: a chmod afterwards would leave a moment in which others can open it.
    return os.open(path, flags, PRIVATE_FILE)


def create_private(path: Path) -> None:
    """Create an empty file that only its owner may read, unless the path exists."""
    with suppress(FileExistsError):
        os.close(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, PRIVATE_FILE))


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
            "Give a path in a directory that exists and may be written, on a disk with room."
        ) from None


def _fault(number: int) -> OSError:
    return OSError(number, os.strerror(number))


def make_directory(directory: Path) -> None:
    """Create a directory and its missing parents durably; only their owner may enter these."""
    missing = [each for each in (directory, *directory.parents) if not each.exists()]
    # From the top: each new folder is an entry of the one above, which has to be durable by then.
    for each in reversed(missing):
        each.mkdir(PRIVATE_FOLDER, exist_ok=True)
        sync_directory(each.parent)


def sync_directory(directory: Path) -> None:
    """Make created or renamed entries of a directory durable."""
    descriptor = os.open(directory, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
