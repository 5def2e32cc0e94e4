"""`gpuplan search-log`: shows a search that `plan --search-log` has logged."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from gpuplan.planner.cli.options import ANY_PATH
from gpuplan.planner.cli.outputs import PICTURE, WritingCommand, show_text

if TYPE_CHECKING:
    from pathlib import Path


@click.command("search-log", cls=WritingCommand, epilog="Example: gpuplan search-log search.jsonl -o gap.svg")
@click.argument("log_file", type=ANY_PATH)
@click.option("-o", "--out", type=PICTURE, help="Draw the gap over time to this file: .svg or .png.")
@click.option("--ascii", "plain", is_flag=True, help="No characters beyond ASCII.")
def search_log_command(log_file: str, out: Path | None, plain: bool) -> None:
    """Show the course of a search from a log of plan --search-log."""
    from gpuplan.planner.io.search_log import read_search
    from gpuplan.planner.render.logs import search_text

    search = read_search(log_file)
    show_text(search, search_text, plain=plain)
    if out is None:
        return
    from gpuplan.planner.io.atomic_write import write_atomically
    from gpuplan.planner.render.charts import gap_chart

    write_atomically(out, gap_chart(search, out.suffix.lower().removeprefix(".")))
