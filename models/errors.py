"""
All failures that gpuplan reports on purpose, with their exit codes (docs/plan-format.md lists them), and
suggestions of known names for their messages.
"""

from __future__ import annotations

from dataclasses import dataclass
from difflib import get_close_matches
from textwrap import indent
from typing import TYPE_CHECKING, ClassVar, Final

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence


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


class UnapprovedError(PlannerError):
    """A plan lacks signatures that the policy in force asks for; nothing was done."""

    exit_code = 25


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


# Suggestions for error messages: the known name closest to a wrong one.


# No longer text is a name (`Name`), and the time of a comparison grows with the square of its length.
_LONGEST_NAME: Final = 253
# A screen of lines; more do not help to see what is wrong.
_LONGEST_LIST: Final = 20


class Suggestions:
    """
    Finds near misses, for a limited number of queries.

    Comparing thousands of wrong names with thousands of known ones takes minutes, and a long list of
    suggestions is of no use.
    """

    def __init__(self, questions: int = 100) -> None:
        self._left = questions

    def hint(self, found: str, known: Iterable[str]) -> str:
        """A new line with the closest known name, or an empty text if none is close."""
        if not self._left or len(found) > _LONGEST_NAME:
            return ""
        self._left -= 1
        close = get_close_matches(found, list(known), n=1, cutoff=0.6)
        return f"\n  Maybe '{close[0]}' was meant." if close else ""


def require_known(what: str, names: Iterable[str], known: Iterable[str], source: str) -> None:
    """
    Check that things exist; messages name `source` as the place where they should be.

    Raises
    ------
    BadInputError
        With every name that is not known.
    """
    near, known = Suggestions(), list(known)
    there = set(known)
    problems = tuple(
        InputProblem(source, f"no {what} has the name {name!r}.{near.hint(name, known)}")
        for name in names
        if name not in there
    )
    if problems:
        raise BadInputError(problems)


def listed(items: Sequence[object]) -> str:
    """Lines of a message for the first of some items, each after a line end, and how many more there are."""
    lines = [indent(str(item), "  ") for item in items[:_LONGEST_LIST]]
    if (rest := len(items) - _LONGEST_LIST) > 0:
        lines.append(f"  … and {rest} more")
    return "".join(f"\n{line}" for line in lines)


def truncated_names(names: Iterable[str]) -> str:
    """Names in order; a long list is cut off."""
    ordered = sorted(names)
    rest = len(ordered) - _LONGEST_LIST
    return ", ".join(ordered[:_LONGEST_LIST]) + (f" and {rest} more" if rest > 0 else "")
