"""Option types, and terminal functions that all commands share."""

from __future__ import annotations

import os
import re
import shutil
import sys
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, TextIO

import click
from click.core import ParameterSource

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator

_SHARE = re.compile(r"([+-]?(?:\d+\.?\d*|\.\d+)(?:[eE][+-]?\d+)?)\s*(%?)")

PIPE_WIDTH = 1_000_000
"""Columns for text to a file or a pipe, unless COLUMNS is set: nothing is cut or wrapped."""


class DurationType(click.ParamType[int]):
    """`90s`, `10m`, `1h30m`; converted to milliseconds."""

    name = "duration"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> int:
        """Return the milliseconds of a duration."""
        if isinstance(value, int):
            return value
        from gpuplan.models.units import parse_milliseconds

        try:
            return parse_milliseconds(value)
        except ValueError as error:
            self.fail(str(error), param, ctx)


class FractionType(click.ParamType[float]):
    """`1%`, `0.5 %` or `0.01`, from 0 to 1; converted to a fraction."""

    name = "share"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> float:
        """Return the fraction."""
        if isinstance(value, float):
            return value
        found = _SHARE.fullmatch(value.strip())
        if found is None:
            self.fail(f"expected a share such as 1% or 0.01, found {value!r}", param, ctx)
        number, is_percent = float(found[1]), bool(found[2])
        if not is_percent and number >= 1:
            self.fail(f"{value} could be a percentage: write {number:g}% if it is one", param, ctx)
        share = number / 100 if is_percent else number
        if not 0 <= share <= 1:
            self.fail(f"expected at least 0% and at most 100%, found {value}", param, ctx)
        return share


def stray_option(of: Collection[str]) -> str | None:
    """Return the first of these parameters of the running command that its command line sets, else None."""
    context = click.get_current_context()
    for parameter in context.command.params:
        name = parameter.name or ""
        if name in of and context.get_parameter_source(name) is ParameterSource.COMMANDLINE:
            return parameter.opts[-1]
    return None


def terminal_width() -> int:
    """Return the number of columns for output."""
    if is_terminal(sys.stdout):
        return shutil.get_terminal_size().columns
    columns = os.environ.get("COLUMNS", "")
    return int(columns) if columns.isdecimal() and int(columns) else PIPE_WIDTH


def is_terminal(stream: TextIO | None) -> bool:
    """True for a terminal; a stream that was closed before the start is None."""
    return stream is not None and stream.isatty()


def wants_colour() -> bool:
    """True on a terminal, unless NO_COLOR (no-color.org) or TERM=dumb turns colour off."""
    return is_terminal(sys.stdout) and "NO_COLOR" not in os.environ and os.environ.get("TERM") != "dumb"


def ascii_only() -> bool:
    """True if standard output cannot encode × and ≤."""
    if sys.stdout is None:
        return False
    try:
        "×≤…".encode(sys.stdout.encoding or "ascii")
    except UnicodeEncodeError:
        return True
    return False


def shows_progress() -> bool:
    """True if standard error is a terminal that can erase what it shows."""
    return is_terminal(sys.stderr) and os.environ.get("TERM", "dumb") not in ("", "dumb", "unknown")


def spinner() -> str:
    """Return the name of a rich spinner that standard error can encode."""
    try:
        "⠋".encode(sys.stderr.encoding or "ascii")
    except UnicodeEncodeError:
        return "line"
    return "dots"


def progress_label(text: str) -> str:
    """Escape a text so that rich shows it literally beside a spinner or a bar."""
    from rich.markup import escape

    from gpuplan.planner.text_format import on_one_line

    return escape(on_one_line(text))


@contextmanager
def show_spinner(what: str) -> Iterator[None]:
    """Show a spinner on a terminal; nothing elsewhere."""
    if not shows_progress():
        yield
        return
    from rich.console import Console
    from rich.progress import Progress, SpinnerColumn, TextColumn, TimeElapsedColumn

    columns = (SpinnerColumn(spinner()), TextColumn("{task.description}"), TimeElapsedColumn())
    with Progress(*columns, console=Console(stderr=True), transient=True) as progress:
        progress.add_task(progress_label(what))
        yield
