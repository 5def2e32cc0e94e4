"""Map of the cluster: zones, racks and nodes, and their GPU use before and after a plan."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass
from html import escape
from typing import TYPE_CHECKING, Final

from markupsafe import Markup

from gpuplan.models.cluster import Level
from gpuplan.models.units import MILLI
from gpuplan.planner.render.reports.nodes import GpuPartChange, GpuSegment, NodePicture, Side
from gpuplan.planner.render.reports.page import (
    Block,
    Card,
    Cards,
    Drawing,
    Floor,
    Fold,
    Items,
    Legend,
    Text,
    look_of,
)
from gpuplan.planner.render.style import Tone
from gpuplan.planner.render.table import Table, TableRow
from gpuplan.planner.text_format import format_count, format_milli, hostlist, node_size

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence


MOST_LARGE: Final = 32
"""Nodes drawn large; if there are more, all are drawn small."""
_MOST_OPEN: Final = 200
"""Nodes of a zone without changes that are shown without a click."""
_PER_COLUMN: Final = 16
"""Nodes per column; a larger rack, or nodes without a rack, take several columns."""
_SMALL: Final = (
    "A node is a row of its GPUs, drawn twice: the thin strip is before, the thick one below it is after. "
    "Nodes are grouped by rack. Hover over a node, or open the tables, to read what changes on it."
)


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
    def columns(self) -> list[tuple[str, Markup]]:
        """Name and drawing of each column of nodes."""
        starts = range(0, len(self.nodes), _PER_COLUMN)
        parts = [self.nodes[start : start + _PER_COLUMN] for start in starts]
        return [
            (self.name or part[0].name if not number else "", column(part, nodes_text(part)))
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


def cluster_blocks(pictures: Sequence[NodePicture]) -> list[Block]:
    """The cluster before and after: few nodes drawn large, many drawn small in their racks."""
    sides = [
        side for node in pictures for device in node.devices for side in (device.before, device.after) if side
    ]
    looks = [
        ("free", "free"),
        ("kept", "in use, unchanged"),
        ("arrives", "arrives (after)"),
        ("leaves", "leaves (before)"),
        *([("idle", "idle MIG instance")] if any(side.mig for side in sides) else []),
        *([] if all(side.usable for side in sides) else [("off", "not usable")]),
    ]
    zones = group_by_zone(pictures)
    if len(pictures) <= MOST_LARGE:
        return [Legend(looks), *(block for zone in zones for block in _large_zone(zone))]
    return [Legend(looks), Text(_SMALL, "quiet"), *(block for zone in zones for block in _small_zone(zone))]


def _large_zone(zone: Zone) -> Iterator[Block]:
    if zone.name:
        yield Text(f"Zone {zone.name}", level=3, remark=nodes_text(zone.nodes))
    for rack in zone.racks:
        if rack.name:
            yield Text(f"Rack {rack.name}", level=3, remark=nodes_text(rack.nodes))
        yield Cards([_card(node) for node in rack.nodes])


def _card(node: NodePicture) -> Card:
    jobs = [
        *((look_of(Tone.START), job) for job in node.arriving),
        *((look_of(Tone.STOP), job) for job in node.leaving),
        *(("quiet", f"= {job}") for job in node.staying),
    ]
    used = Text(f"{node_size(node.node)} · {node.used}", "quiet")
    blocks = (used, Drawing(large_node(node)), Items(jobs, f"Jobs of {node.name}"))
    return Card(node.name, node.state, node.changes, blocks)


def _small_zone(zone: Zone) -> Iterator[Block]:
    name = f"zone {zone.name}" if zone.name else "no zone"
    changed = [rack for rack in zone.racks if rack.changes]
    unchanged = [rack for rack in zone.racks if not rack.changes]
    title = f"Zone {zone.name}" if zone.name else "No zone"
    yield Text(title, level=3, remark=nodes_text(zone.nodes))
    yield _floor(changed)
    if unchanged:
        names = hostlist(rack.name or "no rack" for rack in unchanged)
        told = f"{format_count(len(unchanged), 'rack')} unchanged"
        opened = not changed and len(zone.nodes) <= _MOST_OPEN
        yield Fold(told, [_floor(unchanged)], names, opened=opened)
    rows = [
        TableRow((node.name, node.state, rack.name, node.used), ", ".join((*node.arriving, *node.leaving)))
        for rack in zone.racks
        for node in rack.nodes
    ]
    table = Table(rows, ("Node", "State", "Rack", "Used"), note="Changes")
    yield Fold(f"Nodes of {name} as a table", [table])


def _floor(racks: Iterable[Rack]) -> Floor:
    return Floor([(f"{rack.name or 'no rack'}: {nodes_text(rack.nodes)}", rack.columns) for rack in racks])


def nodes_text(nodes: Sequence[NodePicture]) -> str:
    """`16 nodes, 64 → 120 of 128 GPUs in use`."""
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


# Nodes as SVG: large, with text on arriving and leaving parts, or small enough to draw a whole data centre.
#
# A small node is two strips: a thin one for before, above a thick one for after. Arriving parts are only in
# the lower strip and leaving parts only in the upper one, so that the drawing can be read without colours.


_PER_ROW: Final = 8
"""GPUs per row."""


_CELL: Final = 7
"""Width of a GPU in a small node."""
_THIN: Final = 4
"""Height of the strip for before."""
_THICK: Final = 9
"""Height of the strip for after."""
_STRIPS: Final = _THIN + 1 + _THICK
_GUTTER: Final = 9
"""Space left of the nodes of a rack for the sign of a node's change."""
_NODE_GAP: Final = 3


