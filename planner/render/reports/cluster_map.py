"""Map of the cluster: zones, racks and nodes, and their GPU use before and after a plan."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from gpuplan.models.cluster import Level
from gpuplan.planner.render.hostlist import hostlist
from gpuplan.planner.render.reports.drawing import column
from gpuplan.planner.text_format import format_count, format_milli

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from markupsafe import Markup

    from gpuplan.planner.render.reports.nodes import NodePicture

MOST_LARGE: Final = 32
"""Nodes drawn large; if there are more, all are drawn small."""

_PER_COLUMN: Final = 16
"""Nodes per column; a larger rack, or nodes without a rack, take several columns."""


@dataclass(frozen=True, slots=True)
class Rack:
    """Nodes of one rack."""

    name: str
    nodes: tuple[NodePicture, ...]

    @property
    def changes(self) -> bool:
        """True if the plan changes anything in the rack."""
        return any(node.changes for node in self.nodes)

    @property
    def words(self) -> str:
        """`16 nodes, 64 → 120 of 128 GPUs`."""
        return _words(self.nodes)

    @property
    def columns(self) -> list[tuple[str, Markup]]:
        """Name and drawing of each column of nodes."""
        starts = range(0, len(self.nodes), _PER_COLUMN)
        parts = [self.nodes[start : start + _PER_COLUMN] for start in starts]
        return [
            (self.name or part[0].name if not number else "", column(part, _words(part)))
            for number, part in enumerate(parts)
        ]


@dataclass(frozen=True, slots=True)
class Zone:
    """Racks of one zone; an empty name stands for no zone."""

    name: str
    racks: tuple[Rack, ...]

    @property
    def nodes(self) -> list[NodePicture]:
        """Nodes of all racks."""
        return [node for rack in self.racks for node in rack.nodes]

    @property
    def words(self) -> str:
        """`16 nodes, 64 → 120 of 128 GPUs`."""
        return _words(self.nodes)

    @property
    def changed(self) -> list[Rack]:
        """Racks that the plan changes."""
        return [rack for rack in self.racks if rack.changes]

    @property
    def unchanged(self) -> list[Rack]:
        """Racks that the plan does not change."""
        return [rack for rack in self.racks if not rack.changes]

    @property
    def unchanged_names(self) -> str:
        """Names of the unchanged racks."""
        return hostlist(rack.name or "no rack" for rack in self.unchanged)


def group_by_zone(pictures: Iterable[NodePicture]) -> list[Zone]:
    """Group the nodes by zone and rack, both sorted by name."""
    found: dict[str, dict[str, list[NodePicture]]] = defaultdict(lambda: defaultdict(list))
    for picture in pictures:
        node = picture.node
        zone = "/".join(part for part in (node.region, node.zone) if part)
        found[zone][node.rack if node.domain(Level.RACK) else ""].append(picture)
    return [
        Zone(zone, tuple(Rack(rack, tuple(nodes)) for rack, nodes in sorted(racks.items())))
        for zone, racks in sorted(found.items())
    ]


def _words(nodes: Sequence[NodePicture]) -> str:
    with_gpus = [node for node in nodes if node.node.gpus]
    count = format_count(len(nodes), "node")
    if not with_gpus:
        return f"{count} without GPUs"
    before, after, offered = (
        format_milli(sum(getattr(node, name) for node in with_gpus))
        for name in ("used_before", "used_after", "offered")
    )
    used = after if before == after else f"{before} → {after}"
    return f"{count}, {used} of {offered} GPUs in use"
