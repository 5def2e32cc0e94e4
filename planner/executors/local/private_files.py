"""
Durable files that only their owner can read.

Used by supervisors too, so it needs the standard library alone.
"""

from __future__ import annotations

import json
import os
import secrets
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pathlib import Path


def write_private(path: Path, content: Any) -> None:
    """Replace a JSON file atomically and durably; only its owner can read it."""
    draft = _draft(path, content)
    try:
        draft.replace(path)
    finally:
        draft.unlink(missing_ok=True)
    _sync(path.parent)


def create_private(path: Path, content: Any) -> bool:
    """Create a JSON file with all of its content; False if it exists. One of several callers succeeds."""
    draft = _draft(path, content)
    try:
        os.link(draft, path)
    except FileExistsError:
        return False
    finally:
        draft.unlink(missing_ok=True)
    _sync(path.parent)
    return True


def read_json(path: Path) -> Any:
    """The content of a JSON file; None if there is none."""
    try:
        return json.loads(path.read_bytes())
    except FileNotFoundError:
        return None


def _draft(path: Path, content: Any) -> Path:
    draft = path.with_name(f".{path.name}.{secrets.token_hex(4)}.tmp")
    descriptor = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    try:
        with os.fdopen(descriptor, "wb") as file:
            file.write(json.dumps(content, sort_keys=True).encode())
            file.flush()
            os.fsync(file.fileno())
    except BaseException:
        draft.unlink(missing_ok=True)
        raise
    return draft


def _sync(directory: Path) -> None:
    descriptor = os.open(directory, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
