"""`gpuplan search-log`: how a search went that `plan --search-log` wrote down."""

from __future__ import annotations

from pathlib import Path

import click

from planner.cli.options import ascii_only, terminal_width, wants_colour

_PICTURES = (".svg", ".png")


@click.command("search-log")
@click.argument("log_file")
@click.option(
    "-o",
    "--out",
    type=click.Path(path_type=Path),
    help="Draw the gap over time to this file: .svg or .png.",
)
@click.option("--ascii", "plain", is_flag=True, help="No characters beyond ASCII.")
def search_log_command(log_file: str, out: Path | None, plain: bool) -> None:
    """Show how a search went: objective, bound and gap over time, from a log of plan --search-log."""
    from planner.rendering.search import search_text
    from planner.rendering.style import Style
    from planner.search import read_search

    if out is not None and out.suffix.lower() not in _PICTURES:
        raise click.BadParameter(
            f"expected a name that ends in .svg or .png, found {out}", param_hint="--out"
        )
    search = read_search(log_file)
    style = Style(width=terminal_width(), colour=wants_colour(), ascii_only=plain or ascii_only())
    click.echo(search_text(search, style), nl=False)
    if out is None:
        return
    from planner.rendering.charts.gap import gap_chart

    out.write_bytes(gap_chart(search, out.suffix.lower().removeprefix(".")))
