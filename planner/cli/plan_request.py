"""Planning as commands share it: options and input, engines for several plans, and the view of a search."""

from __future__ import annotations

import logging
import signal
import sys
import threading
import time
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import click

from gpuplan.planner.cli.options import (
    ANY_PATH,
    DURATION,
    FRACTION,
    option_group,
    progress_label,
    show_spinner,
    shows_progress,
    spinner,
)
from gpuplan.planner.cli.outputs import say

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping
    from pathlib import Path
    from types import FrameType

    from gpuplan.models.plan.plan import Plan
    from gpuplan.models.plan.solution import Milestone
    from gpuplan.models.policy.policy import Policy
    from gpuplan.models.snapshot import Snapshot
    from gpuplan.planner.whatif.runner import Workers


planning_options = option_group(
    click.option(
        "--policy",
        "policy_file",
        type=ANY_PATH,
        help="Policy file; by default policy.yaml in SOURCE, else defaults.",
    ),
    click.option(
        "--time-limit",
        type=DURATION,
        help="Wall clock for each plan, such as 10s; with --deterministic a safety stop at ten times that.",
    ),
    click.option(
        "--solver",
        type=click.Choice(["auto", "milp", "cpsat", "greedy"]),
        default="auto",
        show_default=True,
        help="auto: as the policy says.",
    ),
    click.option("--stop-gap", type=FRACTION, help="Stop at this proven gap to the best plan, such as 1%."),
    click.option("--strict", is_flag=True, help="Refuse a snapshot that refers to lost nodes or GPUs."),
    click.option("--seed", type=int, default=0, show_default=True, help="Seed of the solvers."),
    click.option("--deterministic", is_flag=True, help="Stop solvers by work done, not by the clock."),
)
"""Options of a plan; `read_plan_request` takes them."""


@dataclass(frozen=True)
class PlanRequest:
    """A snapshot to plan, with its policy and seed."""

    snapshot: Snapshot
    policy: Policy
    policy_file: str | None
    """File of the policy; None for the default policy."""
    seed: int
    began: float
    """Instant of `time.monotonic` from which the time limit counts."""


def read_plan_request(source: str, **planning: Any) -> PlanRequest:
    """Read a snapshot and its policy, with the overrides of the command line (`planning_options`)."""
    from gpuplan.planner.sources.files import default_policy_path, load_policy, load_snapshot

    with show_spinner("reading"):
        began = _limit_begins(source)
        snapshot = load_snapshot(source, strict=planning["strict"])
        policy_file = planning["policy_file"] or default_policy_path(source)
        policy = load_policy(policy_file)
    return PlanRequest(snapshot, overridden(policy, planning), policy_file, planning["seed"], began)


def overridden(policy: Policy, planning: Mapping[str, Any]) -> Policy:
    """The policy with the overrides of the command line."""
    from gpuplan.planner.analysis.policy_changes import with_options

    limit, solver = planning["time_limit"], planning["solver"]
    gap, deterministic = planning["stop_gap"], planning["deterministic"]
    return with_options(policy, limit, solver, stop_gap=gap, deterministic=deterministic)


def _limit_begins(source: str) -> float:
    """When the time limit begins: with the process of the command, or with the first that comes on `-`."""
    if source == "-" and (wait := getattr(sys.stdin.buffer, "peek", None)):
        wait(1)
        return time.monotonic()
    # Called from Python, a command has no process of its own.
    process_began: float | None = click.get_current_context().find_root().obj
    return time.monotonic() if process_began is None else process_began


def read_undamaged_request(source: str, **planning: Any) -> PlanRequest:
    """Same as `read_plan_request`, for the snapshot without lost places."""
    question = read_plan_request(source, **planning)
    return replace(question, snapshot=without_damage(question.snapshot))


def without_damage(snapshot: Snapshot) -> Snapshot:
    """Return the snapshot without lost places; prints to standard error how many jobs that concerns."""
    from gpuplan.models.validation.damage import survey_damage
    from gpuplan.planner.text_format import format_count

    found = survey_damage(snapshot)
    if released := sum(loss.released for loss in found.losses.values()):
        jobs = format_count(released, "running job")
        say(f"Without lost places of {jobs}; `gpuplan validate` names them.", err=True)
    return found.sound


# Options of commands that make several plans, and the engine that the options select.


with_worker_options = option_group(
    click.option(
        "--jobs", type=click.IntRange(min=1), help="Plans made in parallel; by default one per processor."
    ),
    click.option(
        "--engine",
        type=click.Choice(["local", "dask"]),
        default="local",
        show_default=True,
        help="Make the plans on this machine, or on a Dask cluster (extra `dask`).",
    ),
    click.option("--scheduler", help="dask: address of its scheduler, such as tcp://10.0.0.1:8786."),
)
"""Options of an engine; `open_workers` takes them."""


@contextmanager
def open_workers(name: str, *, jobs: int | None, scheduler: str | None) -> Iterator[Workers]:
    """Yield the engine that the options select."""
    from gpuplan.planner.whatif.runner import Processes, processors

    if name == "local":
        if scheduler is not None:
            raise click.UsageError("--scheduler is for --engine dask.")
        yield Processes(jobs or processors())
        return
    if scheduler is None:
        raise click.UsageError("--scheduler is required for --engine dask.")
    if jobs is not None:
        raise click.UsageError("--jobs is for --engine local; a Dask cluster sets its own number of workers.")
    try:
        from gpuplan.planner.whatif.dask_workers import dask_cluster
    except ImportError:
        raise click.UsageError("--engine dask needs the extra `dask`: pip install 'gpuplan[dask]'.") from None

    with dask_cluster(scheduler) as engine:
        yield engine


