"""Output of commands: files, of which none overwrites an input or another one, and what is printed."""

from __future__ import annotations

import json
import logging
import os
import shutil
import stat
import sys
from contextlib import suppress
from io import StringIO
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from gpuplan.planner.cli.options import (
    FactsType,
    PlanFile,
    ascii_only,
    is_terminal,
    option_group,
    terminal_width,
    wants_colour,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from gpuplan.models.base import Noun


_STDIN = "-"


class NewFile(click.ParamType[Path]):
    """An output file with one of the allowed suffixes; checked before any work is done."""

    name = "path"

    def __init__(self, *kinds: str, folder: bool = False) -> None:
        self._kinds = kinds
        self._folder = folder
        """True: a directory is allowed, and the files of a scenario are written into it."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Path:
        """Return the path after the check that it is writable."""
        from gpuplan.planner.io.atomic_write import require_writable

        path = Path(value)
        if self._kinds and path.suffix.lower() not in self._kinds:
            self.fail(f"expected a name that ends in {' or '.join(self._kinds)}, found {value}", param, ctx)
        for file in self.files(path):
            require_writable(file)
        return path

    def files(self, path: Path) -> list[Path]:
        """Return the files that are written for a path."""
        if not (self._folder and path.is_dir()):
            return [path]
        from gpuplan.planner.sources.files import SCENARIO_FILES

        return [path / name for name in SCENARIO_FILES]


PICTURE = NewFile(".svg", ".png")


class WritingCommand(click.Command):
    """A command with output files; it refuses to overwrite its inputs before it begins."""

    def invoke(self, ctx: click.Context) -> Any:
        """Run the command, unless one of its outputs is an input or another output."""
        from gpuplan.models.errors import PlannerError

        written: dict[tuple[int, int] | Path, str] = {}
        for option, path in _outputs(ctx):
            if path.exists() and not path.is_file():
                continue  # a device or a pipe has no content to overwrite
            clash = written.setdefault(_identity(path) or path.resolve(), option)
            reads = _reader_of(path, ctx)
            if reads or clash != option:
                why = f"{reads} reads it" if reads else f"{clash} writes it"
                raise PlannerError(
                    f"{path} cannot be written: {why}, and {option} would destroy that.\n"
                    f"Give {option} another path."
                )
        return super().invoke(ctx)


def _outputs(ctx: click.Context) -> Iterator[tuple[str, Path]]:
    """Yield the output files, each with its option."""
    for parameter in ctx.command.params:
        value = ctx.params.get(parameter.name or "")
        if isinstance(parameter.type, NewFile) and value is not None:
            yield from ((parameter.opts[-1], path) for path in parameter.type.files(value))


def _reader_of(output: Path, ctx: click.Context) -> str | None:
    """Return the parameter that names the same file, or a directory with it among its documents."""
    wanted = _identity(output)
    if wanted is None:
        return None
    for parameter in ctx.command.params:
        if parameter.type is not click.STRING and not isinstance(
            parameter.type, click.Path | PlanFile | FactsType
        ):
            continue
        given = ctx.params.get(parameter.name or "")
        for value in given if isinstance(given, tuple) else (given,):
            if value is not None and _reads(str(value), wanted):
                is_option = isinstance(parameter, click.Option)
                return parameter.opts[-1] if is_option else str(parameter.name).upper()
    return None


def _reads(value: str, wanted: tuple[int, int]) -> bool:
    """True if a value of the command line refers to the file, under any name."""
    if value == _STDIN:
        return _identity(None) == wanted
    if not os.path.isdir(value):  # noqa: PTH112 - Path.is_dir raises if the value is not a path
        return _identity(Path(value)) == wanted
    from gpuplan.planner.sources.files import is_plan_file, kept_documents

    return any(_identity(path) == wanted and not is_plan_file(path) for path in kept_documents(value))


def _identity(path: Path | None) -> tuple[int, int] | None:
    """Device and inode of a regular file, or of standard input if path is None; None for anything else."""
    with suppress(OSError, ValueError):
        found = os.fstat(sys.stdin.fileno()) if path is None else path.stat()
        return (found.st_dev, found.st_ino) if stat.S_ISREG(found.st_mode) else None
    return None


# Options for the form of output, and the functions that print results.


EXIT_CHANGES = 10
detailed_exitcode_option = click.option(
    "--detailed-exitcode", is_flag=True, help=f"Exit with {EXIT_CHANGES} if the plan has changes."
)
json_option = click.option("--json", "as_json", is_flag=True, help="One JSON document instead of text.")

ascii_option = click.option("--ascii", "plain", is_flag=True, help="No characters beyond ASCII.")

layout_options = option_group(json_option, ascii_option)
"""Options for the form of a result; `show` takes them."""

all_option = click.option("-a", "--all", "everything", is_flag=True, help="One line for every action.")


def show_json(document: Any) -> None:
    """Print one JSON document of plain types."""
    say_json(json.dumps(document, indent=2, ensure_ascii=False))


def say_or_show(sentence: str, document: Any, *, as_json: bool) -> None:
    """Print what was done as a sentence, or as one JSON document of plain types."""
    if as_json:
        show_json(document)
    else:
        say(sentence)


def show(found: Noun, text: Callable[..., str], *, as_json: bool, plain: bool, **about: Any) -> None:
    """Print a result as one JSON document or as text."""
    if as_json:
        say_json(found.model_dump_json(indent=2))
    else:
        show_text(found, text, plain=plain, **about)


def show_text(found: object, text: Callable[..., str], *, plain: bool, **about: Any) -> None:
    """Print a result as text that fits the terminal."""
    from gpuplan.planner.render.style import Style

    width, narrow = terminal_width(), plain or ascii_only()
    say_in_colour(lambda colour: text(found, Style(width=width, colour=colour, ascii_only=narrow), **about))


# The only functions that print to the terminal; control sequences in data are made harmless.


def say(text: str, *, err: bool = False, nl: bool = True) -> None:
    """
    Print a text of one or more lines; `err` selects standard error.

    A terminal gets lines as wide as it is; a text without a newline at its end (`nl`) stays as it is.
    """
    from gpuplan.planner.text_format import printable

    safe, stream = printable(text), sys.stderr if err else sys.stdout
    if nl and is_terminal(stream):
        safe = wrapped(safe, shutil.get_terminal_size().columns)
    click.echo(safe, err=err, nl=nl)


def wrapped(text: str, width: int) -> str:
    """The text with lines of at most `width` columns where words allow it; further lines are indented."""
    from gpuplan.planner import text_format

    return "\n".join(
        line
        if len(line) <= width
        else text_format.wrapped(line, indent=len(line) - len(line.lstrip()) + 2, width=width)
        for line in text.split("\n")
    )


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
