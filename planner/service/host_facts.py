"""Files that hosts write of their GPUs, read again in each epoch of a run."""

from __future__ import annotations

import logging
import re
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from gpuplan.models.errors import BadInputError
from gpuplan.planner.service.event_log import log_event
from gpuplan.planner.sources.files import document_files, load_snapshot
from gpuplan.planner.sources.nvml.merge import merge_hosts

if TYPE_CHECKING:
    from pathlib import Path

    from gpuplan.models.snapshot import Snapshot

_LOG: Final = logging.getLogger(__name__)


@dataclass(slots=True)
class HostFiles:
    """Files and folders with readings of hosts; a run goes on without those that cannot be used."""

    paths: tuple[Path, ...]
    _told: set[str] = field(default_factory=set)
    """Notes of the last epoch, without their durations: each is logged when it is new."""

    def merged(self, snapshot: Snapshot) -> Snapshot:
        """The snapshot with the facts of the hosts; a host that contradicts it takes no new jobs."""
        if not self.paths:
            return snapshot
        hosts: list[tuple[str, Snapshot]] = []
        notes: list[str] = []
        for path in self.paths:
            try:
                files = document_files(path)
            except BadInputError as error:
                files = []
                notes += map(str, error.problems)
            for file in files:
                try:
                    hosts.append((str(file), load_snapshot(str(file))))
                except BadInputError as error:
                    notes += map(str, error.problems)
        found = merge_hosts(snapshot, hosts, closing=True)
        notes += found.notes
        by_kind = {re.sub(r"\b(\d+[hms])+\b", "", each): each for each in notes}
        for kind in sorted(by_kind.keys() - self._told):
            log_event(_LOG, "host", level=logging.WARNING, note=by_kind[kind])
        self._told = set(by_kind)
        return found.snapshot