# Progress of several plans: a bar on a terminal, nothing elsewhere.


@contextmanager
def count_progress(total: int) -> Iterator[Callable[[str], None]]:
    """Show how many of `total` plans are made; yields the function to call with the name of each."""
    if not shows_progress():
        yield lambda _: None
        return
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, SpinnerColumn, TextColumn
    from rich.progress import TimeElapsedColumn as Elapsed

    columns = (SpinnerColumn(spinner()), TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn())
    with Progress(*columns, Elapsed(), console=Console(stderr=True), transient=True) as progress:
        task = progress.add_task("planning", total=total)

        def ended(name: str) -> None:
            progress.update(task, advance=1, description=progress_label(f"planning: {name} is done"))

        yield ended


# Plan an epoch with a live display of the search on a terminal, and with an optional search log.


# Smooth for the eye, and no work beside that of the search.
_REFRESHES_PER_SECOND = 8


def plan_with_live_view(
    snapshot: Snapshot,
    policy: Policy,
    *,
    seed: int,
    began: float,
    log: Path | None = None,
    last: Plan | None = None,
    seen: list[Milestone] | None = None,
) -> Plan:
    """
    Plan an epoch, optionally after a `last` plan; Ctrl-C ends the search with the best plan so far.

    The time limit counts from the instant at which the command `began`.
    Milestones of the search are appended to `seen`.
    """
    from datetime import UTC, datetime
    from functools import partial

    from gpuplan.planner.epoch import limits_of, plan_epoch
    from gpuplan.planner.text_format import format_count

    waiting = sum(job.running is None for job in snapshot.jobs)
    what = (
        f"planning {format_count(waiting, 'waiting job')} on "
        f"{format_count(len(snapshot.cluster.nodes), 'node')}"
    )
    limits = limits_of(policy, seed)
    plan_it = partial(
        plan_epoch, snapshot, policy, seed=seed, created_at=datetime.now(UTC), last=last, began=began
    )
    with live_view(what, limits.seconds) as tell:

        def show(now: Milestone) -> None:
            if seen is not None:
                seen.append(now)
            tell(now)

        if log is None:
            return plan_it(watch=show)
        from gpuplan.planner.io.search_log import search_started, write_search_log

        with write_search_log(log, search_started(snapshot, limits)) as lines:

            def watch(now: Milestone) -> None:
                lines.milestone(now)
                show(now)

            plan = plan_it(watch=watch)
            lines.finished(plan.solution, plan.plan_id)
    if lines.fault is not None:
        say(f"The search log {log} is not complete: {lines.fault}.", err=True)
    return plan


@contextmanager
def live_view(what: str, limit: float) -> Iterator[Callable[[Milestone], None]]:
    """
    Show a search that may take `limit` seconds; yields the function to call with each milestone.

    The function only stores the milestone. A thread draws, so that neither the search nor Ctrl-C waits for a
    terminal. With -v there is no live region, because log lines show the progress and would break it.
    """
    ending = "Interrupted: the search ends with its best plan so far, if any. Ctrl-C again ends the command."
    if not shows_progress() or logging.getLogger(__name__).isEnabledFor(logging.INFO):
        with _at_first_interruption(lambda: say(ending, err=True)):
            yield lambda _: None
        return
    from rich.console import Console
    from rich.live import Live
    from rich.spinner import Spinner
    from rich.text import Text

    from gpuplan.planner.render.logs import progress_lines
    from gpuplan.planner.render.style import Style

    console = Console(stderr=True, highlight=False)
    turning = spinner()
    region = Spinner(turning, text=Text(what))
    latest: tuple[float, Milestone] | None = None
    told_end: list[str] = []

    def tell(milestone: Milestone) -> None:
        nonlocal latest
        latest = time.monotonic(), milestone

    def region_now() -> Spinner:
        lines = [what, *told_end]
        if latest is not None and not told_end:
            told, milestone = latest
            style = Style(width=console.width - 2, colour=False, ascii_only=turning == "line")
            seconds = milestone.seconds + time.monotonic() - told
            lines += [
                f"  {line}" for line in progress_lines(milestone, seconds=seconds, limit=limit, style=style)
            ]
        region.update(text=Text("\n".join(lines)))
        return region

    region_shown = Live(
        get_renderable=region_now, console=console, refresh_per_second=_REFRESHES_PER_SECOND, transient=True
    )
    with region_shown, _at_first_interruption(lambda: told_end.append(ending)):
        yield tell


@contextmanager
def _at_first_interruption(tell: Callable[[], object]) -> Iterator[None]:
    """
    Call `tell` at the first Ctrl-C, or SIGTERM: both end the search with the best plan so far.

    The search ends some seconds later: a plan has to be completed, verified and written. Nothing is done
    outside of the main thread, or if another part of the program takes care of the signals.
    """
    usual = {each: signal.getsignal(each) for each in (signal.SIGINT, signal.SIGTERM)}
    alone = threading.current_thread() is threading.main_thread()
    if not alone or usual != {signal.SIGINT: signal.default_int_handler, signal.SIGTERM: signal.SIG_DFL}:
        yield
        return

    def restore() -> None:
        for each, handler in usual.items():
            signal.signal(each, handler)

    def handle(number: int, frame: FrameType | None) -> None:
        restore()
        # The line may meet one that is being written, or a closed pipe; the interruption matters more.
        with suppress(OSError, RuntimeError):
            tell()
        signal.default_int_handler(number, frame)

    for each in usual:
        signal.signal(each, handle)
    try:
        yield
    finally:
        restore()
