"""Types of options and arguments, the user, and terminal functions that all commands share."""

from __future__ import annotations

import json
import os
import pwd
import re
import shutil
import socket
import sys
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, TextIO, TypeAlias, TypeVar, cast

import click
from click.core import ParameterSource
from click.shell_completion import CompletionItem

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterator
    from datetime import datetime

    from gpuplan.models.snapshot import Snapshot
    from gpuplan.planner.sources.dcgm.merge import Telemetry

    _Decorator: TypeAlias = Callable[[Callable[..., Any]], Callable[..., Any]]

_Value = TypeVar("_Value")


_SHARE = re.compile(r"([+-]?(?:\d+\.?\d*|\.\d+)(?:[eE][+-]?\d+)?)\s*(%?)")

STATE: Final = ".gpuplan/simulated.db"
"""Default file of the simulated cluster."""
EXECUTORS: Final = ("simulated", "local", "slurm")

PIPE_WIDTH = 1_000_000
"""Columns for text to a file or a pipe, unless COLUMNS is set: nothing is cut or wrapped."""


class Parsed(click.ParamType[_Value]):
    """A text that a function reads; ValueError says what is wrong with it."""

    def __init__(self, name: str, read: Callable[[str], _Value]) -> None:
        self.name = name
        self._read = read

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> _Value:
        """Return what is read, or a value that is read already."""
        if not isinstance(value, str):
            return cast("_Value", value)
        try:
            return self._read(value)
        except ValueError as error:
            self.fail(str(error), param, ctx)


def milliseconds(text: str) -> int:
    """Milliseconds of `90s`, `10m`, `1h30m`."""
    from gpuplan.models.units import parse_milliseconds

    return parse_milliseconds(text)


DURATION: Final = Parsed("duration", milliseconds)


def fraction(text: str) -> float:
    """A fraction from 0 to 1 of `1%`, `0.5 %` or `0.01`."""
    found = _SHARE.fullmatch(text.strip())
    if found is None:
        raise ValueError(f"expected a share such as 1% or 0.01, found {text!r}")
    number, is_percent = float(found[1]), bool(found[2])
    if not is_percent and number >= 1:
        raise ValueError(f"{text} could be a percentage: write {number:g}% if it is one")
    share = number / 100 if is_percent else number
    if not 0 <= share <= 1:
        raise ValueError(f"expected at least 0% and at most 100%, found {text}")
    return share


FRACTION: Final = Parsed("share", fraction)


def option_group(*options: _Decorator) -> _Decorator:
    """A decorator that adds some options to a command, in this order."""

    def with_options(command: Callable[..., Any]) -> Callable[..., Any]:
        for option in reversed(options):
            command = option(command)
        return command

    return with_options


def stray_option(of: Collection[str]) -> str | None:
    """Return the first of these parameters of the running command that its command line sets, else None."""
    context = click.get_current_context()
    for parameter in context.command.params:
        name = parameter.name or ""
        if name in of and context.get_parameter_source(name) is ParameterSource.COMMANDLINE:
            return parameter.opts[-1]
    return None


def current_user() -> str:
    """
    Return user@host for audit log and plans; a user without a name, as in some containers, is a number.

    The name is that of the user id, since one in the environment can be any.
    """
    try:
        user = pwd.getpwuid(os.getuid()).pw_name
    except KeyError:
        user = str(os.getuid())
    return f"{user}@{socket.gethostname()}"


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


# Argument types for names: files, plans of a run, and jobs, queues and nodes of a source.


ANY_PATH: Final = click.Path(readable=False, allow_dash=True)
"""A file, a directory or `-`; the reader of the file reports if it cannot be read."""

PLANS: Final = Path(".gpuplan") / "plans"
"""Default folder of the plans of `gpuplan run`."""


class FactsType(click.ParamType["Path | str"]):
    """A file or folder, converted to a path, or the URL of a Prometheus, which stays a text."""

    name = "path or url"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Path | str:
        """Return a path, or the URL as given."""
        del param, ctx
        return value if isinstance(value, Path) or _URL.match(value) else Path(value)

    def shell_complete(
        self, ctx: click.Context, param: click.Parameter, incomplete: str
    ) -> list[CompletionItem]:
        """Complete file names."""
        del ctx, param
        return [CompletionItem(incomplete, type="file")]


_URL = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*://")


merge_options = option_group(
    click.option(
        "--merge",
        type=FactsType(),
        multiple=True,
        help="Facts of hosts: a file of `snapshot --from nvml`, a folder of them, or the URL of a Prometheus "
        "with metrics of DCGM exporter; may be repeated.",
    ),
    click.option(
        "--over",
        type=DURATION,
        default="15m",
        show_default=True,
        help="Time before the snapshot of which Prometheus is asked.",
    ),
)
"""Options for facts that are added to a snapshot."""


def window_seconds(over: int, merge: Collection[Path | str]) -> int:
    """
    Return the seconds of --over, given in milliseconds.

    Raises
    ------
    click.UsageError
        It is too short or too long to be asked for, or nothing that is merged has a window.
    """
    if not any(isinstance(each, str) for each in merge) and (stray := stray_option({"over"})):
        raise click.UsageError(f"{stray} is for --merge with the URL of a Prometheus, found none.")
    if not _SHORTEST_OVER <= over // 1000 <= _LONGEST_OVER:
        raise click.UsageError("expected 1m to 24h in --over.")
    return over // 1000


