"""Progress of several plans: a bar on a terminal, nothing elsewhere."""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING

from gpuplan.planner.cli.options import progress_label, shows_progress, spinner

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator


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
