"""
The command line: parse, call, print, exit code; no logic.

Nothing heavy is imported before a command runs, so that `gpuplan --help` answers at once.
"""

from __future__ import annotations

import gc
import logging
import sys
from typing import TYPE_CHECKING

import click

from planner.cli.apply import apply_command, audit_group
from planner.cli.capacity import capacity_command
from planner.cli.doctor import doctor_command
from planner.cli.documents import schema_command, snapshot_command, validate_command
from planner.cli.explain import explain_command
from planner.cli.fit import fit_command
from planner.cli.init import init_command
from planner.cli.plan import diff_command, plan_command, show_command, verify_command
from planner.cli.run import history_command, run_command
from planner.cli.search_log import search_log_command
from planner.cli.simulate import simulate_command
from planner.cli.simulated import simulated_group
from planner.cli.sweep import sweep_command
from planner.cli.whatif import whatif_command
from planner.cli.workflow import Workflow

if TYPE_CHECKING:
    from planner.models.errors import BadInputError

EXIT_INTERRUPTED = 130


@click.group(
    cls=Workflow,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
    epilog="Exit codes: 0 ok, 1 error, 2 usage, 10 plan has changes (--detailed-exitcode), 20 infeasible, "
    "21 stale plan, 22 applied in part, 23 tampered file, 24 bad input.",
)
@click.version_option(package_name="gpuplan", prog_name="gpuplan")
@click.option("-v", "--verbose", count=True, help="Log phases on standard error; -vv for more.")
def cli(verbose: int) -> None:
    """Plan, review and apply changes to the queue of a GPU cluster."""
    if verbose:
        level = logging.DEBUG if verbose > 1 else logging.INFO
        logging.basicConfig(stream=sys.stderr, level=level, format="%(asctime)s %(name)s %(message)s")


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
    apply_command,
    run_command,
    history_command,
    schema_command,
    audit_group,
    simulated_group,
    doctor_command,
):
    cli.add_command(_command)


def main() -> None:
    """Run the command line; failures that gpuplan reports on purpose become a message and an exit code."""
    from planner.models.errors import BadInputError, PlannerError

    # A command is one short computation over a large heap: collecting cycles costs a sixth of its time.
    gc.disable()
    try:
        code = cli.main(standalone_mode=False)
        sys.exit(code if isinstance(code, int) else 0)
    except (click.exceptions.Abort, KeyboardInterrupt):
        click.echo("Interrupted.", err=True)
        sys.exit(EXIT_INTERRUPTED)
    except click.ClickException as error:
        error.show()
        sys.exit(error.exit_code)
    except BadInputError as error:
        _show_problems(error)
        sys.exit(error.exit_code)
    except PlannerError as error:
        click.echo(f"Error: {error}", err=True)
        sys.exit(error.exit_code)
    except BrokenPipeError:
        # The reader of a pipe has seen enough; keep the interpreter from complaining about it at exit.
        sys.stdout = None
        sys.exit(0)
    except OSError as error:
        sys.stdout = None
        click.echo(
            f"Error: {error.strerror or error}{f': {error.filename}' if error.filename else ''}.", err=True
        )
        sys.exit(1)
    except ImportError as error:
        click.echo(f"Error: this installation is not complete: {error}.\nInstall gpuplan again.", err=True)
        sys.exit(1)


def _show_problems(error: BadInputError, most: int = 100) -> None:
    for problem in error.problems[:most]:
        click.echo(str(problem), err=True)
    if len(error.problems) > most:
        click.echo(f"… and {len(error.problems) - most} more problems.", err=True)
    count = len(error.problems)
    click.echo(f"Error: {count} problem{'s' if count != 1 else ''} in the input; nothing was done.", err=True)
