"""The queue of a host as text."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from gpuplan.planner.render.table import Table, TableRow

if TYPE_CHECKING:
    from collections.abc import Sequence

    from gpuplan.planner.render.style import Style


def queue_text(rows: Sequence[dict[str, Any]], style: Style) -> str:
    """One line for each job."""
    if not rows:
        return "No jobs.\n"
    table = [
        TableRow((each["job"], each["state"], each["asks"], each["holds"], each["since"], each["reason"]))
        for each in rows
    ]
    lines = Table(table, ("JOB", "STATE", "ASKS FOR", "HOLDS", "SINCE", "REASON")).lines(style)
    return "\n".join(lines) + "\n"
