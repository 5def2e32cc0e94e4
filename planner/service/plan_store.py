"""The folder of a run's plans: one file per epoch, and a link to the last good one."""

from __future__ import annotations

import re
import secrets
from typing import TYPE_CHECKING, Final

from gpuplan.models.errors import PlannerError
from gpuplan.planner.io.atomic_write import make_directory, sync_directory
from gpuplan.planner.plan_file.plan_file import load_plan, save_plan

if TYPE_CHECKING:
    from pathlib import Path

    from gpuplan.models.plan.plan import Plan

LATEST: Final = "latest.json"

_NAME: Final = re.compile(r"(\d{6,})-[0-9a-f]{8}\.json")

_DRAFT: Final = re.compile(rf"\.({_NAME.pattern}|{re.escape(LATEST)})\.[0-9a-f]{{8}}\.tmp")
"""Names of drafts that a run leaves behind if it is killed during a write."""


class PlanStore:
    """The plans of the last `keep` epochs; older plans are deleted."""

    def __init__(self, folder: Path, *, keep: int) -> None:
        self.folder = folder
        self._keep = keep
        latest = folder / LATEST
        if latest.exists() and not latest.is_symlink():
            raise PlannerError(
                f"plans cannot be kept in {folder}: {LATEST} there is a file, not a link to the last plan.\n"
                "Give another folder, or give that file another name."
            )
        try:
            make_directory(folder)
            for path in folder.iterdir():
                if _DRAFT.fullmatch(path.name):
                    path.unlink(missing_ok=True)
        except OSError as error:
            raise PlannerError(
                f"plans cannot be kept in {folder}: {error.strerror}.\n"
                "Give a folder that exists or can be made, and may be written."
            ) from None

    def save(self, plan: Plan, number: int) -> Path:
        """Write an epoch's plan, and point `latest.json` to it; each step is atomic."""
        path = self.folder / f"{number:06d}-{plan.plan_id[:8]}.json"
        save_plan(plan, path)
        try:
            draft = self.folder / f".{LATEST}.{secrets.token_hex(4)}.tmp"
            draft.symlink_to(path.name)
            draft.replace(self.folder / LATEST)
            sync_directory(self.folder)
            self._forget_old(path)
        except OSError as error:
            raise PlannerError(
                f"{self.folder / LATEST} cannot be set: {error.strerror}.\nThe plan is at {path}."
            ) from None
        return path

    def latest(self) -> Plan | None:
        """
        The last plan that was saved; None if there is none.

        Raises
        ------
        PlannerError
            The plan cannot be read, or was edited.
        """
        path = self.folder / LATEST
        return load_plan(path) if path.exists() else None

    def _forget_old(self, newest: Path) -> None:
        # Sort by file time first, since numbers restart with a new history. The newest plan is exempt, since
        # a clock that was set back gives it an old time.
        others = [
            (path.stat().st_mtime_ns, int(found[1]), path)
            for path in self.folder.iterdir()
            if path != newest and (found := _NAME.fullmatch(path.name))
        ]
        for *_, path in sorted(others)[: max(0, len(others) + 1 - self._keep)]:
            path.unlink(missing_ok=True)
