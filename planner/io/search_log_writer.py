"""
Writing the log of a search while it goes on.

Lines go to the kernel in one write each: who kills the planner leaves whole lines. A log is no document of
record, so nothing waits for the disk, and a disk that is full costs the rest of the log, never the plan.
"""

from __future__ import annotations

import importlib.metadata
import os
from contextlib import contextmanager
from datetime import UTC, datetime
from typing import TYPE_CHECKING

from gpuplan.models.errors import PlannerError
from gpuplan.planner.io.search_log import Began, Failed, Finished, Reached
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
    """The open end of a log."""

    def __init__(self, descriptor: int) -> None:
        self._descriptor = descriptor
        self._last: tuple[str, int | None, int, int | None] | None = None
        self.fault: str | None = None
        """Why the log lacks its rest, if it does."""

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
        """Append what is known now, unless it is what was known before."""
        known = (now.stage, now.objective, now.bound, now.found)
        if known == self._last:
            return
        self._last = known
        stage, objective, bound, found = known
        seconds = round(now.seconds, 3)
        gap = now.gap
        self.add(
            Reached(seconds=seconds, stage=stage, objective=objective, bound=bound, found=found, gap=gap)
        )

    def finished(self, solution: SolutionSummary, plan_id: str) -> None:
        """Append how it ended."""
        fallback = solution.fallback
        self.add(
            Finished(
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


def question(snapshot: Snapshot, limits: Limits) -> Began:
    """What is asked of a search."""
    return Began(
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
def logging_search(path: str | Path, began: Began) -> Iterator[SearchLog]:
    """
    Log a search to a path; what was there is replaced. Whatever ends the search is in the log.

    Raises
    ------
    PlannerError
        Nothing can be written there.
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
        log.add(Failed(reason=f"{type(error).__name__}: {error}".removesuffix(": ")))
        raise
    finally:
        os.close(descriptor)
