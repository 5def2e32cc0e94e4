"""The search log: one JSON object per line, written during a search and read afterwards."""

from __future__ import annotations

import importlib.metadata
import os
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Final, Literal, TypeAlias

from pydantic import ConfigDict, Field, TypeAdapter, ValidationError

from gpuplan.models.base import Noun
from gpuplan.models.errors import BadInputError, InputProblem, PlannerError
from gpuplan.models.plan.solution import Milestone
from gpuplan.models.units import Timestamp

if TYPE_CHECKING:
    from collections.abc import Iterator

    from gpuplan.models.plan.plan import SolutionSummary
    from gpuplan.models.snapshot import Snapshot
    from gpuplan.solvers.portfolio import Limits


LOG_FORMAT: Final = "1.0"

_Points: TypeAlias = Annotated[int, Field(ge=-(2**63), lt=2**63)]
"""Points of an objective; numbers beyond 64 bits are refused, since no solver can return them."""


class _Line(Noun):
    """Base of all lines; readers ignore keys that a newer minor version added."""

    model_config = ConfigDict(extra="ignore")


class SearchStarted(_Line):
    """Inputs and limits of a search."""

    event: Literal["began"] = "began"
    format_version: Literal["1.0"] = LOG_FORMAT
    at: Timestamp
    gpuplan: str
    """Version of gpuplan."""
    solvers: dict[str, str]
    """Exact solvers in the order in which they are tried, each with its library and version."""
    workers: int
    seed: int
    limit_seconds: float
    """Wall-clock limit; with `ticks` it is only a safety stop."""
    ticks: int | None
    stop_gap: float
    nodes: int
    gpus: int
    jobs: int
    waiting: int


class SearchMilestone(_Line):
    """State of the search at one time: a `Milestone`."""

    event: Literal["milestone"] = "milestone"
    seconds: float
    stage: str
    objective: _Points | None
    bound: _Points
    found: int | None = None
    gap: float | None = None


class SearchFinished(_Line):
    """End of the search, and the resulting plan."""

    event: Literal["finished"] = "finished"
    how: str
    """A value of `models.plan.solution.Ended`."""
    seconds: float
    status: str
    solver: str
    objective: _Points
    bound: _Points | None
    gap: float | None
    greedy_objective: _Points
    fallback: str | None
    plan: str
    """Id of the plan."""


class SearchFailed(_Line):
    """The search failed without a plan."""

    event: Literal["failed"] = "failed"
    reason: str


Line: TypeAlias = Annotated[
    SearchStarted | SearchMilestone | SearchFinished | SearchFailed, Field(discriminator="event")
]

_LINE: Final[TypeAdapter[Line]] = TypeAdapter(Line)


@dataclass(frozen=True, slots=True)
class SearchRecord:
    """Content of a search log; its end may be missing."""

    began: SearchStarted
    milestones: tuple[Milestone, ...]
    finished: SearchFinished | None
    failure: str | None


def read_search(path: str | Path) -> SearchRecord:
    """
    Read a search log; an incomplete last line is ignored.

    Raises
    ------
    BadInputError
        The file cannot be read, or a line is not part of a search log.
    """
    try:
        text = Path(path).read_bytes()
    except OSError as error:
        message = f"cannot be read: {error.strerror}.\n  `gpuplan plan --search-log FILE` writes one."
        raise _bad(str(path), message) from None
    lines: list[Line] = []
    for number, line in enumerate(text.split(b"\n")[:-1], start=1):
        try:
            lines.append(_LINE.validate_json(line))
        except ValidationError as error:
            what = error.errors()[0]["msg"]
            message = f"{what}.\n  Give a file that gpuplan plan --search-log has written."
            raise _bad(f"{path}:{number}", message) from None
    return _search(str(path), lines)


def _search(path: str, lines: list[Line]) -> SearchRecord:
    if not lines or not isinstance(began := lines[0], SearchStarted):
        raise _bad(f"{path}:1", "expected a line with the event began: this is no log of a search.")
    ends = [line for line in lines if isinstance(line, SearchFinished)]
    failures = [line.reason for line in lines if isinstance(line, SearchFailed)]
    return SearchRecord(
        began=began,
        milestones=tuple(
            Milestone(line.seconds, line.stage, line.objective, line.bound, line.found)
            for line in lines
            if isinstance(line, SearchMilestone)
        ),
        finished=ends[-1] if ends else None,
        failure=failures[-1] if failures else None,
    )


def _bad(place: str, message: str) -> BadInputError:
    return BadInputError((InputProblem(place, message),))


# Writing the search log during a search.
#
# Each line is one write to the kernel, so a killed planner leaves whole lines. The log is not a document of
# record: nothing waits for the disk, and a full disk loses the rest of the log but never the plan.


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


# Library and installed version of each exact solver.


LIBRARIES: Final = {"milp": "highspy", "cpsat": "ortools", "cbc": "pulp", "scip": "ortools"}
"""Python distribution of each solver."""


def library_of(solver: str) -> str:
    """`highspy 1.13.1`, `highspy not installed`; empty for a solver without a library."""
    name = LIBRARIES.get(solver)
    if name is None:
        return ""
    try:
        return f"{name} {importlib.metadata.version(name)}"
    except importlib.metadata.PackageNotFoundError:
        return f"{name} not installed"
