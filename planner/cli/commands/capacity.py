"""`gpuplan capacity`: the nodes to add so that jobs run."""

from __future__ import annotations

from typing import Any

import click

from gpuplan.planner.cli.live_search import live_view
from gpuplan.planner.cli.options import ANY_PATH, EntityName
from gpuplan.planner.cli.outputs import layout_options, show
from gpuplan.planner.cli.plan_request import planning_options, read_undamaged_request

EXIT_CANNOT = 20


@click.command("capacity", epilog="Example: gpuplan capacity scenarios/burst-scale-up --waiting")
@click.argument("source", type=ANY_PATH)
@click.argument("jobs", type=EntityName("job"), metavar="[JOB...]", nargs=-1)
@click.option("--waiting", is_flag=True, help="All waiting jobs that are not held.")
@click.option(
    "--most",
    type=click.IntRange(min=0),
    help="Most nodes that each pool may get, whatever its maximum; by default up to the maximum.",
)
@planning_options
@layout_options
def capacity_command(
    source: str,
    jobs: tuple[str, ...],
    waiting: bool,
    most: int | None,
    as_json: bool,
    plain: bool,
    **planning: Any,
) -> int:
    """
    Find the cheapest new nodes with which all of the JOBs run.

    New nodes come from the cluster's pools; no running job is stopped or moved.

    Free capacity is used first. Other waiting jobs and time rules are ignored, quotas are not. Ends with 20
    if some of the jobs cannot run with any number of nodes.
    """
    from gpuplan.planner.epoch import limits_of
    from gpuplan.planner.render.whatif.capacity import capacity_text
    from gpuplan.planner.whatif.capacity.capacity import find_cheapest_nodes
    from gpuplan.planner.whatif.lookup import jobs_named

    if bool(jobs) == waiting:
        raise click.UsageError("Give the names of jobs, or --waiting for all waiting jobs.")
    question = read_undamaged_request(source, **planning)
    snapshot, policy, seed = question.snapshot, question.policy, question.seed
    if waiting:
        asked = [job for job in snapshot.jobs if job.running is None and not job.held]
    else:
        asked = jobs_named(jobs, snapshot, source)
    with live_view("looking for the cheapest nodes", limits_of(policy, seed).seconds) as watch:
        found = find_cheapest_nodes(snapshot, policy, asked, seed=seed, most=most, watch=watch)
    show(found, capacity_text, as_json=as_json, plain=plain)
    return EXIT_CANNOT if found.cannot else 0