def telemetry_reader(window: int) -> Callable[[str, datetime], Telemetry]:
    """
    Return the function that asks the Prometheus at a URL what GPUs did in so many seconds up to an instant.

    Raises
    ------
    PlannerError
        httpx is not installed.
    """
    from functools import partial

    from gpuplan.models.errors import PlannerError

    try:
        from gpuplan.planner.sources.dcgm.telemetry import read_telemetry
    except ImportError:
        raise PlannerError(
            "Reading from Prometheus needs httpx.\nInstall it: pip install 'gpuplan[rest]'."
        ) from None
    return partial(read_telemetry, over=window)


_SHORTEST_OVER: Final = 60
"""A few scrapes, which are 15 s to 1 min apart."""
_LONGEST_OVER: Final = 24 * 3600

_SHORTEST_ID: Final = 4
"""Shortest prefix of a plan's id that is accepted."""

_LARGEST_COMPLETED: Final = 5_000_000
"""Largest source in bytes that completion reads: it takes about a quarter of a second at the prompt."""


class PlanFile(click.ParamType[str]):
    """A plan file, or the id of a plan in the folder of a run, or a prefix of it; converted to a path."""

    name = "plan"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> str:
        """Return the path as given if there is such a file, else the path of the plan with this id."""
        text = str(value)
        if len(text) < _SHORTEST_ID or not set(text) <= set("0123456789abcdef") or Path(text).exists():
            return text
        # Files are named NUMBER-ID.json, with the first 8 characters of the id.
        found = sorted(PLANS.glob(f"*-{text[:8]}*.json"), reverse=True)
        if len({path.name.partition("-")[2] for path in found}) > 1:
            names = ", ".join(path.stem.partition("-")[2] for path in found)
            self.fail(f"{text!r} is the beginning of several plans in {PLANS}: {names}.", param, ctx)
        if not found:
            self.fail(
                f"no file has the name {text!r}, and no plan in {PLANS} this id; "
                "`gpuplan history` prints the ids of plans.",
                param,
                ctx,
            )
        return str(found[0])

    def shell_complete(
        self, ctx: click.Context, param: click.Parameter, incomplete: str
    ) -> list[CompletionItem]:
        """Complete ids of the plans of the last run; file names if none matches."""
        del ctx, param
        ids = {path.stem.partition("-")[2] for path in PLANS.glob("*-*.json")} if incomplete else set()
        found = [CompletionItem(name) for name in sorted(ids) if name.startswith(incomplete)]
        return found or [CompletionItem(incomplete, type="file")]


_PLAN_BEGINS: Final = re.compile(rb'\s*{\s*"format_version": "[^"]*",\s*"plan_id"')
"""How gpuplan writes plans: to parse a large one only to know what it is takes more than a second."""

_HEAD: Final = 1024
"""Bytes that are enough to see that."""


def is_saved_plan(source: str) -> bool:
    """
    True if the file is a JSON object with an id and actions, or is compressed, whatever its name.

    The plan reader reports what is missing.
    """
    from gpuplan.planner.plan_file.plan_file import GZIP_MAGIC

    path = Path(source)
    if path.name.lower().endswith(".json.gz"):
        return True
    if not path.is_file():
        return False
    try:
        with path.open("rb") as stream:
            head = stream.read(_HEAD)
            if _PLAN_BEGINS.match(head) or head.startswith(GZIP_MAGIC):
                return True
            if not head.lstrip().startswith(b"{"):
                return False  # YAML, of which only the JSON in it could be a plan
            document = json.loads(head + stream.read())
    except (OSError, ValueError, RecursionError):
        return False
    return isinstance(document, dict) and {"plan_id", "actions"} <= document.keys()


class EntityName(click.ParamType[str]):
    """The name of a job, queue or node of the source on the same command line."""

    name = "text"

    def __init__(self, *sections: str, prefixed: bool = False) -> None:
        self._sections = sections
        self._prefixed = prefixed

    def shell_complete(
        self, ctx: click.Context, param: click.Parameter, incomplete: str
    ) -> list[CompletionItem]:
        """Complete names; no completion if the source cannot be read or is large."""
        del param
        source = ctx.params.get("source") or ctx.params.get("plan_file") or ctx.params.get("state")
        snapshot = _quietly_read(str(source)) if source else None
        if snapshot is None:
            return []
        return [CompletionItem(name) for name in self._names(snapshot) if name.startswith(incomplete)]

    def _names(self, snapshot: Snapshot) -> Iterator[str]:
        names = {
            "job": [job.name for job in snapshot.jobs],
            "queue": [queue.name for queue in snapshot.queues],
            "node": [node.name for node in snapshot.cluster.nodes],
        }
        for section in self._sections:
            yield from names[section]
            if self._prefixed:
                yield from (f"{section}/{name}" for name in names[section])


def _quietly_read(source: str) -> Snapshot | None:
    """Return the snapshot of a source, a saved plan or a simulated cluster; None if it cannot be read."""
    from gpuplan.models.errors import PlannerError
    from gpuplan.planner.plan_file.plan_file import load_plan
    from gpuplan.planner.sources.files import load_snapshot

    path = Path(source)
    try:
        if path.is_file() and path.stat().st_size > _LARGEST_COMPLETED:
            return None
        if path.suffix == ".db":
            from gpuplan.planner.executors.simulated import SimulatedCluster

            with SimulatedCluster(path) as cluster:
                return cluster.snapshot()
        try:
            return load_snapshot(source)
        except PlannerError:
            return load_plan(source).snapshot
    except (PlannerError, OSError):
        return None
