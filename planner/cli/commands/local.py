"""`gpuplan local`: the job queue of a host with GPUs, which `apply --executor local` starts jobs from."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from gpuplan.planner.cli.clusters import HOST
from gpuplan.planner.cli.options import DURATION, Parsed, current_user
from gpuplan.planner.cli.outputs import json_option, say_or_show, show_json, show_text

if TYPE_CHECKING:
    from collections.abc import Sequence

    from gpuplan.planner.action_marks import JobSignal
    from gpuplan.planner.render.style import Style

queue_option = click.option(
    "--state", type=click.Path(path_type=Path), default=HOST, show_default=True, help="Folder of the queue."
)


def _notice(text: str) -> JobSignal:
    """`USR1@60` or `B:USR1@60`, as in sbatch: a signal, and the seconds from it to the stop."""
    import signal

    from gpuplan.planner.action_marks import JobSignal

    notice = JobSignal.read(text)
    name = notice.signal if notice else ""
    is_number = name.isdigit() and int(name) in signal.valid_signals()
    if notice is None or not (is_number or f"SIG{name}" in signal.Signals.__members__):
        raise ValueError(f"expected a signal such as USR1@60 or B:TERM@30, found {text!r}")
    return notice


@click.group("local", epilog="Example: gpuplan local submit --gpus 2 --time 4h -- python train.py")
def local_group() -> None:
    """Queue commands for the GPUs of this host."""


@local_group.command("submit", epilog="Example: gpuplan local submit --gpus 2 --time 4h -- python train.py")
@click.argument("words", nargs=-1, required=True, type=click.UNPROCESSED, metavar="-- COMMAND [ARG]...")
@click.option("-J", "--job-name", "--name", "name", help="Name of the job; by default its number.")
@click.option("-p", "--queue", default="default", show_default=True, help="Queue that it counts in.")
@click.option("-G", "--gpus", type=click.IntRange(min=0), default=0, help="Whole GPUs.")
@click.option("--mig", "profile", help="One MIG instance of this profile, such as 3g.40gb.")
@click.option("-c", "--cpus", default="1", show_default=True, help="CPU cores.")
@click.option("--mem", "--memory", "memory", default="0", help="Memory, such as 64Gi.")
@click.option("-t", "--time", "limit", type=DURATION, help="Longest run, such as 4h: then it is stopped.")
@click.option("--priority", type=click.IntRange(0, 10_000), default=0, help="Larger is more important.")
@click.option(
    "--signal",
    "notice",
    type=Parsed("signal", _notice),
    help="Signal before a plan stops it, such as USR1@60.",
)
@click.option("--retries", type=click.IntRange(min=0), help="How often it is tried again after a failure.")
@click.option("--co-start", "group", help="Group of jobs that start together, or none of them.")
@click.option("-o", "--output", type=click.Path(path_type=Path), help="File for what it prints.")
@queue_option
@json_option
def local_submit_command(
    words: tuple[str, ...],
    name: str | None,
    queue: str,
    gpus: int,
    profile: str | None,
    cpus: str,
    memory: str,
    limit: int | None,
    priority: int,
    notice: JobSignal | None,
    retries: int | None,
    group: str | None,
    output: Path | None,
    state: Path,
    *,
    as_json: bool,
) -> None:
    """
    Queue COMMAND; it waits until a plan starts it.

    It begins in this folder with this environment, and sees only its GPUs. Both stay in the folder of the
    queue: they are in no snapshot, plan, log or report.
    """
    from datetime import UTC, datetime

    from pydantic import ValidationError

    from gpuplan.models.job import Job
    from gpuplan.planner.executors.local.job_queue import JobQueue
    from gpuplan.planner.sources.slurm.values import name_of

    if gpus and profile:
        raise click.UsageError("expected one of --gpus and --mig, found both.")
    request = {"gpus": gpus, "cpus": cpus, "memory_mib": int(memory) if memory.isdigit() else memory}
    fields: dict[str, Any] = {
        "name": name or "job",
        "queue": queue,
        "user": name_of(current_user().partition("@")[0]),
        "priority": priority,
        "request": request | ({"mig": {profile: 1}} if profile else {}),
        "co_start": group,
        "submitted_at": datetime.now(UTC),
    }
    if limit is not None:
        fields["expected_duration"] = max(1, limit // 1000)
    if notice is not None:
        fields["checkpoint_duration"] = notice.seconds
    if retries is not None:
        fields["retry"] = {"max": retries}
    try:
        job = Job.model_validate(fields)
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        place = ".".join(map(str, first["loc"]))
        raise click.UsageError(f"{place}: {first['msg']}, found {first['input']!r}.") from None
    umask = os.umask(0o077)
    os.umask(umask)
    command = {
        "words": list(words),
        "environment": dict(os.environ),
        "folder": str(Path.cwd()),
        "output": str(output.absolute()) if output else None,
        "umask": umask,
    }
    seconds = None if limit is None else job.expected_duration
    record = JobQueue(state).submit(job, command, named=name is not None, notice=notice, limit=seconds)
    say_or_show(
        f"Queued job {record.job.name}.", {"job": record.job.name, "state": str(state)}, as_json=as_json
    )


@local_group.command("cancel", epilog="Example: gpuplan local cancel job-3")
@click.argument("job")
@queue_option
@json_option
def local_cancel_command(job: str, state: Path, *, as_json: bool) -> None:
    """End JOB: SIGTERM to all of its processes, after 10 seconds SIGKILL."""
    from gpuplan.planner.executors.local.job_queue import JobQueue

    ends = JobQueue(state).cancel(job)
    say_or_show(
        f"Job {job} {'ends' if ends else 'is cancelled'}.", {"job": job, "ends": ends}, as_json=as_json
    )


@local_group.command("list", epilog="Example: gpuplan local list")
@queue_option
@json_option
def local_list_command(state: Path, *, as_json: bool) -> None:
    """Print the jobs that run and wait, and those that ended last."""
    from gpuplan.planner.executors.local.job_queue import JobQueue

    rows = JobQueue(state).rows()
    if as_json:
        show_json({"jobs": rows})
        return

    show_text(rows, _queue_text, plain=False)


def _queue_text(rows: Sequence[dict[str, Any]], style: Style) -> str:
    """One line for each job."""
    from datetime import UTC, datetime

    from gpuplan.planner.render.table import Table, TableRow
    from gpuplan.planner.text_format import format_time

    if not rows:
        return "No jobs.\n"
    now = datetime.now(UTC)
    table = [
        TableRow(
            (
                each["job"],
                each["state"],
                each["asks"],
                each["holds"],
                format_time(datetime.fromisoformat(each["since"]), now),
                each["reason"],
            )
        )
        for each in rows
    ]
    lines = Table(table, ("JOB", "STATE", "ASKS FOR", "HOLDS", "SINCE", "REASON")).lines(style)
    return "\n".join(lines) + "\n"
