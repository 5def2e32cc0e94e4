"""Facts of hosts in a run: files that they write of their GPUs, and telemetry, read in each epoch."""

from __future__ import annotations

import logging
import re
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Final, TypeAlias

from gpuplan.models.errors import BadInputError, PlannerError
from gpuplan.models.health.measurement import Measurement, joined
from gpuplan.models.units import print_seconds
from gpuplan.planner.service.event_log import log_event
from gpuplan.planner.sources.dcgm.merge import merge_telemetry
from gpuplan.planner.sources.files import document_files, load_snapshot
from gpuplan.planner.sources.nvml.merge import merge_hosts

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from gpuplan.models.snapshot import Snapshot
    from gpuplan.planner.sources.dcgm.gpu_telemetry import Telemetry

    ReadTelemetry: TypeAlias = Callable[[str, datetime], Telemetry]
    """Asks the Prometheus at a URL what GPUs did up to an instant."""

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
