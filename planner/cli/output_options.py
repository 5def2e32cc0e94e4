"""Options for the form of output, and the functions that print results."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any, TypeVar

import click

from gpuplan.planner.cli.options import ascii_only, terminal_width
from gpuplan.planner.cli.speaking import say_in_colour, say_json

if TYPE_CHECKING:
    from collections.abc import Callable

    from gpuplan.models.base import Noun

_Command = TypeVar("_Command", bound="Callable[..., Any]")

_OPTIONS = (
    click.option("--json", "as_json", is_flag=True, help="One JSON document instead of text."),
    click.option("--ascii", "plain", is_flag=True, help="No characters beyond ASCII."),
)

json_option = _OPTIONS[0]

all_option = click.option("-a", "--all", "everything", is_flag=True, help="One line for every action.")


def layout_options(command: _Command) -> _Command:
    """Add the output options to a command; `show` takes them."""
    for option in reversed(_OPTIONS):
        command = option(command)
    return command


def show_json(document: Any) -> None:
    """Print one JSON document of plain types."""
    say_json(json.dumps(document, indent=2, ensure_ascii=False))


def show(found: Noun, text: Callable[..., str], *, as_json: bool, plain: bool, **about: Any) -> None:
    """Print a result as one JSON document or as text."""
    if as_json:
        say_json(found.model_dump_json(indent=2))
    else:
        show_text(found, text, plain=plain, **about)


def show_text(found: Noun, text: Callable[..., str], *, plain: bool, **about: Any) -> None:
    """Print a result as text that fits the terminal."""
    narrow, width = plain or ascii_only(), terminal_width()
    say_in_colour(lambda colour: text(found, width=width, colour=colour, ascii_only=narrow, **about))
