"""Options of commands that make several plans, and the engine that the options select."""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, TypeVar

import click

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
