"""Option types and the few things all commands do with the terminal."""

from __future__ import annotations

import os
import shutil
import sys
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, TextIO

import click

if TYPE_CHECKING:
    from collections.abc import Iterator

PIPE_WIDTH = 80
"""Columns of text that goes to a file or a pipe, unless COLUMNS says otherwise."""


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
    if is_terminal(sys.stdout):
        return shutil.get_terminal_size().columns
    columns = os.environ.get("COLUMNS", "")
    return int(columns) if columns.isdecimal() and int(columns) else PIPE_WIDTH


def is_terminal(stream: TextIO | None) -> bool:
    """True of a terminal; a stream that was closed before the start is None."""
    return stream is not None and stream.isatty()


def wants_colour() -> bool:
    """Colour only on a terminal that has not asked for none (no-color.org)."""
    return is_terminal(sys.stdout) and "NO_COLOR" not in os.environ and os.environ.get("TERM") != "dumb"


def ascii_only() -> bool:
    """True if standard output cannot carry × and ≤."""
    if sys.stdout is None:
        return False
    try:
        "×≤…".encode(sys.stdout.encoding or "ascii")
    except UnicodeEncodeError:
        return True
    return False


@contextmanager
def working(what: str) -> Iterator[None]:
    """Show on a terminal that something is going on; silent elsewhere."""
    if not is_terminal(sys.stderr):
        yield
        return
    from rich.console import Console
    from rich.progress import Progress, SpinnerColumn, TextColumn, TimeElapsedColumn

    columns = (SpinnerColumn(), TextColumn("{task.description}"), TimeElapsedColumn())
    with Progress(*columns, console=Console(stderr=True), transient=True) as progress:
        progress.add_task(what)
        yield
