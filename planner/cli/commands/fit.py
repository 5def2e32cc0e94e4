"""`gpuplan fit`: how many more copies of one job fit."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from gpuplan.planner.cli.live_search import live_view
from gpuplan.planner.cli.options import ANY_PATH, EntityName
from gpuplan.planner.cli.outputs import layout_options, show
from gpuplan.planner.cli.plan_request import planning_options, read_undamaged_request

if TYPE_CHECKING:
    from gpuplan.models.job import Job
    from gpuplan.models.snapshot import Snapshot


@click.command("fit", epilog="Example: gpuplan fit scenarios/quickstart train-base")
@click.argument("source", type=ANY_PATH)
@click.argument("job", type=EntityName("job"), required=False)
@click.option("--file", "job_file", type=ANY_PATH, help="File with a job that is not in SOURCE.")
@click.option("--most", type=click.IntRange(min=1), help="Most copies to count. [default: 10,000]")
@planning_options
@layout_options
def fit_command(
    source: str,
    job: str | None,
    job_file: str | None,
    most: int | None,
    as_json: bool,
    plain: bool,
    **planning: Any,
) -> None:
    """
    Count how many more jobs like JOB fit, and what limits it.

    No running job is stopped or moved.

    JOB runs or waits in SOURCE. Only running jobs take capacity: other waiting jobs, prices and time rules
    are ignored, quotas and reservations are not. The copies are placed and verified, and a bound proves that
    one more does not fit.
    """
    from gpuplan.planner.epoch import limits_of
    from gpuplan.planner.render.whatif.capacity import fit_text
    from gpuplan.planner.whatif.capacity.fit import MOST, fit

    if (job is None) == (job_file is None):
        raise click.UsageError("Give the name of a job, or --file with one.")
    question = read_undamaged_request(source, **planning)
    snapshot, policy, seed = question.snapshot, question.policy, question.seed
    wanted = _read_job(job_file, snapshot) if job_file else _named(job or "", snapshot, source)
    with live_view(f"fitting copies of {wanted.name}", limits_of(policy, seed).seconds) as watch:
        found = fit(snapshot, policy, wanted, seed=seed, most=most or MOST, watch=watch)
    show(found, fit_text, as_json=as_json, plain=plain)


def _named(name: str, snapshot: Snapshot, source: str) -> Job:
    from gpuplan.planner.whatif.lookup import jobs_named

    return jobs_named((name,), snapshot, source)[0]


def _read_job(path: str, snapshot: Snapshot) -> Job:
    from gpuplan.planner.whatif.lookup import read_job

    return read_job(path, snapshot)
