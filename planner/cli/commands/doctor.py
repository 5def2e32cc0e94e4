"""`gpuplan doctor`: checks the installation and the Slurm cluster, with advice for each failure."""

from __future__ import annotations

import sys
from dataclasses import asdict

import click

from gpuplan.planner.cli.outputs import json_option, say, show_json


@click.command("doctor", epilog="Example: gpuplan doctor")
@click.option(
    "--url", default="", help="Also ask the slurmrestd there, as `snapshot --from slurmrestd` does."
)
@json_option
def doctor_command(*, url: str, as_json: bool) -> None:
    """
    Check the installation: versions, solvers, NVML, Slurm.

    Of Slurm, where its commands are: the cluster and its version, whether it can be read, whether this user
    may apply plans, and whether another apply holds the lock. Nothing is changed.

    Ends with 1 if a check fails, even for a solver that no plan would use. A missing optional part is no
    failure.
    """
    from gpuplan.planner.doctor import run_checks

    if as_json:
        findings = list(run_checks(url))
        show_json({"findings": [asdict(finding) for finding in findings]})
        sys.exit(1 if any(finding.works is False for finding in findings) else 0)
    failed = False
    for finding in run_checks(url):
        mark = {True: "ok  ", False: "FAIL", None: "--  "}[finding.works]
        say(f"{mark}  {finding.subject:<22} {finding.detail}")
        if finding.advice:
            say(f"      {finding.advice}")
        failed |= finding.works is False
    sys.exit(1 if failed else 0)
