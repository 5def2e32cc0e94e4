"""All failures that gpuplan reports on purpose, with their exit codes (docs/plan-format.md lists them)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar


class PlannerError(Exception):
    """A failure with a message for the user; base class of all errors that gpuplan raises on purpose."""

    exit_code: ClassVar[int] = 1


class StalePlanError(PlannerError):
    """The cluster no longer meets the plan's preconditions."""

    exit_code = 21


class PartlyAppliedError(PlannerError):
    """Some actions of a plan were carried out and some were not."""

    exit_code = 22


class TamperedError(PlannerError):
    """A plan file or an audit log was modified after gpuplan wrote it."""

    exit_code = 23


@dataclass(frozen=True, slots=True)
class InputProblem:
    """One problem in a document: its place, what was found, and what to do."""

    place: str
    """`file:line`, or `file` where no line is known."""
    message: str
    """What was found, what was expected, and the next step."""

    def __str__(self) -> str:
        return f"{self.place}: {self.message}"


class BadInputError(PlannerError):
    """A document is invalid; carries all its problems at once."""

    exit_code = 24

    def __init__(self, problems: tuple[InputProblem, ...]) -> None:
        super().__init__("\n".join(str(problem) for problem in problems))
        self.problems = problems
