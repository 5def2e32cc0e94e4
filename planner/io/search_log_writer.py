"""
Writing the search log during a search.

Each line is one write to the kernel, so a killed planner leaves whole lines. The log is not a document of
record: nothing waits for the disk, and a full disk loses the rest of the log but never the plan.
"""

from __future__ import annotations

import importlib.metadata
import os
from contextlib import contextmanager
from datetime import UTC, datetime
from typing import TYPE_CHECKING

from gpuplan.models.errors import PlannerError
from gpuplan.planner.io.search_log import SearchFailed, SearchFinished, SearchMilestone, SearchStarted
from gpuplan.planner.solver_versions import library_of

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from gpuplan.models.plan.plan import SolutionSummary
    from gpuplan.models.plan.solution import Milestone
    from gpuplan.models.snapshot import Snapshot
    from gpuplan.planner.io.search_log import Line
    from gpuplan.solvers.portfolio import Limits


class SearchLog:
    """Appends to a search log."""

    def __init__(self, descriptor: int) -> None:
        self._descriptor = descriptor
        self._last: tuple[str, int | None, int, int | None] | None = None
        self.fault: str | None = None
        """The write error after which the log is incomplete; None without one."""

    def add(self, line: Line) -> None:
        """Append one line."""
        if self.fault is not None:
            return
        rest = line.model_dump_json().encode() + b"\n"
        try:
            while rest:
                rest = rest[os.write(self._descriptor, rest) :]
        except OSError as error:
            self.fault = error.strerror or str(error)

    def milestone(self, now: Milestone) -> None:
        """Append a milestone, unless it equals the last one."""
        known = (now.stage, now.objective, now.bound, now.found)
        if known == self._last:
            return
        self._last = known
        stage, objective, bound, found = known
        seconds = round(now.seconds, 3)
        gap = now.gap
        self.add(
            SearchMilestone(
                seconds=seconds, stage=stage, objective=objective, bound=bound, found=found, gap=gap
            )
        )

    def finished(self, solution: SolutionSummary, plan_id: str) -> None:
        """Append the end of the search."""
        fallback = solution.fallback
        self.add(
            SearchFinished(
                how=solution.ended,
                seconds=solution.seconds,
                status=solution.status,
                solver=solution.solver,
                objective=solution.objective,
                bound=solution.bound,
                gap=solution.gap,
                greedy_objective=solution.greedy_objective,
                fallback=None if fallback is None else fallback.reason,
                plan=plan_id,
            )
        )


def search_started(snapshot: Snapshot, limits: Limits) -> SearchStarted:
    """The first line of a log: the inputs and limits of a search."""
    return SearchStarted(
        at=datetime.now(UTC),
        gpuplan=importlib.metadata.version("gpuplan"),
        solvers={solver: library_of(solver) for solver in limits.solvers},
        workers=limits.workers,
        seed=limits.seed,
        limit_seconds=limits.seconds,
        ticks=limits.ticks,
        stop_gap=limits.stop_gap,
        nodes=len(snapshot.cluster.nodes),
        gpus=sum(node.gpu_count for node in snapshot.cluster.nodes),
        jobs=len(snapshot.jobs),
        waiting=sum(job.running is None for job in snapshot.jobs),
    )


@contextmanager
def write_search_log(path: str | Path, began: SearchStarted) -> Iterator[SearchLog]:
    """
    Log a search to a path, overwriting an existing file; an error that ends the search is logged as well.

    Raises
    ------
    PlannerError
        The path cannot be written.
    """
    try:
        descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_APPEND, 0o666)
    except OSError as error:
        raise PlannerError(
            f"{path} cannot be written: {error.strerror}.\n"
            "Give a path in a directory that exists and may be written."
        ) from None
    log = SearchLog(descriptor)
    try:
        log.add(began)
        yield log
    except BaseException as error:
        log.add(SearchFailed(reason=f"{type(error).__name__}: {error}".removesuffix(": ")))
        raise
    finally:
        os.close(descriptor)
