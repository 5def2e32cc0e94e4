"""`gpuplan init`: writes a small starter scenario."""

from __future__ import annotations

from pathlib import Path

import click

from gpuplan.planner.cli.console_log import say

_STARTERS = ("training", "inference", "research", "batch")


@click.command("init", epilog="Example: gpuplan init demo && gpuplan plan demo")
@click.argument("folder", metavar="[NAME]", type=click.Path(path_type=Path), default="demo")
@click.option(
    "--for",
    "kind",
    type=click.Choice(_STARTERS),
    default="training",
    show_default=True,
    help="Use of the cluster, which decides the jobs and the policy.",
)
def init_command(folder: Path, kind: str) -> None:
    """
    Write a small scenario and a policy with its reasons.

    NAME is a new folder, `demo` by default: five nodes, two queues, a few jobs, and a policy to edit.
    """
    from gpuplan.planner.sources.starter import write_starter

    written = write_starter(folder, kind)
    say(f"Wrote {', '.join(path.name for path in written)} to {folder}.", err=True)
    say(f"Next: gpuplan plan {folder}", err=True)
