"""Files that are there complete or not at all, whenever the process or the machine stops."""

from __future__ import annotations

import os
import secrets
from pathlib import Path

from planner.models.errors import PlannerError


def write_atomically(path: str | Path, text: str) -> None:
    """Put the text at a path, durably, in one step; a pipe or a device there is written through."""
    target = Path(path).resolve()
    try:
        if target.exists() and not target.is_file():
            target.write_text(text, encoding="utf-8")
            return
        draft = target.with_name(f".{target.name}.{secrets.token_hex(4)}.tmp")
        try:
            with draft.open("x", encoding="utf-8") as file:
                file.write(text)
                file.flush()
                os.fsync(file.fileno())
            draft.replace(target)
        finally:
            draft.unlink(missing_ok=True)
        sync_directory(target.parent)
    except OSError as error:
        raise PlannerError(
            f"{path} cannot be written: {error.strerror}.\n"
            "Give a path in a directory that exists and may be written."
        ) from None


def sync_directory(directory: Path) -> None:
    """Make names that were created or changed in a directory durable."""
    descriptor = os.open(directory, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
