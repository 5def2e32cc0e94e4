"""What a run reads again for each epoch, its policy and facts of hosts, and the folder of its plans."""

from __future__ import annotations

import logging
import re
import secrets
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Final, TypeAlias

from gpuplan.models.errors import BadInputError, PlannerError
from gpuplan.models.health.measurement import Measurement, joined
from gpuplan.models.units import print_seconds
from gpuplan.planner.analysis.policy_changes import changed_knobs
from gpuplan.planner.approval.approvals_file import approvals_path
from gpuplan.planner.io.atomic_write import hash_path, make_directory, sync_directory
from gpuplan.planner.plan_file.plan_file import load_plan, save_plan
from gpuplan.planner.service.event_log import log_event
from gpuplan.planner.service.history import KnobChange
from gpuplan.planner.sources.dcgm.merge import merge_telemetry
from gpuplan.planner.sources.files import default_policy_path, document_files, load_policy, load_snapshot
from gpuplan.planner.sources.nvml.merge import merge_hosts

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from gpuplan.models.plan.plan import Plan
    from gpuplan.models.policy.policy import Policy
    from gpuplan.models.snapshot import Snapshot
    from gpuplan.planner.sources.dcgm.merge import Telemetry

    ReadTelemetry: TypeAlias = Callable[[str, datetime], Telemetry]
    """Asks the Prometheus at a URL what GPUs did up to an instant."""


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
            hash_path(path).unlink(missing_ok=True)


# Facts of hosts in a run: files that they write of their GPUs, and telemetry, read in each epoch.


_LOG: Final = logging.getLogger(__name__)
_LONGEST_GAP: Final = timedelta(minutes=10)
"""Time between two looks at a GPU from which what both see is not taken to have lasted."""
_LONGEST_KEPT: Final = timedelta(minutes=15)
"""Age of the last telemetry from which it no longer counts, while a Prometheus does not answer."""


@dataclass(slots=True)
class LastLooks:
    """The last look at each GPU: heat and idleness that are seen at each look are taken to last."""

    _seen: dict[tuple[str, int], tuple[datetime, Measurement]] = field(default_factory=dict)

    def joined(self, snapshot: Snapshot) -> Snapshot:
        """The snapshot in which what GPUs do has lasted since earlier looks; the same one may come again."""
        if not snapshot.measured:
            return snapshot
        measured = tuple(self._lasting(each, snapshot.taken_at) for each in snapshot.measured)
        return snapshot.model_copy(update={"measured": measured})

    def _lasting(self, now: Measurement, at: datetime) -> Measurement:
        key = now.node, now.index
        before_at, before = self._seen.get(key, (at, now))
        if at < before_at:
            return now
        if at == before_at:
            found = before
        elif at - before_at <= _LONGEST_GAP:
            found = joined(before, now, int((at - before_at).total_seconds()))
        else:
            found = now
        self._seen[key] = at, found
        return found


@dataclass(slots=True)
class HostFacts:
    """Files and folders with readings of hosts, and URLs of telemetry; a run goes on without what fails."""

    paths: tuple[Path, ...] = ()
    urls: tuple[str, ...] = ()
    read: ReadTelemetry | None = None
    _told: set[str] = field(default_factory=set)
    """Notes of the last epoch, without their durations: each is logged when it is new."""
    _looks: LastLooks = field(default_factory=LastLooks)
    _last: dict[str, Telemetry] = field(default_factory=dict)
    """The last telemetry of each URL."""

    def merged(self, snapshot: Snapshot) -> Snapshot:
        """The snapshot with the facts of hosts; one that contradicts it in its file takes no new jobs."""
        snapshot = self._looks.joined(snapshot)
        if not self.paths and not self.urls:
            return snapshot
        notes: list[str] = []
        found = merge_hosts(snapshot, self._hosts(notes), closing=True)
        notes += found.notes
        for url in self.urls:
            if (telemetry := self._telemetry(url, snapshot.taken_at, notes)) is not None:
                found = merge_telemetry(found.snapshot, telemetry, closing=True)
                notes += found.notes
        self._log(notes)
        return found.snapshot

    def _hosts(self, notes: list[str]) -> list[tuple[str, Snapshot]]:
        """The readings of hosts, each with its file."""
        hosts: list[tuple[str, Snapshot]] = []
        for path in self.paths:
            try:
                files = document_files(path)
            except BadInputError as error:
                files = []
                notes += map(str, error.problems)
            for file in files:
                try:
                    hosts.append((str(file), self._looks.joined(load_snapshot(str(file)))))
                except BadInputError as error:
                    notes += map(str, error.problems)
        return hosts

    def _telemetry(self, url: str, at: datetime, notes: list[str]) -> Telemetry | None:
        """What a Prometheus tells; if it fails, what it told last, unless that is old."""
        if self.read is None:
            return None
        try:
            self._last[url] = self.read(url, at)
        except PlannerError as error:
            last = self._last.get(url)
            kept = last is not None and at - last.at <= _LONGEST_KEPT
            age = print_seconds(max(0, int((at - last.at).total_seconds()))) if last else ""
            use = f"what it told {age} before counts" if kept else "its GPUs are not judged"
            notes.append(f"{' '.join(str(error).split())} Until it answers, {use}.")
            return last if kept else None
        return self._last[url]

    def _log(self, notes: list[str]) -> None:
        """Log each note that the last epoch did not have."""
        by_kind = {re.sub(r"\b(\d+[hms])+\b", "", each): each for each in notes}
        for kind in sorted(by_kind.keys() - self._told):
            log_event(_LOG, "host", level=logging.WARNING, note=by_kind[kind])
        self._told = set(by_kind)
