"""Files of a run: its policy, read again for each epoch, and the folder of its plans."""

from __future__ import annotations

import re
import secrets
from typing import TYPE_CHECKING, Final

from gpuplan.models.errors import PlannerError
from gpuplan.planner.analysis.policy_changes import changed_knobs
from gpuplan.planner.approval.approvals_file import approvals_path
from gpuplan.planner.io.atomic_write import make_directory, sync_directory
from gpuplan.planner.plan_file.plan_file import load_plan, save_plan
from gpuplan.planner.service.history import KnobChange
from gpuplan.planner.sources.files import default_policy_path, load_policy

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from gpuplan.models.plan.plan import Plan
    from gpuplan.models.policy.policy import Policy


class LastReadPolicy:
    """The last policy that could be read."""

    def __init__(self, read: Callable[[], Policy]) -> None:
        """Read the policy for the first time; a run does not begin without one."""
        self._read = read
        self.policy = read()
        self.error = ""
        """Why the policy differs from its file; empty if it does not."""
        self._told = self.policy

    def compare_with(self, policy: Policy) -> None:
        """Let the next `reread` report the changes from this policy of an earlier run."""
        self._told = policy

    def reread(self) -> tuple[KnobChange, ...]:
        """Read the policy again; returns the changes since the last report."""
        try:
            self.policy = self._read()
        except PlannerError as error:
            self.error = str(error)
        except Exception as error:  # noqa: BLE001 - whatever is wrong with the new one, the old one is good
            self.error = f"it cannot be read: {type(error).__name__}: {error}"
        else:
            self.error = ""
        before, self._told = self._told, self.policy
        return knob_changes(before, self.policy)


def policy_reader(policy_file: str | None, source: str) -> Callable[[], Policy]:
    """
    A function that reads the policy file: the given one, else the one in the directory of the source.

    A file that existed before and is gone is an error. Otherwise its approval rules would no longer apply.
    """
    known = policy_file

    def read() -> Policy:
        nonlocal known
        if policy_file is None:
            known = default_policy_path(source) or known
        return load_policy(known)

    return read


def knob_changes(old: Policy, new: Policy) -> tuple[KnobChange, ...]:
    """The knobs that differ between two policies."""
    return tuple(
        KnobChange(knob=path, old=before, new=after) for path, before, after in changed_knobs(old, new)
    )


# The folder of a run's plans: one file per epoch, and a link to the last good one.


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
            approvals_path(path).unlink(missing_ok=True)
