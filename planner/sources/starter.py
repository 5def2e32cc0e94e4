"""Starters: small scenarios with cluster, queues, jobs and an explained policy, as files to edit."""

from __future__ import annotations

import secrets
import shutil
from importlib import resources
from typing import TYPE_CHECKING, Final

from gpuplan.models.errors import PlannerError
from gpuplan.planner.io.atomic_write import sync_directory, write_atomically

if TYPE_CHECKING:
    from pathlib import Path

STARTERS: Final = ("training", "inference", "research", "batch")
"""Kinds of clusters with a starter."""


def write_starter(folder: Path, kind: str) -> list[Path]:
    """
    Write one of `STARTERS` into a new folder in one step, and return the files.

    Raises
    ------
    PlannerError
        The folder exists already, or cannot be made.
    """
    texts = starter_texts(kind)
    target = folder.resolve()
    if target.exists():
        raise PlannerError(f"{folder} is there already.\nGive the name of a new folder.")
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        draft = target.with_name(f".{target.name}.{secrets.token_hex(4)}.tmp")
        draft.mkdir()
        try:
            for name, text in texts.items():
                write_atomically(draft / name, text)
            draft.rename(target)
        finally:
            shutil.rmtree(draft, ignore_errors=True)
        sync_directory(target.parent)
    except OSError as error:
        raise PlannerError(
            f"{folder} cannot be made: {error.strerror}.\nGive the name of a new folder."
        ) from None
    return [folder / name for name in texts]


def starter_texts(kind: str) -> dict[str, str]:
    """The files of one of `STARTERS` by name."""
    root = resources.files("gpuplan.planner") / "starters"
    files = [file for part in ("common", kind) for file in (root / part).iterdir()]
    return {file.name: file.read_text(encoding="utf-8") for file in sorted(files, key=lambda file: file.name)}
