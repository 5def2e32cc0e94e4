"""`gpuplan doctor`: what of this installation works, and what to do about the rest."""

from __future__ import annotations

import sys

import click


@click.command("doctor", epilog="Example: gpuplan doctor")
def doctor_command() -> None:
    """
    Check the installation: versions, solvers and NVML.

    Ends with 1 if anything fails, a solver that no plan would use included; what is absent and not needed is
    no failure.
    """
    from planner.checkup import checkup

    failed = False
    for finding in checkup():
        mark = {True: "ok  ", False: "FAIL", None: "--  "}[finding.works]
        click.echo(f"{mark}  {finding.subject:<22} {finding.detail}")
        if finding.advice:
            click.echo(f"      {finding.advice}")
        failed |= finding.works is False
    sys.exit(1 if failed else 0)
