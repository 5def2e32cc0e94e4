"""Option types and the few things all commands do with the terminal."""

from __future__ import annotations

import os
import shutil
import sys
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import click

if TYPE_CHECKING:
    from collections.abc import Iterator

PIPE_WIDTH = 100
"""Columns of text that goes to a file or a pipe."""


class Duration(click.ParamType[int]):
    """`90s`, `10m`, `1h30m`; converted to milliseconds."""

    name = "duration"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> int:
        """Milliseconds of a duration."""
        if isinstance(value, int):
            return value
        from planner.models.units import parse_milliseconds

        try:
            return parse_milliseconds(value)
        except ValueError as error:
            self.fail(str(error), param, ctx)


def terminal_width() -> int:
    """Columns to write in."""
    return shutil.get_terminal_size().columns if sys.stdout.isatty() else PIPE_WIDTH


def wants_colour() -> bool:
    """Colour only on a terminal that has not asked for none (no-color.org)."""
    return sys.stdout.isatty() and "NO_COLOR" not in os.environ and os.environ.get("TERM") != "dumb"


def ascii_only() -> bool:
    """True if standard output cannot carry × and ≤."""
    try:
        "×≤…".encode(sys.stdout.encoding or "ascii")
    except UnicodeEncodeError:
        return True
    return False


@contextmanager
def working(what: str) -> Iterator[None]:
    """Show on a terminal that something is going on; silent elsewhere."""
    if not sys.stderr.isatty():
        yield
        return
    from rich.console import Console
    from rich.progress import Progress, SpinnerColumn, TextColumn, TimeElapsedColumn

    columns = (SpinnerColumn(), TextColumn("{task.description}"), TimeElapsedColumn())
    with Progress(*columns, console=Console(stderr=True), transient=True) as progress:
        progress.add_task(what)
        yield
