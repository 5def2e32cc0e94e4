"""
Format and reading of the search log: one JSON object per line.

    {"event": "began", …}       inputs and limits, solvers and their versions
    {"event": "milestone", …}   each change of incumbent, bound or stage
    {"event": "finished", …}    end of the search, and the plan; or {"event": "failed", …}
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Final, Literal, TypeAlias

from pydantic import ConfigDict, Field, TypeAdapter, ValidationError

from gpuplan.models.base import Noun
from gpuplan.models.errors import BadInputError, InputProblem
from gpuplan.models.plan.solution import Milestone
from gpuplan.models.units import Timestamp

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
        raise _bad(str(path), f"cannot be read: {error.strerror}.") from None
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
