"""
The command line: parses, calls, prints and returns the exit code; it has no logic of its own.

Heavy modules are imported only when a command runs, so that `gpuplan --help` answers at once.
"""

from __future__ import annotations

import atexit
import gc
import logging
import os
import sqlite3
import sys
import traceback
from typing import TYPE_CHECKING, Final

import click

from gpuplan.planner.cli.commands.apply import apply_command, audit_group
from gpuplan.planner.cli.commands.approve import approve_command
from gpuplan.planner.cli.commands.documents import (
    doctor_command,
    init_command,
    schema_command,
    snapshot_command,
    validate_command,
)
from gpuplan.planner.cli.commands.event import event_command
from gpuplan.planner.cli.commands.explain import explain_command
from gpuplan.planner.cli.commands.local import local_group
from gpuplan.planner.cli.commands.mig import mig_group
from gpuplan.planner.cli.commands.plan import (
    diff_command,
    plan_command,
    search_log_command,
    show_command,
    verify_command,
)
from gpuplan.planner.cli.commands.rollback import rollback_command
from gpuplan.planner.cli.commands.run import history_command, run_command
from gpuplan.planner.cli.commands.simulate import simulate_command
from gpuplan.planner.cli.commands.simulated import simulated_group
from gpuplan.planner.cli.commands.whatif import (
    capacity_command,
    fit_command,
    sweep_command,
    whatif_command,
)
from gpuplan.planner.cli.outputs import LogLines, say, say_usage_error
from gpuplan.planner.io.processes import began

if TYPE_CHECKING:
    from gpuplan.models.errors import BadInputError

EXIT_ERROR = 1
EXIT_INTERRUPTED = 130
_MOST_PROBLEMS: Final = 100

SECTIONS: Final[dict[str, tuple[str, ...]]] = {
    "Begin": ("init", "snapshot", "validate", "doctor"),
    "Plan and review": ("plan", "show", "diff", "verify", "explain", "search-log", "mig"),
    "Apply": ("approve", "apply", "rollback", "run", "history", "audit", "event", "simulated", "local"),
    "Ask what if": ("whatif", "fit", "capacity", "sweep", "simulate"),
    "Look up": ("schema",),
}
"""Commands by purpose."""


class Workflow(click.Group):
    """A command group that lists its commands by section."""

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:  # noqa: ARG002
        """Write one list of commands for each section; a command in no section is an error."""
        commands = dict(self.commands)
        widest = max(map(len, commands))
        for title, names in SECTIONS.items():
            rows = [
                (name.ljust(widest), commands.pop(name).get_short_help_str(formatter.width - 6 - widest))
                for name in names
            ]
            with formatter.section(title):
                formatter.write_dl(rows)
        if commands:
            raise LookupError(f"expected each command in a section, found {', '.join(commands)} in none")


@click.group(
    cls=Workflow,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
    epilog="Exit codes: 0 ok, 1 error, 2 usage, 10 plan has changes (--detailed-exitcode), 20 more nodes "
    "do not help, 21 stale plan, 22 applied in part, 23 tampered file, 24 bad input, 25 approval missing, "
    "130 interrupted.",
)
@click.version_option(package_name="gpuplan", prog_name="gpuplan")
@click.option("-v", "--verbose", count=True, help="Log phases on standard error; -vv for more.")
def cli(verbose: int) -> None:
    """Plan, review and apply changes to the queue of a GPU cluster."""
    level = {0: logging.WARNING, 1: logging.INFO}.get(verbose, logging.DEBUG)
    lines = logging.StreamHandler(sys.stderr)
    form = "%(asctime)s %(name)s %(message)s" if verbose else "%(levelname)s: %(message)s"
    lines.setFormatter(LogLines(form))
    logging.basicConfig(handlers=[lines], level=level)


for _command in (
    init_command,
    snapshot_command,
    validate_command,
    plan_command,
    search_log_command,
    show_command,
    diff_command,
    explain_command,
    whatif_command,
    fit_command,
    capacity_command,
    sweep_command,
    simulate_command,
    verify_command,
    approve_command,
    apply_command,
    rollback_command,
    run_command,
    history_command,
    schema_command,
    audit_group,
    simulated_group,
    local_group,
    mig_group,
    event_command,
    doctor_command,
):
    cli.add_command(_command)


def run() -> None:
    """Run the command of this process, from the start of the process to its end."""
    code = EXIT_ERROR

    def end_at_once() -> None:
        for stream in (sys.stdout, sys.stderr):
            if stream is not None:
                stream.flush()
        os._exit(code)

    # A command is one short computation over a large heap: garbage collection takes a sixth of its time.
    gc.disable()
    # The first to be registered is the last to be called. To free millions of objects would take seconds.
    atexit.register(end_at_once)
    try:
        main(began())
    except SystemExit as ended:
        code = ended.code if isinstance(ended.code, int) else EXIT_ERROR
        raise


def main(process_began: float | None = None) -> None:
    """
    Run a command line; every error becomes a message and an exit code.

    Time limits count from when the process began, if it is the command's own, or from reading the arguments.
    """
    try:
        code = cli.main(standalone_mode=False, obj=process_began)
    except BaseException as error:  # noqa: BLE001 - the one place that reports every end of a command
        code = _report_error(error)
    sys.exit(code if isinstance(code, int) else 0)


def _report_error(error: BaseException) -> int:
    """Print what ended a command and what to do next; return the exit code."""
    from gpuplan.models.errors import BadInputError, PlannerError

    code = EXIT_ERROR
    match error:
        case SystemExit():
            raise error
        case click.exceptions.Abort() | KeyboardInterrupt():
            say("Interrupted.", err=True)
            code = EXIT_INTERRUPTED
        case click.ClickException():
            say_usage_error(error)
            code = error.exit_code
        case BadInputError():
            _show_problems(error)
            code = error.exit_code
        case PlannerError():
            say(f"Error: {error}", err=True)
            code = error.exit_code
        case BrokenPipeError():
            # The reader has closed the pipe; without stdout the interpreter reports no error about it.
            sys.stdout = None
            code = 0
        case OSError():
            sys.stdout = None
            file = f": {error.filename}" if error.filename else ""
            say(f"Error: {error.strerror or error}{file}.", err=True)
        case _:
            say(f"Error: {_fault(error)}", err=True)
            if logging.getLogger().isEnabledFor(logging.INFO):
                say("".join(traceback.format_exception(error)), err=True, nl=False)
    return code


def _fault(error: BaseException) -> str:
    """Message and advice for an error that gpuplan does not raise on purpose."""
    match error:
        case MemoryError():
            return (
                "there is not enough memory.\n"
                "Give gpuplan more, or a smaller snapshot; docs/benchmarks.md lists the memory by size."
            )
        case sqlite3.Error():
            return (
                f"a database cannot be used: {error}.\n"
                "Check that its disk has room; restore the file from a copy, or make a new one."
            )
        case ImportError():
            return f"this installation is not complete: {error}.\nInstall gpuplan again."
    return (
        f"a defect of gpuplan: {type(error).__name__}: {error}.\n"
        "Report it with what `gpuplan -v` followed by the same command prints."
    )


def _show_problems(error: BadInputError) -> None:
    for problem in error.problems[:_MOST_PROBLEMS]:
        say(str(problem), err=True)
    count = len(error.problems)
    if count > _MOST_PROBLEMS:
        say(f"… and {count - _MOST_PROBLEMS} more problems.", err=True)
    say(f"Error: {count} problem{'s' if count != 1 else ''} in the input; nothing was done.", err=True)
