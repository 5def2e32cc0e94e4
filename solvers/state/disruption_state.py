"""How running jobs leave their places."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum


class DisruptionKind(StrEnum):
    """How a running job leaves its places."""

    STOP = "stop"
    """Preempted: it waits again."""
    MOVE = "move"
    """Migrated: it runs elsewhere."""
    SHRINK = "shrink"
    """Shrunk: it runs with some of its replicas only."""


@dataclass(frozen=True, slots=True)
class JobDisruption:
    """A running job that does not keep all its places."""

    kind: DisruptionKind
    given_up: frozenset[int]
    """Positions in its `holds`."""
