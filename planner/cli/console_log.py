"""The only functions that print to the terminal; control sequences in data are made harmless."""

from __future__ import annotations

import logging
from io import StringIO
from typing import TYPE_CHECKING

import click

from gpuplan.planner.cli.options import wants_colour

if TYPE_CHECKING:
    from collections.abc import Callable


def say(text: str, *, err: bool = False, nl: bool = True) -> None:
    """Print a text of one or more lines; `err` selects standard error."""
    from gpuplan.planner.text_format import printable

    click.echo(printable(text), err=err, nl=nl)


def say_json(text: str, *, nl: bool = True) -> None:
    """Print a JSON text; control characters in it are written as JSON escapes."""
    from gpuplan.planner.text_format import printable_json

    click.echo(printable_json(text), nl=nl)


def say_in_colour(told: Callable[[bool], str]) -> None:
    """Print a text in colour if the terminal shows colours and the data has no control characters."""
    from gpuplan.planner.text_format import printable

    plain = told(False)
    safe = printable(plain)
    click.echo(told(True) if safe == plain and wants_colour() else safe, nl=False)


def say_usage_error(error: click.ClickException) -> None:
    """Print click's message about an error in the command line."""
    text = StringIO()
    error.show(file=text)
    # click lists choices behind tabs, which `say` would escape as it does with those of a user.
    say(text.getvalue().replace("\n\t", "\n  "), err=True, nl=False)


class LogLines(logging.Formatter):
    """Formatter of log lines for people."""

    def format(self, record: logging.LogRecord) -> str:
        """Format the record without control characters."""
        from gpuplan.planner.text_format import printable

        return printable(super().format(record))
