"""The one place from which text goes to the terminal, which obeys nothing in it but its colours."""

from __future__ import annotations

import logging
from io import StringIO
from typing import TYPE_CHECKING

import click

from gpuplan.planner.cli.options import wants_colour

if TYPE_CHECKING:
    from collections.abc import Callable


def say(text: str, *, err: bool = False, nl: bool = True) -> None:
    """Print a text of one or more lines; `err` to standard error."""
    from gpuplan.planner.formatting import printable

    click.echo(printable(text), err=err, nl=nl)


def say_json(text: str, *, nl: bool = True) -> None:
    """Print a JSON text; what a terminal would obey in it is written as JSON escapes."""
    from gpuplan.planner.formatting import printable_json

    click.echo(printable_json(text), nl=nl)


def say_in_colour(told: Callable[[bool], str]) -> None:
    """Print a text that can be told with colours or without, which it is where its data has escapes in it."""
    from gpuplan.planner.formatting import printable

    plain = told(False)
    safe = printable(plain)
    click.echo(told(True) if safe == plain and wants_colour() else safe, nl=False)


def say_usage_error(error: click.ClickException) -> None:
    """Print what click found wrong with the command line."""
    text = StringIO()
    error.show(file=text)
    say(text.getvalue(), err=True, nl=False)


class LogLines(logging.Formatter):
    """Lines of the log for people."""

    def format(self, record: logging.LogRecord) -> str:
        """The record, without anything that a terminal would obey."""
        from gpuplan.planner.formatting import printable

        return printable(super().format(record))
