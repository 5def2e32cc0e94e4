"""`gpuplan simulated`: a simulated cluster to try plans on, and events in it."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from gpuplan.planner.cli.clusters import state_option
from gpuplan.planner.cli.options import ANY_PATH, DURATION, EntityName
from gpuplan.planner.cli.outputs import json_option, say_or_show

if TYPE_CHECKING:
    from pathlib import Path


@click.group("simulated", epilog="Example: gpuplan simulated create scenarios/quickstart")
def simulated_group() -> None:
    """Create the simulated cluster and cause events in it."""


@simulated_group.command("create", epilog="Example: gpuplan simulated create scenarios/quickstart")
@click.argument("source", type=ANY_PATH)
@state_option
@json_option
def simulated_create_command(source: str, state: Path, *, as_json: bool) -> None:
    """Create a simulated cluster in the state of SOURCE."""
    from gpuplan.planner.executors.simulated import SimulatedCluster
    from gpuplan.planner.io.atomic_write import make_directory
    from gpuplan.planner.sources.files import load_snapshot
    from gpuplan.planner.text_format import format_count

    snapshot = load_snapshot(source)
    make_directory(state.parent)
    SimulatedCluster.create(state, snapshot).close()
    nodes, jobs = len(snapshot.cluster.nodes), len(snapshot.jobs)
    say_or_show(
        f"Created {state}: {format_count(nodes, 'node')}, {format_count(jobs, 'job')}.",
        {"state": str(state), "nodes": nodes, "jobs": jobs},
        as_json=as_json,
    )


@simulated_group.command("advance", epilog="Example: gpuplan simulated advance 30m")
@click.argument("duration", type=DURATION)
@state_option
@json_option
def simulated_advance_command(duration: int, state: Path, *, as_json: bool) -> None:
    """Advance the cluster's clock by DURATION; due jobs finish, and due new nodes become ready."""
    from gpuplan.models.units import print_timestamp
    from gpuplan.planner.executors.simulated import SimulatedCluster
    from gpuplan.planner.text_format import format_count

    with SimulatedCluster(state) as cluster:
        before = len(cluster.finished())
        now = cluster.advance(duration // 1000)
        ended = len(cluster.finished()) - before
    say_or_show(
        f"The clock of {state} is at {print_timestamp(now)}; {format_count(ended, 'job')} finished.",
        {"state": str(state), "now": print_timestamp(now), "finished": ended},
        as_json=as_json,
    )


@simulated_group.command("submit", epilog="Example: gpuplan simulated submit jobs.yaml")
@click.argument("jobs_file", type=ANY_PATH)
@state_option
@json_option
def simulated_submit_command(jobs_file: str, state: Path, *, as_json: bool) -> None:
    """Submit the jobs of a file: a YAML or JSON document with a list of jobs under `jobs`."""
    from gpuplan.planner.executors.simulated import SimulatedCluster
    from gpuplan.planner.sources.files import JobBatch, load_noun
    from gpuplan.planner.text_format import format_count

    submission = load_noun(jobs_file, JobBatch)
    with SimulatedCluster(state) as cluster:
        cluster.submit(submission.jobs)
    say_or_show(
        f"{format_count(len(submission.jobs), 'job')} submitted to {state}.",
        {"state": str(state), "submitted": [job.name for job in submission.jobs]},
        as_json=as_json,
    )


@simulated_group.command("end", epilog="Example: gpuplan simulated end train-a --failed")
@click.argument("job", type=EntityName("job"))
@click.option("--failed", is_flag=True, help="It has failed: its retry rule says whether it waits again.")
@state_option
@json_option
def simulated_end_command(job: str, state: Path, *, failed: bool, as_json: bool) -> None:
    """
    End the running JOB now.

    A job with a `retry` rule waits again after a failure, or after every end, as the rule says.
    """
    from gpuplan.models.dependency import JobOutcome
    from gpuplan.planner.executors.simulated import SimulatedCluster

    outcome = JobOutcome.FAILED if failed else JobOutcome.SUCCEEDED
    with SimulatedCluster(state) as cluster:
        again = cluster.end_job(job, outcome)
    say_or_show(
        f"Job {job} has {outcome}{' and waits again' if again else ''}.",
        {"state": str(state), "job": job, "outcome": outcome, "waits_again": again},
        as_json=as_json,
    )


@simulated_group.command("fail", epilog="Example: gpuplan simulated fail h100-1")
@click.argument("node", type=EntityName("node"))
@click.option("--gpu", type=click.IntRange(min=0), help="Only this GPU of the node becomes unhealthy.")
@state_option
@json_option
def simulated_fail_command(node: str, gpu: int | None, state: Path, *, as_json: bool) -> None:
    """
    Take NODE down; the jobs on it wait again.

    With --gpu only that GPU fails. Its jobs stay there, and the next plan reports them.
    """
    from gpuplan.planner.executors.simulated import SimulatedCluster
    from gpuplan.planner.text_format import format_count

    with SimulatedCluster(state) as cluster:
        jobs = sorted(cluster.fail_node(node) if gpu is None else cluster.fail_gpu(node, gpu))
    count = format_count(len(jobs), "job")
    found: dict[str, object] = {"down": node, "waiting_again": jobs}
    sentence = f"Node {node} is down; {count} waiting again."
    if gpu is not None:
        found = {"node": node, "unhealthy_gpu": gpu, "jobs": jobs}
        sentence = f"GPU {gpu} of node {node} is unhealthy; {count} on it."
    say_or_show(sentence, {"state": str(state), **found}, as_json=as_json)


@simulated_group.command("return", epilog="Example: gpuplan simulated return h100-1")
@click.argument("node", type=EntityName("node"))
@click.option("--gpu", type=click.IntRange(min=0), help="Only this unhealthy GPU of the node.")
@state_option
@json_option
def simulated_return_command(node: str, gpu: int | None, state: Path, *, as_json: bool) -> None:
    """Bring a failed NODE back."""
    from gpuplan.planner.executors.simulated import SimulatedCluster

    with SimulatedCluster(state) as cluster:
        if gpu is None:
            cluster.return_node(node)
        else:
            cluster.repair_gpu(node, gpu)
    found: dict[str, object] = {"up": node}
    which = f"Node {node}"
    if gpu is not None:
        which, found = f"GPU {gpu} of node {node}", {"node": node, "healthy_gpu": gpu}
    say_or_show(f"{which} takes jobs again.", {"state": str(state), **found}, as_json=as_json)
