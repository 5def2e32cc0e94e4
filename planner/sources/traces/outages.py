"""Outages: when nodes fail and when they return, from a CSV file."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING, Final

from gpuplan.models.errors import truncated_names
from gpuplan.planner.sources.traces.csv_rows import CsvFile

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from gpuplan.models.cluster import Cluster
    from gpuplan.planner.sources.traces.csv_rows import CsvRow

_COLUMNS: Final = ("second", "node", "event")
_LATEST: Final = 100 * 366 * 24 * 3600


class NodeEvent(StrEnum):
    """An event of a node."""

    FAILS = "fails"
    RETURNS = "returns"


@dataclass(frozen=True, slots=True)
class Outage:
    """A node that fails or returns."""

    after: int
    """Seconds from the start of the simulation."""
    node: str
    event: NodeEvent


def read_outages(path: Path, cluster: Cluster) -> tuple[Outage, ...]:
    """
    Read which nodes of a cluster fail and return, by time and node.

    Raises
    ------
    BadInputError
        With all problems of the file.
    """
    file = CsvFile(
        path, what="a list of outages, such as one with the lines second,node,event and 3600,n0,fails"
    )
    found = file.read(_outages(file, cluster))
    return tuple(sorted(found, key=lambda outage: (outage.after, outage.node, outage.event)))


def _outages(file: CsvFile, cluster: Cluster) -> Iterator[Outage]:
    names = cluster.node_by_name
    for row in file.rows(*_COLUMNS):
        node = row.name("node")
        if node not in names and "node" not in row.faulty:
            row.complain("node", f"a node of the cluster ({truncated_names(names) or 'it has none'})")
        yield Outage(after=row.whole("second", most=_LATEST), node=node, event=_event(row))


def _event(row: CsvRow) -> NodeEvent:
    try:
        return NodeEvent(row.text("event"))
    except ValueError:
        row.complain("event", "fails or returns")
        return NodeEvent.FAILS