@dataclass(frozen=True, slots=True)
class _DrawingScale:
    """Width and height of a GPU in a large node."""

    wide: int
    tall: int


_WHOLE: Final = _DrawingScale(34, 34)
_SLICED: Final = _DrawingScale(71, 96)
"""Size for nodes with GPUs in MIG mode, so that each instance has room for its text."""
_GAP: Final = 3
_CAPTION: Final = 14
_READABLE: Final = 9
"""Least height of a part with text."""

_STATE_SIGNS: Final = {"added": "+", "removed": "−", "down": "×", "to be drained": "!", "cordoned": "!"}


def column(nodes: Sequence[NodePicture], label: str) -> Markup:
    """A column of small nodes."""
    y, drawn = 0, []
    width = _GUTTER + max(min(len(node.devices), _PER_ROW) for node in nodes) * (_CELL + 1)
    for node in nodes:
        height = -(-len(node.devices) // _PER_ROW) * (_STRIPS + 1) - 1
        drawn.append(_small_node(node, y, width, height))
        y += height + _NODE_GAP
    return _svg("column", width, y - _NODE_GAP, "".join(drawn), label)


def _small_node(node: NodePicture, y: int, width: int, height: int) -> str:
    """Both strips of a node; parts that look the same share one path."""
    paths: dict[str, list[str]] = defaultdict(list)
    for number, device in enumerate(node.devices):
        row, place = divmod(number, _PER_ROW)
        left = _GUTTER + place * (_CELL + 1)
        top = y + row * (_STRIPS + 1)
        _add_cell(paths, device.before, left, top + _THIN, _THIN)
        _add_cell(paths, device.after, left, top + _STRIPS, _THICK)
    shapes = "".join(f'<path class="{name}" d="{"".join(d)}"/>' for name, d in paths.items())
    sign = _STATE_SIGNS.get(node.state, "")
    text = f'<text x="0" y="{y + height - 3}">{sign}</text>' if sign else ""
    hover = f'<path class="hover" d="{_rectangle(0, y, width, height)}"/>'
    return f"<g><title>{escape(node.words)}</title>{hover}{shapes}{text}</g>"


def _add_cell(paths: dict[str, list[str]], side: Side | None, left: int, foot: int, tall: int) -> None:
    if side is None:
        return
    if side.usable:
        paths["free"].append(_rectangle(left, foot - tall, _CELL, tall))
    else:
        paths["off"].append(f"M{left} {foot}l{_CELL}-{tall}m0 {tall}l-{_CELL}-{tall}")
    for part in side.parts:
        top = foot - tall * (part.start + part.size) / MILLI
        # Leave a space between MIG instances, so that adjacent ones can be told apart.
        height = max(0.6, tall * part.size / MILLI - (0.4 if part.profile else 0))
        paths[part.fate].append(_rectangle(left, top, _CELL, height))


def large_node(node: NodePicture) -> Markup:
    """One large node: before above after, or one drawing if nothing changes."""
    sides = [side for device in node.devices for side in (device.before, device.after) if side]
    scale, per_row = (_SLICED, _PER_ROW // 2) if any(side.mig for side in sides) else (_WHOLE, _PER_ROW)
    rows = [node.devices[start : start + per_row] for start in range(0, len(node.devices), per_row)]
    y, drawn = 0, []
    for which in ("before", "after") if node.changes else ("unchanged",):
        drawn.append(f'<text class="caption" x="0" y="{y + _CAPTION - 4}">{which}</text>')
        y += _CAPTION
        for row in rows:
            for place, device in enumerate(row):
                side = device.before if which == "before" else device.after
                drawn.append(_large_cell(device.name, side, (place * (scale.wide + _GAP), y), scale))
            y += scale.tall + _GAP
        y += _GAP
    width = max(map(len, rows)) * (scale.wide + _GAP) - _GAP
    return _svg("large", max(width, 2 * _WHOLE.wide), y - _GAP, "".join(drawn), node.words)


def _large_cell(name: str, side: Side | None, corner: tuple[int, int], scale: _DrawingScale) -> str:
    left, top = corner
    wide, tall = scale.wide, scale.tall
    if side is None:
        return f'<path class="absent" d="{_rectangle(left, top, wide, tall)}"/>'
    frame = f'<path class="free" d="{_rectangle(left, top, wide, tall)}"/>'
    if not side.usable:
        frame += f'<path class="off" d="M{left} {top}l{wide} {tall}m0-{tall}l-{wide} {tall}"/>'
    title = f"<title>{escape(name)}: {'free' if side.usable else 'not usable'}</title>"
    parts = "".join(_large_part(name, part, (left, top + tall), scale) for part in side.parts)
    return f"<g>{title}{frame}{parts}</g>"


def _large_part(name: str, part: GpuSegment, corner: tuple[int, int], scale: _DrawingScale) -> str:
    left, foot = corner
    top = foot - scale.tall * (part.start + part.size) / MILLI
    height = scale.tall * part.size / MILLI
    inset = 0.7 if part.profile else 0.0
    shape = _rectangle(left + inset, top + inset, scale.wide - 2 * inset, height - 2 * inset)
    told = " ".join(word for word in (part.profile, part.job or "idle") if word)
    text = ""
    if height >= _READABLE and (word := _word(part)):
        middle = top + height / 2 + 3
        text = (
            f'<text class="on-{part.fate}" x="{left + scale.wide / 2:g}" y="{middle:g}">{escape(word)}</text>'
        )
    title = f"<title>{escape(name)}: {escape(told)}</title>"
    return f'<g>{title}<path class="{part.fate}" d="{shape}"/>{text}</g>'


def _word(part: GpuSegment) -> str:
    """The text on a part: the sign of the action, and the profile of a MIG instance."""
    sign = part.job[:1] if part.fate in (GpuPartChange.ARRIVES, GpuPartChange.LEAVES) else ""
    return " ".join(word for word in (sign, part.profile) if word)


def _rectangle(left: float, top: float, width: float, height: float) -> str:
    return f"M{_short(left)} {_short(top)}h{_short(width)}v{_short(height)}h-{_short(width)}z"


def _short(length: float) -> str:
    return f"{round(length, 1):g}"


def _svg(kind: str, width: int, height: int, drawn: str, label: str) -> Markup:
    return Markup(  # noqa: S704 - every text in it was escaped above
        f'<svg class="{kind}" role="img" aria-label="{escape(label)}" width="{width}" height="{height}" '
        f'viewBox="0 0 {width} {height}">{drawn}</svg>'
    )
