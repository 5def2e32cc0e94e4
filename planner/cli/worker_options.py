"""Options of commands that make several plans, and the engine that the options select."""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, TypeVar

import click

from gpuplan.planner.cli.options import progress_label, shows_progress, spinner

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from gpuplan.planner.whatif.grid.workers import Workers


_Command = TypeVar("_Command", bound="Callable[..., Any]")

_OPTIONS = (
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


def with_worker_options(command: _Command) -> _Command:
    """Add the engine options to a command; `open_workers` takes them."""
    for option in reversed(_OPTIONS):
        command = option(command)
    return command


@contextmanager
def open_workers(name: str, *, jobs: int | None, scheduler: str | None) -> Iterator[Workers]:
    """Yield the engine that the options select."""
    from gpuplan.planner.whatif.grid.workers import Processes, processors

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
        from gpuplan.planner.whatif.grid.dask_workers import dask_cluster
    except ImportError:
        raise click.UsageError("--engine dask needs the extra `dask`: pip install 'gpuplan[dask]'.") from None

    with dask_cluster(scheduler) as engine:
        yield engine


# Progress of several plans: a bar on a terminal, nothing elsewhere.


@contextmanager
def count_progress(what: str, total: int) -> Iterator[Callable[[str], None]]:
    """Show how many of `total` are done; yields the function to call with the name of each finished one."""
    if not shows_progress():
        yield lambda _: None
        return
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, SpinnerColumn, TextColumn
    from rich.progress import TimeElapsedColumn as Elapsed

    columns = (SpinnerColumn(spinner()), TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn())
    with Progress(*columns, Elapsed(), console=Console(stderr=True), transient=True) as progress:
        task = progress.add_task(what, total=total)

        def ended(name: str) -> None:
            progress.update(task, advance=1, description=progress_label(f"{what}: {name} is done"))

        yield ended
