"""The value of more nodes, as text: marginal values beside values found by planning again."""

from __future__ import annotations

from typing import TYPE_CHECKING

from gpuplan.planner.render.plan.header import request_lines
from gpuplan.planner.render.style import Style, Tone
from gpuplan.planner.render.table import TableRow, table

if TYPE_CHECKING:
    from gpuplan.planner.whatif.answers.sensitivity import NodeValue, Sensitivity, Step

_UNKNOWN = "?"


def sensitivity_text(found: Sensitivity, *, width: int, colour: bool, ascii_only: bool) -> str:
    """One line per kind of node, and notes that explain the columns."""
    style = Style(width=width, colour=colour, ascii_only=ascii_only)
    lines = [*request_lines("Value of more nodes", found, style), ""]
    lines += [*_table(found, style), ""] if found.kinds else []
    for failure in found.failures:
        lines += [style.paint(line, Tone.STOP) for line in style.wrap(failure, 0, hanging=2)]
    for note in _notes(found):
        lines += style.wrap(note, 0, hanging=2)
    return "\n".join(lines) + "\n"


def _table(found: Sensitivity, style: Style) -> list[str]:
    counts = [step.nodes for step in found.kinds[0].steps]
    rows = [
        TableRow(("", "", "MARGINAL", *("PLANNED" if index == 0 else "" for index, _ in enumerate(counts)))),
        TableRow(("NODE", "NOW", "+1", *(f"+{count:,}" for count in counts))),
        *(TableRow(_cells(kind)) for kind in found.kinds),
    ]
    return table(rows, style, right=range(1, 3 + len(counts)))


def _cells(kind: NodeValue) -> tuple[str, ...]:
    marginal = _UNKNOWN if kind.marginal is None else f"{kind.marginal:+,}"
    return kind.name, f"{kind.nodes:,}", marginal, *map(_gain, kind.steps)


def _gain(step: Step) -> str:
    return _UNKNOWN if step.gain is None else f"{step.gain:+,}"


def _notes(found: Sensitivity) -> list[str]:
    if not found.kinds:
        return ["There are neither nodes nor pools that there could be more of."]
    notes = [
        "Marginal: points that the linear relaxation gains with one node more; it may place parts of jobs."
    ]
    steps = [step for kind in found.kinds for step in kind.steps]
    if steps:
        planned = "Planned: points that the plan gains, made anew with so many nodes more"
        doubts = [step.doubt for step in steps]
        if any(doubt is None for doubt in doubts):
            notes.append(f"{planned}; how close these are to the best is not known.")
        elif doubt := max(doubt for doubt in doubts if doubt is not None):
            notes.append(f"{planned}; true to within {doubt:,} points, the largest gap of a plan.")
        else:
            notes.append(f"{planned} (proven best).")
    return notes
