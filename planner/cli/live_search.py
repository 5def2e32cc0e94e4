"""Plan an epoch with a live display of the search on a terminal, and with an optional search log."""

from __future__ import annotations

import logging
import time
from contextlib import contextmanager
from typing import TYPE_CHECKING

from gpuplan.planner.cli.options import shows_progress, spinner
from gpuplan.planner.cli.outputs import say

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from gpuplan.models.plan.plan import Plan
    from gpuplan.models.plan.solution import Milestone
    from gpuplan.models.policy.policy import Policy
    from gpuplan.models.snapshot import Snapshot

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
    if not shows_progress() or logging.getLogger(__name__).isEnabledFor(logging.INFO):
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

    def tell(milestone: Milestone) -> None:
        nonlocal latest
        latest = time.monotonic(), milestone

    def region_now() -> Spinner:
        lines = [what]
        if latest is not None:
            told, milestone = latest
            style = Style(width=console.width - 2, colour=False, ascii_only=turning == "line")
            seconds = milestone.seconds + time.monotonic() - told
            lines += [
                f"  {line}" for line in progress_lines(milestone, seconds=seconds, limit=limit, style=style)
            ]
        region.update(text=Text("\n".join(lines)))
        return region

    with Live(
        get_renderable=region_now, console=console, refresh_per_second=_REFRESHES_PER_SECOND, transient=True
    ):
        yield tell
